"""First come, first served: which sequences take part in the next pass, and with how many rows.

The engine asks `schedule()` once per round and tells `finish()`. The scheduler owns the cache's blocks; it knows
nothing of models, proposers or text. A request is admitted when the blocks it can ever need are free, so a
running request is never stopped for lack of memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.core.errors import DraftproofError
from draftproof.engine.config import EngineConfig
from draftproof.engine.sequence import Sequence
from draftproof.kv.cache import BLOCK_SIZE, BlockPool


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One sequence's part of a pass.

    num_rows   uncomputed tokens of the sequence that this pass computes (1 when decoding)
    samples    True when the pass reaches the last token, so that the round emits
    decodes    False for a chunk of the prompt, also for its last, which yields the first token
    budget     most nodes a proposer may draft now; 0 for prompt chunks
    """

    sequence: Sequence
    num_rows: int
    samples: bool
    decodes: bool
    budget: int = 0


class Scheduler:
    """Holds waiting and running sequences. `max_len` is prompt plus output, in tokens."""

    def __init__(self, config: EngineConfig, pool: BlockPool, max_len: int) -> None:
        self._config = config
        self._pool = pool
        self._max_len = max_len
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence that `check` let pass."""
        self._waiting.append(sequence)

    def check(self, sequence: Sequence) -> None:
        """Raises DP305 when the sequence could not run even alone."""
        needed = self._num_blocks(sequence)
        if needed > self._pool.num_blocks:
            fits = self._pool.num_blocks * BLOCK_SIZE
            raise DraftproofError(
                "DP305",
                "max_tokens",
                f"{sequence.num_prompt} prompt tokens and up to {sequence.max_total - sequence.num_prompt} output",
                f"at most {fits} tokens in all, which is what the cache holds",
                "Shorten the prompt, lower max_tokens, or give the engine more memory (--memory).",
            )

    def schedule(self) -> list[Scheduled]:
        """Decoding sequences first (one root row and their draft budget each), then prompt chunks, in order."""
        self._admit()
        decoding = [sequence for sequence in self._running if sequence.num_output]
        prefilling = [sequence for sequence in self._running if not sequence.num_output]
        # Drafts may not take the rows that waiting prompts need to get on.
        rows_left = self._config.max_num_rows - len(decoding)
        reserved = self._config.max_num_rows // 4 if prefilling else 0
        budgets = _fair_shares([sequence.draft_budget for sequence in decoding], rows_left - reserved)
        rows_left -= sum(budgets)
        scheduled = [
            Scheduled(sequence, 1, True, True, budget)
            for sequence, budget in zip(decoding, budgets, strict=True)
        ]
        for sequence in prefilling:
            num_rows = min(sequence.num_uncomputed, self._config.prefill_chunk, rows_left)
            if num_rows <= 0:
                break
            scheduled.append(Scheduled(sequence, num_rows, num_rows == sequence.num_uncomputed, False))
            rows_left -= num_rows
        return scheduled

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and frees its blocks."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence.block_ids:
            self._pool.release(sequence.block_ids)
            sequence.block_ids = []

    def sequences(self) -> Iterable[Sequence]:
        yield from self._running
        yield from self._waiting

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._config.max_num_seqs:
            block_ids = self._pool.allocate(self._num_blocks(self._waiting[0]))
            if block_ids is None:
                return  # the head of the queue waits; nobody overtakes it
            sequence = self._waiting.popleft()
            sequence.block_ids = block_ids
            self._running.append(sequence)

    def _num_blocks(self, sequence: Sequence) -> int:
        # A draft needs no more: it is never longer than the tokens that may still come.
        return self._pool.blocks_for(min(sequence.max_total, self._max_len))


def _fair_shares(wanted: list[int], available: int) -> list[int]:
    """What each gets of `available` rows: all it wants, or as much as everybody else who wants more."""
    shares = [0] * len(wanted)
    left = max(0, available)
    for rank, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[index] = min(wanted[index], left // (len(wanted) - rank))
        left -= shares[index]
    return shares
