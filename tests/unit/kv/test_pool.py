"""Blocks, tables and the shared budget against models that are plain lists."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from draftproof.kv.budget import Account, ByteBudget
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.kv.pool import BlockPool
from draftproof.kv.table import BlockTable, PrefixKeys

ALPHABET = 2


class Holder:
    """One sequence: its tokens, its table, and what its blocks must hold."""

    def __init__(self, pool: BlockPool, scope: str | None, token_ids: list[int]) -> None:
        self.scope = scope
        self.token_ids = token_ids
        self.num_computed = 0
        self.table = BlockTable(pool, None if scope is None else PrefixKeys(scope))


class Driven(RuleBasedStateMachine):
    """Two pools of one budget, and sequences that come, grow, share, shrink and go in any order.

    The model of the contents: `written[pool][block]` is (scope, tokens up to the block's end) as somebody wrote it.
    A block that is shared must hold what its new user expects; a block that is handed out may hold anything.
    """

    @initialize(
        sizes=st.tuples(st.integers(1, 8), st.integers(1, 8)),
        block_bytes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        num_bytes=st.integers(5, 60),
    )
    def start(self, sizes: tuple[int, int], block_bytes: tuple[int, int], num_bytes: int) -> None:
        self.budget = ByteBudget(num_bytes)
        self.discarded: list[set[int]] = [set(), set()]
        self.pools = [
            BlockPool(size, each, self.budget, self.discarded[which].update)
            for which, (size, each) in enumerate(zip(sizes, block_bytes, strict=True))
        ]
        self.written: list[dict[int, tuple[str | None, tuple[int, ...]]]] = [{}, {}]
        self.holders: list[tuple[int, Holder]] = []

    @rule(
        which=st.integers(0, 1),
        scope=st.sampled_from([None, "", "a"]),
        runs=st.lists(st.integers(0, ALPHABET - 1), min_size=1, max_size=5),
        extra=st.integers(0, BLOCK_SIZE - 1),
    )
    @precondition(lambda self: len(self.holders) < 6)
    def begin(self, which: int, scope: str | None, runs: list[int], extra: int) -> None:
        token_ids = [token for token in runs for _ in range(BLOCK_SIZE)] + [0] * extra
        holder = Holder(self.pools[which], scope, token_ids)
        limit = len(token_ids) - 1
        known = 0 if scope is None else num_known(self.pools[which], token_ids, scope, limit)
        holder.num_computed = holder.table.match(token_ids, limit)
        assert known == holder.num_computed <= limit
        for place, block_id in enumerate(holder.table.block_ids):
            expected = (scope, tuple(token_ids[: (place + 1) * BLOCK_SIZE]))
            assert self.written[which][block_id] == expected, "a shared block holds other tokens"
        self.holders.append((which, holder))

    @rule(data=st.data(), num_tokens=st.integers(1, 3 * BLOCK_SIZE), num_drafted=st.integers(0, 40))
    @precondition(lambda self: self.holders)
    def compute(self, data: st.DataObject, num_tokens: int, num_drafted: int) -> None:
        which, holder = data.draw(st.sampled_from(self.holders))
        pool = self.pools[which]
        stop = min(len(holder.token_ids), holder.num_computed + num_tokens)
        before = list(holder.table.block_ids)
        missing = BlockPool.blocks_for(stop + num_drafted) - len(before)
        num_free = pool.num_free
        grown = holder.table.grow(stop + num_drafted)
        assert grown == (missing <= num_free), "as many blocks as were said to be free"
        if not grown:
            assert holder.table.block_ids == before
            return
        for block in range(holder.num_computed // BLOCK_SIZE, BlockPool.blocks_for(stop + num_drafted)):
            block_id = holder.table.block_ids[block]
            users = [h for w, h in self.holders if w == which and block_id in h.table.block_ids]
            assert users == [holder], "a block that is written has one user"
            tokens = tuple(holder.token_ids[: (block + 1) * BLOCK_SIZE])
            self.written[which][block_id] = (holder.scope, tokens)
        holder.num_computed = stop
        holder.table.shrink(len(holder.token_ids))
        holder.table.remember(holder.token_ids, holder.num_computed)

    @rule(data=st.data())
    @precondition(lambda self: self.holders)
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.holders) - 1))
        _, holder = self.holders.pop(index)
        holder.table.shrink(0)

    @rule(num_bytes=st.integers(1, 30))
    def reserve(self, num_bytes: int) -> None:
        """Weights come and go; they get what no block in use holds."""
        in_use = sum(pool.num_in_use * pool.block_bytes for pool in self.pools)
        got = self.budget.reserve(num_bytes)
        assert got == (num_bytes <= self.budget.num_bytes - in_use)
        if got:
            assert all(
                pool.capacity * pool.block_bytes <= self.budget.num_bytes - num_bytes for pool in self.pools
            )
            self.budget.unreserve(num_bytes)

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        if not hasattr(self, "pools"):
            return
        taken = 0
        for which, pool in enumerate(self.pools):
            held = [h.table.block_ids for w, h in self.holders if w == which]
            assert all(len(set(block_ids)) == len(block_ids) for block_ids in held)
            distinct = {block_id for block_ids in held for block_id in block_ids}
            assert pool.num_in_use == len(distinct)
            assert pool.num_in_use + pool.num_free <= pool.num_blocks
            taken += pool.num_in_use * pool.block_bytes + pool.num_free_bytes + pool.num_cached_bytes
        assert taken + self.budget.num_unclaimed == self.budget.num_bytes
        assert self.budget.num_unclaimed >= 0

    def teardown(self) -> None:
        for _, holder in getattr(self, "holders", []):
            holder.table.shrink(0)
        for pool in getattr(self, "pools", []):
            assert pool.num_in_use == 0
            assert pool.num_free == pool.capacity


def test_any_order_of_events() -> None:
    checks = settings(deadline=None, max_examples=150, stateful_step_count=30)
    run_state_machine_as_test(Driven, settings=checks)


def filled(pool: BlockPool, runs: list[int], scope: str = "") -> BlockTable:
    """A table with one full, named block per run."""
    token_ids = [token for token in runs for _ in range(BLOCK_SIZE)]
    table = BlockTable(pool, PrefixKeys(scope))
    table.match(token_ids, len(token_ids) - 1)
    assert table.grow(len(token_ids))
    table.remember(token_ids, len(token_ids))
    return table


def matched(pool: BlockPool, runs: list[int], scope: str = "") -> int:
    token_ids = [token for token in runs for _ in range(BLOCK_SIZE)]
    return num_known(pool, token_ids, scope, len(token_ids)) // BLOCK_SIZE


def num_known(pool: BlockPool, token_ids: list[int], scope: str, limit: int) -> int:
    """How many of the first `limit` tokens are known."""
    return pool.num_known(PrefixKeys(scope).of(token_ids, limit)) * BLOCK_SIZE


def test_the_least_recently_used_prefix_is_given_up_from_its_end() -> None:
    pool = BlockPool(6)
    old, new = filled(pool, [1, 2, 3]), filled(pool, [4, 5, 6])
    old.shrink(0)
    new.shrink(0)
    assert (pool.num_free, pool.num_cached) == (6, 6)
    assert pool.allocate(2) is not None
    assert (matched(pool, [1, 2, 3]), matched(pool, [4, 5, 6])) == (1, 3)
    filled(pool, [1]).shrink(0)  # used again
    assert pool.allocate(3) is not None
    assert (matched(pool, [1, 2, 3]), matched(pool, [4, 5, 6])) == (1, 0)


def test_prefixes_of_one_tenant_are_not_anothers() -> None:
    pool = BlockPool(4)
    filled(pool, [1, 2], scope="a").shrink(0)
    assert matched(pool, [1, 2], scope="a") == 2
    assert matched(pool, [1, 2], scope="b") == 0
    assert matched(pool, [1, 2]) == 0


def test_equal_blocks_behind_different_beginnings_are_different() -> None:
    pool = BlockPool(4)
    filled(pool, [1, 2]).shrink(0)
    assert matched(pool, [3, 2]) == 0
    assert matched(pool, [2]) == 0


def test_one_budget_two_pools_meet_wherever_they_must() -> None:
    budget = ByteBudget(100)
    given_up: list[int] = []
    target = BlockPool(10, 10, budget)
    drafter = BlockPool(20, 5, budget, given_up.extend)
    drafts = drafter.allocate(10)
    assert drafts is not None
    assert target.num_free == 5
    drafter.release(drafts[:4])
    assert target.num_free == 7
    assert target.allocate(7) is not None, "takes back what the drafter does not use"
    assert sorted(given_up) == sorted(drafts[:4])
    assert target.allocate(1) is None
    drafter.release(drafts[4:])
    assert target.allocate(3) is not None
    assert drafter.num_free == 0


def test_a_pool_that_leaves_gives_everything_back() -> None:
    budget = ByteBudget(100)
    drafter = BlockPool(20, 5, budget)
    blocks = drafter.allocate(20)
    assert blocks is not None
    drafter.release(blocks)
    budget.leave(drafter)
    assert budget.num_unclaimed == 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is given back on Linux alone")
def test_discarded_blocks_take_no_memory_and_can_be_written_again() -> None:
    cache = KVCache(num_layers=2, num_blocks=4, num_kv_heads=2, head_dim=64, dtype=torch.float32)
    cache.data.fill_(1.0)
    cache.discard([1, 3])
    assert bool((cache.data[[0, 2]] == 1.0).all()), "neighbours keep what they hold"
    assert float(cache.data[[1, 3]].sum()) < float(cache.data[[0, 2]].sum())
    cache.data.fill_(2.0)
    assert bool((cache.data == 2.0).all())


def test_remembered_bytes_yield_to_blocks_and_blocks_in_use_to_nobody() -> None:
    budget, held = ByteBudget(100), [0]

    def shrink(most: int) -> None:
        held[0] = min(held[0], most // 2)  # may give up more than it must

    account = Account(budget, lambda: held[0], shrink)
    pool = BlockPool(10, 10, budget)
    held[0] = 45
    account.settle()
    assert (pool.num_free, budget.num_unclaimed) == (10, 55)
    kept = pool.allocate(5)
    assert held == [45]
    more = pool.allocate(4)
    assert kept is not None
    assert more is not None
    assert held == [5]
    assert pool.num_free == 1
    held[0] = 30  # more than is left: blocks are in use
    account.settle()
    assert held == [2]
    assert budget.num_unclaimed == 100 - 90 - 2
    pool.release(more)
    held[0] = 30  # idle blocks yield
    account.settle()
    assert held == [30]
    assert pool.num_free == 5
    assert not budget.reserve(60)
    assert budget.reserve(50)
    assert held == [0]
    budget.unreserve(50)
    held[0] = 9
    account.settle()
    budget.leave(account)
    assert budget.num_within_reach(None) == 50
