"""Break-even is one inequality; these are its edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.core.breakeven import BreakEven

TIMES = st.floats(1e-6, 10.0)


def make(emitted: float, baseline: float = 0.010) -> BreakEven:
    return BreakEven(
        draft_s=0.002,
        verify_s=0.017,
        coordination_s=0.001,
        emitted_per_round=emitted,
        baseline_s_per_token=baseline,
    )


def test_a_round_of_two_plain_tokens_pays_from_more_than_two_emitted() -> None:
    assert make(2.0).s_per_token == pytest.approx(0.010)
    assert not make(1.99).pays
    assert make(2.01).pays
    assert make(3.0).needed_per_round == pytest.approx(2.0)


@given(TIMES, TIMES, TIMES, st.floats(1.0, 20.0), TIMES)
def test_pays_exactly_when_more_is_emitted_than_needed(
    draft: float, verify: float, coordination: float, emitted: float, baseline: float
) -> None:
    breakeven = BreakEven(draft, verify, coordination, emitted, baseline)
    gap = emitted / breakeven.needed_per_round
    if abs(gap - 1) > 1e-9:
        assert breakeven.pays == (gap > 1)


def test_the_document_carries_every_term() -> None:
    document = make(4.0).as_dict()
    assert document["s_per_token"] == pytest.approx(0.005)
    assert document["pays"] is True
    assert set(document) == {
        "draft_s",
        "verify_s",
        "coordination_s",
        "emitted_per_round",
        "s_per_token",
        "baseline_s_per_token",
        "needed_per_round",
        "pays",
    }
