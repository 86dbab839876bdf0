from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftproof.verify.match import accept_matching
from draftproof.verify.types import Verdict


def test_nothing_drafted_is_plain_decoding() -> None:
    assert accept_matching([], [], [7]) == Verdict((), (), 7)


def test_a_chain_is_accepted_up_to_the_first_difference() -> None:
    chain = [5, 6, 7]
    assert accept_matching(chain, [0, 1, 2], [5, 6, 7, 8]) == Verdict((1, 2, 3), (5, 6, 7), 8)
    assert accept_matching(chain, [0, 1, 2], [5, 9, 7, 8]) == Verdict((1,), (5,), 9)
    assert accept_matching(chain, [0, 1, 2], [9, 6, 7, 8]) == Verdict((), (), 9)


def test_a_tree_is_walked_along_the_targets_tokens() -> None:
    """Level order, two children everywhere; the accepted path jumps over rows."""
    tokens, parents = [1, 2, 3, 4, 3, 4], [0, 0, 1, 1, 2, 2]
    rows = [2, 0, 4, 0, 0, 0, 9]
    assert accept_matching(tokens, parents, rows) == Verdict((2, 6), (2, 4), 9)


def test_of_equal_siblings_the_first_is_taken_with_its_children() -> None:
    """Both siblings say 1; only the children of the first can follow."""
    assert accept_matching([1, 1, 5], [0, 0, 2], [1, 5, 5, 8]) == Verdict((1,), (1,), 5)
    assert accept_matching([1, 1, 5], [0, 0, 1], [1, 5, 5, 8]) == Verdict((1, 3), (1, 5), 8)


def test_a_node_is_judged_by_its_parent_not_by_the_row_before_it() -> None:
    assert accept_matching([1, 2], [0, 0], [1, 2, 3]) == Verdict((1,), (1,), 2)


@given(data=st.data())
def test_the_run_is_plain_decoding_of_a_deterministic_target(data: st.DataObject) -> None:
    """Whatever is drafted, the run is a prefix of the target's own text, as long as the tree allows."""
    parents = [data.draw(st.integers(0, node)) for node in range(data.draw(st.integers(0, 8)))]
    tokens = [data.draw(st.integers(0, 2)) for _ in parents]

    def target(path: tuple[int, ...]) -> int:
        return (sum((depth + 2) * token for depth, token in enumerate(path)) + len(path)) % 3

    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent], token))
    verdict = accept_matching(tokens, parents, [target(path) for path in paths])
    plain: tuple[int, ...] = ()
    for _ in verdict.run:
        plain = (*plain, target(plain))
    assert verdict.run == plain
    assert [paths[row] for row in verdict.path] == [plain[: depth + 1] for depth in range(len(verdict.path))]
    last = verdict.path[-1] if verdict.path else 0
    children = [tokens[node] for node in range(len(tokens)) if parents[node] == last]
    assert verdict.next_token not in children
