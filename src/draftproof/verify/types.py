"""What verification takes and returns; the mathematics is in this package's other modules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Rule(Enum):
    """How one request's draft is judged in one round."""

    MATCH = "match"
    """Greedy and coupled: a node is accepted while it is the target's own token of its parent's row. Any
    tree."""
    REJECTION = "rejection"
    """Leviathan et al. 2023, algorithm 1; in a tree, siblings one after the other in draw order."""
    BLOCK = "block"
    """Block verification, Sun et al. 2024, algorithm 2. Chains only."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names the noise of one request in one round: nothing random is hidden anywhere else.

    `seed` is the request's; `position` is the output position (0-based) of the first token this round emits.
    A node at depth d (root's children: d = 0) stands for output position `position + d`.
    """

    seed: int
    position: int


@dataclass(frozen=True, slots=True)
class TargetRows:
    """What the target says about every verified row (request r owns num_nodes(r) + 1 rows, root first).

    tokens     int64 [num_rows]   the target's own token per row, for requests judged by `Rule.MATCH` (else 0)
    prob_rows  int64 [num_rows]   the row's index into `probs`, for requests judged by another rule (else 0)
    probs      float64 [num_prob_rows, vocab]   target distributions after all sampling parameters, normalised
    """

    tokens: Tensor
    prob_rows: Tensor
    probs: Tensor


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one request: the accepted path and the one token that the target adds.

    path        rows of the accepted nodes (1-based within the request, see DraftBatch), from the root down
    tokens      ids of the accepted nodes, same length as `path`
    next_token  the correction after a rejection, or the bonus token after full acceptance
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    next_token: int

    @property
    def run(self) -> tuple[int, ...]:
        """The tokens that this round offers for emission, before any stop rule."""
        return (*self.tokens, self.next_token)
