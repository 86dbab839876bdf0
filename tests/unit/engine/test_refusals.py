"""A proposer that cannot be made: what is remembered of that, for how long, and what it holds on to."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import SelfDraft, SpeculationIntent
from draftproof.engine.drafting import Drafting
from draftproof.kv.budget import ByteBudget
from draftproof.proposers import drafter


class Weights:
    weights_bytes = 500

    def describe(self) -> str:
        return "weights"


@pytest.mark.parametrize(("code", "calls"), [("DP802", 1), ("DP701", 3), ("DP401", 3)])
def test_a_refusal_is_remembered_where_it_lasts_and_holds_nothing(code: str, calls: int) -> None:
    made: list[weakref.ref[Weights]] = []

    def create(intent: SpeculationIntent) -> Any:
        weights = Weights()
        made.append(weakref.ref(weights))
        raise DraftproofError(code, "field", "found", "expected", "remedy")

    drafting = Drafting(create, 100, max_pools=2)
    for _ in range(3):
        with pytest.raises(DraftproofError, match=f"{code} field: found found; expected expected. remedy"):
            drafting.prepare(SelfDraft(), refuses=True)
    gc.collect()
    assert [weights() for weights in made] == [None] * calls
    for depth in range(1, 6):
        drafting.prepare(SelfDraft(num_speculative_tokens=depth), refuses=False)
    assert len(drafting._refused) <= 2


def test_a_drafter_without_room_is_not_kept_and_fits_when_there_is_room() -> None:
    budget = ByteBudget(1000)
    resources: Any = SimpleNamespace(drafters=WeakValueDictionary(), reserves_weights=True, budget=budget)
    make: Any = Weights
    assert budget.reserve(600)
    for _ in range(2):
        with pytest.raises(DraftproofError, match="DP701"):
            drafter._once(("", "int4"), resources, make)
        assert budget.num_reserved == 600
    budget.unreserve(600)
    kept = drafter._once(("", "int4"), resources, make)
    assert budget.num_reserved == 500
    assert drafter._once(("", "int4"), resources, make) is kept
    del kept
    gc.collect()
    assert budget.num_reserved == 0
