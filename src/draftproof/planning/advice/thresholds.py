"""From which acceptance speculation pays, by arithmetic on sizes alone: a threshold, never a forecast.

Called by the modules that propose. The assumption is that of small batches: a pass costs what it reads, and verifying
a few rows costs one pass. Large batches and mixtures of experts break it, which the texts say.
"""

from __future__ import annotations

from draftproof.core.breakeven import acceptance_needed


def needed_acceptance(depth: int, draft_cost: float, passes: int | None = None) -> float | None:
    """The least chance per draft token, the same at each position, from which `depth` drafts per round pay.

    `draft_cost`: one pass of the drafter as a share of the target's; `passes` of them make a round, one per draft token
    unless said otherwise (parallel drafters take one). None: even certain drafts do not pay.
    """
    needed = acceptance_needed(1 + (depth if passes is None else passes) * draft_cost, depth)
    return None if needed is None or needed >= 1 else needed


def pays_if(depth: int, draft_cost: float, has_experts: bool, passes: int | None = None) -> str | None:
    """The threshold in words; None where it cannot pay."""
    needed = needed_acceptance(depth, draft_cost, passes)
    if needed is None:
        return None
    experts = (
        " Each row of a verify pass may wake other experts, which raises the threshold."
        if has_experts
        else ""
    )
    return (
        f"Pays from an acceptance of {needed:.2f} per draft token at {depth} per round, if a pass costs what it reads "
        f"(small batches) and a pass of the drafter {draft_cost:.1%} of a target's. Not measured.{experts}"
    )
