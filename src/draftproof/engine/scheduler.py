"""Which sequences take part in the next pass, with how many rows, and which blocks of the cache are whose.

The engine asks `schedule()` once per round, tells `settle()` when the round's tokens are committed, and `finish()`
when a request has ended. Requests run in order of their rank: priority, then arrival. Blocks are taken as tokens
come. Where they run short, drafts get shorter first, prefixes that nobody uses are given up, then what proposers
hold, and then the request of the last rank is preempted: it waits at the front of its priority and is computed
again. Knows nothing of models, rules or text.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from draftproof.core.errors import DraftproofError
from draftproof.engine.config import EngineConfig
from draftproof.engine.sequence import Sequence
from draftproof.kv.cache import BLOCK_SIZE
from draftproof.kv.pool import BlockPool, CacheUsage
from draftproof.kv.table import BlockTable, PrefixKeys


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


class DraftState(Protocol):
    """What the scheduler asks of proposers, by request. See `proposers.base.HoldsCache`."""

    def reach(self, req_id: str, num_tokens: int) -> int: ...

    def release(self, req_id: str) -> bool: ...


class Scheduler:
    """Holds waiting and running sequences, both in order of rank. `max_len` is prompt plus output, in tokens."""

    def __init__(self, config: EngineConfig, pool: BlockPool, max_len: int, drafts: DraftState) -> None:
        self._config = config
        self._pool = pool
        self._max_len = max_len
        self._drafts = drafts
        self._numbers = count()
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._by_id: dict[str, Sequence] = {}
        self.num_preemptions = 0
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.usage_in_pass = self.usage()

    # ---- requests -------------------------------------------------------------------------------------

    def check(self, sequence: Sequence) -> None:
        """Raises DP305 when the sequence could not run even alone."""
        needed = self._pool.blocks_for(min(sequence.max_total, self._max_len))
        if needed > self._pool.capacity:
            raise DraftproofError(
                "DP305",
                "max_tokens",
                f"{sequence.num_prompt} prompt tokens and up to {sequence.max_total - sequence.num_prompt} output",
                f"at most {self._pool.capacity * BLOCK_SIZE} tokens in all, which is what the cache holds",
                "Shorten the prompt, lower max_tokens, or give the engine more memory (--memory).",
            )

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence that `check` let pass."""
        request = sequence.request
        sequence.rank = (request.priority, next(self._numbers))
        keys = PrefixKeys(request.scope) if self._config.prefix_caching else None
        sequence.table = BlockTable(self._pool, keys)
        self._by_id[request.req_id] = sequence
        insort(self._waiting, sequence, key=_rank)

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and frees its blocks; what it computed may serve others."""
        if sequence.error is None:
            num_tokens = min(sequence.num_computed, len(sequence.token_ids))
            sequence.table.remember(sequence.token_ids, num_tokens)
        del self._by_id[sequence.request.req_id]
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        sequence.table.shrink(0)

    def get(self, req_id: str) -> Sequence | None:
        return self._by_id.get(req_id)

    @property
    def has_work(self) -> bool:
        return bool(self._by_id)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def usage(self) -> CacheUsage:
        """Blocks by what they are for, now."""
        draft = sum(_num_draft_blocks(sequence) for sequence in self._running)
        pool = self._pool
        return CacheUsage(
            committed=pool.num_in_use - draft,
            draft=draft,
            cached=pool.num_cached,
            free=pool.num_free - pool.num_cached,
        )

    # ---- rounds ---------------------------------------------------------------------------------------

    def schedule(self) -> list[Scheduled]:
        """Decoding sequences first (a root row and a draft budget each), then chunks, both in order of rank.

        Of the rows of a pass every decoding sequence has one. Sequences that wait for their prompt are sure of a
        quarter of all rows as long as they can use them, and get what drafts leave besides.
        """
        self._admit()
        num_decoding = sum(not sequence.num_to_prefill for sequence in self._running)
        rows_left = self._config.max_num_rows - num_decoding
        chunk_rows = self._rows_for_chunks(rows_left)
        decoding: list[Sequence] = []
        chunks: list[Scheduled] = []
        for sequence in self._running_in_order():
            if not sequence.num_to_prefill:
                if self._make_room(sequence, sequence.num_computed + 1):
                    decoding.append(sequence)
                continue
            num_rows = self._chunk(
                sequence, min(sequence.num_to_prefill, self._config.prefill_chunk, chunk_rows)
            )
            if num_rows:
                chunk_rows -= num_rows
                rows_left -= num_rows
                samples = not sequence.num_output and num_rows == sequence.num_to_prefill
                chunks.append(Scheduled(sequence, num_rows, samples, decodes=False))
        budgets = _fair_shares([sequence.draft_budget for sequence in decoding], rows_left)
        scheduled = [
            Scheduled(sequence, 1, True, True, self._room_for_draft(sequence, budget))
            for sequence, budget in zip(decoding, budgets, strict=True)
        ]
        self.usage_in_pass = self.usage()
        return scheduled + chunks

    def settle(self, scheduled: Iterable[Scheduled]) -> None:
        """After the commit: draft blocks go back, and full blocks of those that run on may be shared."""
        for item in scheduled:
            sequence = item.sequence
            if sequence.finish_reason is None:
                sequence.table.shrink(len(sequence.token_ids))
                sequence.table.remember(sequence.token_ids, sequence.num_computed)

    def stuck(self) -> Sequence | None:
        """Asked when nothing was scheduled: the sequence that has all it can get, and not the blocks to go on.

        `check` keeps such requests out; it happens where memory was reserved after that.
        """
        return self._running[0] if self._running else None

    # ---- parts of a round -----------------------------------------------------------------------------

    def _admit(self) -> None:
        """In order of rank, while there are places and blocks; nobody overtakes."""
        while self._waiting and len(self._running) < self._config.max_num_seqs:
            sequence = self._waiting[0]
            self._take_prefix(sequence)
            missing = self._pool.blocks_for(len(sequence.token_ids)) - len(sequence.block_ids)
            # With nobody running it gets what there is: alone it fits.
            if self._running and not self._can_have(missing + self._num_spoken_for()):
                sequence.table.shrink(0)
                sequence.num_computed = 0
                return
            if not sequence.num_preempted:
                sequence.num_cached = sequence.num_computed
                self.num_prompt_tokens += sequence.num_prompt
                self.num_cached_tokens += sequence.num_cached
            del self._waiting[0]
            insort(self._running, sequence, key=_rank)

    def _take_prefix(self, sequence: Sequence) -> None:
        """Shares blocks that are known, as far as the proposer can do without them, and never the last token."""
        known = sequence.table.match(sequence.token_ids, len(sequence.token_ids) - 1)
        reach = self._drafts.reach(sequence.request.req_id, known) if known else 0
        sequence.num_computed = min(known, reach) // BLOCK_SIZE * BLOCK_SIZE
        sequence.table.shrink(sequence.num_computed)

    def _num_spoken_for(self) -> int:
        """Blocks that running sequences will soon need: the rest of their prompts, or one for their next tokens."""
        return sum(
            max(1, self._pool.blocks_for(len(sequence.token_ids)) - len(sequence.block_ids))
            for sequence in self._running
        )

    def _can_have(self, num_blocks: int) -> bool:
        """Whether so many blocks are free; drafters give up what they hold where that makes them enough."""
        if num_blocks > self._pool.capacity - self._pool.num_in_use:
            return False
        while num_blocks > self._pool.num_free:
            if not self._release_drafts():
                return False
        return True

    def _rows_for_chunks(self, rows_left: int) -> int:
        """Rows for prompts, of those that roots leave: a quarter of the pass at least, and what drafts do not want."""
        most = self._config.prefill_chunk
        wanted = sum(min(sequence.num_to_prefill, most) for sequence in self._running)
        reserved = min(wanted, self._config.max_num_rows // 4)
        drafts = sum(s.draft_budget for s in self._running if not s.num_to_prefill)
        return rows_left - min(drafts, rows_left - reserved)

    def _running_in_order(self) -> Iterable[Sequence]:
        """Running sequences by rank, without those that are preempted meanwhile (which are never earlier ones)."""
        index = 0
        while index < len(self._running):
            yield self._running[index]
            index += 1

    def _chunk(self, sequence: Sequence, num_rows: int) -> int:
        """Rows of a prompt for which there is room, `num_rows` at most."""
        if num_rows <= 0 or self._make_room(sequence, sequence.num_computed + num_rows):
            return max(0, num_rows)
        return self._fit(sequence, num_rows)

    def _room_for_draft(self, sequence: Sequence, budget: int) -> int:
        """How much of a draft budget there are slots for; takes no request's blocks for it."""
        return self._fit(sequence, budget + 1) - 1

    def _fit(self, sequence: Sequence, num_rows: int) -> int:
        """Takes blocks for `num_rows` rows, or for as many as there are blocks; returns how many."""
        if not sequence.table.grow(sequence.num_computed + num_rows):
            num_slots = (len(sequence.block_ids) + self._pool.num_free) * BLOCK_SIZE
            num_rows = num_slots - sequence.num_computed
            grown = sequence.table.grow(num_slots)
            assert grown, "free blocks that cannot be had"
        return num_rows

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Blocks for `num_tokens` tokens, at the expense of drafters and of later ranks; False: it must wait."""
        while not sequence.table.grow(num_tokens):
            if self._release_drafts():
                continue
            if self._running[-1] is sequence:
                return False
            self._preempt(self._running[-1])
        return True

    def _release_drafts(self) -> bool:
        """Has one proposer give up what it holds of one request, the last rank's first, so that blocks become free."""
        num_free = self._pool.num_free
        return any(
            self._drafts.release(sequence.request.req_id) and self._pool.num_free > num_free
            for sequence in reversed(self._running)
        )

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue, before all of its priority that came later. What it computed may stay as a prefix."""
        self._running.remove(sequence)
        self._drafts.release(sequence.request.req_id)
        sequence.table.shrink(0)
        sequence.num_computed = 0
        sequence.num_preempted += 1
        self.num_preemptions += 1
        insort(self._waiting, sequence, key=_rank)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank


def _num_draft_blocks(sequence: Sequence) -> int:
    return max(0, len(sequence.block_ids) - BlockPool.blocks_for(len(sequence.token_ids)))


def _fair_shares(wanted: list[int], available: int) -> list[int]:
    """What each gets of `available` rows: all it wants, or as much as everybody else who wants more."""
    shares = [0] * len(wanted)
    left = max(0, available)
    for rank, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[index] = min(wanted[index], left // (len(wanted) - rank))
        left -= shares[index]
    return shares
