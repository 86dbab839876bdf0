"""Break-even: the one rule that says whether speculation pays, in seconds per token.

Called by measurements and reports. Knows times and counts; nothing of how they were obtained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What a speculative token cost against a plain one, at the same batch and context. Times in seconds.

    draft_s, verify_s, coordination_s   mean of one speculative round
    emitted_per_round                   mean tokens that a round emitted, correction or bonus included
    baseline_s_per_token                decode time of one token without speculation
    """

    draft_s: float
    verify_s: float
    coordination_s: float
    emitted_per_round: float
    baseline_s_per_token: float

    @property
    def round_s(self) -> float:
        return self.draft_s + self.verify_s + self.coordination_s

    @property
    def s_per_token(self) -> float:
        """(draft + verify + coordination) / emitted."""
        return self.round_s / self.emitted_per_round

    @property
    def pays(self) -> bool:
        """(draft + verify + coordination) / emitted < plain decode time per token."""
        return self.s_per_token < self.baseline_s_per_token

    @property
    def needed_per_round(self) -> float:
        """Tokens per round from which these rounds would pay."""
        return self.round_s / self.baseline_s_per_token

    def as_dict(self) -> dict[str, float | bool]:
        return {
            "draft_s": self.draft_s,
            "verify_s": self.verify_s,
            "coordination_s": self.coordination_s,
            "emitted_per_round": self.emitted_per_round,
            "s_per_token": self.s_per_token,
            "baseline_s_per_token": self.baseline_s_per_token,
            "needed_per_round": self.needed_per_round,
            "pays": self.pays,
        }


def acceptance_needed(tokens: float, depth: int) -> float | None:
    """The share a with 1 + a + … + a^depth = tokens; 0 where nothing need be accepted, None where 1 is too little."""
    if tokens <= 1:
        return 0.0
    if tokens > depth + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if math.fsum(middle**power for power in range(depth + 1)) < tokens:
            low = middle
        else:
            high = middle
    return high
