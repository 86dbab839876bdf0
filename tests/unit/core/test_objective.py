"""Service levels as text."""

from __future__ import annotations

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.core.objective import Slo, parse_slo


def test_bounds_by_name_in_any_unit() -> None:
    assert parse_slo("tpot=50ms") == Slo(tpot_s=0.05)
    slo = parse_slo("ttft = 2 s, tpot=800us ,e2e=30")
    assert (slo.ttft_s, slo.tpot_s, slo.e2e_s) == (2.0, pytest.approx(0.0008), 30.0)


@pytest.mark.parametrize(
    "text", ["", "tpot", "tpot=", "tpot=0ms", "tpot=-1", "tpot=1,tpot=2", "itl=5ms", "tpot=5min", ","]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DraftproofError) as error:
        parse_slo(text)
    assert (error.value.code, error.value.field) == ("DP001", "slo")
