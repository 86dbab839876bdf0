"""Remembered outputs: scopes apart, bounds kept, the oldest of the least used scope dropped first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.proposers.pool import Pools


def held(pools: Pools, scope: str) -> list[list[int]]:
    """The outputs of a scope, oldest first. Does not count as a use of the scope."""
    pool = pools._scopes.get(scope)
    outputs: list[list[int]] = [[]]
    for token in pool.text if pool is not None else []:
        if token is None:
            outputs.append([])
        else:
            outputs[-1].append(token)
    return outputs[:-1]


def test_scopes_do_not_see_one_another() -> None:
    pools = Pools((1, 2), max_outputs=9)
    pools.remember("a", [1, 2, 3])
    assert pools.get("b") is None
    pool = pools.get("a")
    assert pool is not None
    assert [pool.text[p - pool.base] for p in pool.index.followers(2, (1, 2))] == [3]


def test_oldest_output_of_the_least_recently_used_scope_goes_first() -> None:
    pools = Pools((1,), max_outputs=3)
    pools.remember("a", [1])
    pools.remember("a", [2])
    pools.remember("b", [3])
    assert pools.get("a") is not None
    pools.remember("c", [4])
    assert (held(pools, "a"), held(pools, "b"), held(pools, "c")) == ([[1], [2]], [], [[4]])
    assert pools.get("b") is None
    pools.remember("c", [5])
    assert (held(pools, "a"), held(pools, "c")) == ([[2]], [[4], [5]])


def test_tokens_are_bounded_and_a_long_output_keeps_its_end() -> None:
    pools = Pools((1, 2), max_outputs=100, max_tokens=10)
    pools.remember("a", list(range(50)))
    assert held(pools, "a") == [list(range(41, 50))]
    pools.remember("a", [1, 2])
    assert held(pools, "a") == [[1, 2]]


def test_a_pool_of_no_outputs_remembers_nothing() -> None:
    pools = Pools((1,), max_outputs=0)
    pools.remember("a", [1, 2])
    pools.remember("b", [])
    assert pools.num_outputs == pools.num_tokens == 0
    assert pools.get("a") is None


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 2), max_size=12)), max_size=30),
    st.integers(1, 4),
    st.integers(2, 30),
)
def test_bounds_hold_and_what_is_held_is_found(
    outputs: list[tuple[str, list[int]]], max_outputs: int, max_tokens: int
) -> None:
    pools = Pools((1, 3), max_outputs, max_tokens)
    for scope, output in outputs:
        pools.remember(scope, output)
        assert pools.num_outputs == sum(len(held(pools, name)) for name in "abc") <= max_outputs
        assert pools.num_tokens == sum(len(o) + 1 for name in "abc" for o in held(pools, name)) <= max_tokens
    for scope in "abc":
        pool = pools.get(scope)
        for output in held(pools, scope) if pool is not None else []:
            assert pool is not None
            for end in range(3, len(output)):
                found = [
                    pool.text[p - pool.base] for p in pool.index.followers(3, tuple(output[end - 3 : end]))
                ]
                assert output[end] in found
