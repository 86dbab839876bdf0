"""What depth is chosen for: latency, throughput, or most tokens within a service level. Values only."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from draftproof.core.errors import DraftproofError

Objective = Literal["latency", "throughput"]

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_KEYS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Bounds of a service level, in seconds; None where there is none.

    ttft_s  to the first token        tpot_s  per token after the first        e2e_s  to the last token
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        for name in _KEYS:
            bound = getattr(self, f"{name}_s")
            is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
            if bound is not None and not (is_number and 0 < bound < math.inf):
                raise DraftproofError(
                    "DP001",
                    f"slo.{name}_s",
                    repr(bound),
                    "seconds above 0",
                    "Leave it out where there is no bound.",
                )


def parse_slo(text: str) -> Slo:
    """`tpot=50ms,ttft=2s`: bounds by name, in us, ms or s (a bare number is seconds). Raises DP001."""
    bounds: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\s*(us|ms|s|)\s*", part)
        if match is None or match[1] not in _KEYS or match[1] in bounds or not float(match[2]) > 0:
            raise DraftproofError(
                "DP001",
                "slo",
                part.strip()[:80] or "nothing",
                f"bounds above 0, each of {', '.join(_KEYS)} at most once",
                "Write for example tpot=50ms,ttft=2s.",
            )
        bounds[match[1]] = float(match[2]) * _UNITS[match[3]]
    return Slo(**{f"{name}_s": bound for name, bound in bounds.items()})
