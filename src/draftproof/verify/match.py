"""`Rule.MATCH`: greedy and coupled verification. A node is accepted while it is the target's own token.

Called by `verify` each round for most requests, so it works on plain lists. It needs no probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.verify.types import Verdict


def accept_matching(
    draft_tokens: Sequence[int], parent_rows: Sequence[int], tokens: Sequence[int]
) -> Verdict:
    """Walks from the root along the nodes that equal the target's token of their parent's row.

    draft_tokens  [num_nodes]       drafted ids of one request
    parent_rows   [num_nodes]       row of each node's parent (0 is the root), always an earlier row
    tokens        [num_nodes + 1]   the target's own token per row, root first

    Of siblings with the same token the first one is taken. The next token is the target's own in the last
    accepted row, so the run is a prefix of plain decoding whatever was drafted.
    """
    row = 0
    path: list[int] = []
    # One pass is enough: children stand behind their parent, and siblings of an accepted node have another
    # parent.
    for node, token in enumerate(draft_tokens):
        if parent_rows[node] == row and token == tokens[row]:
            row = node + 1
            path.append(row)
    return Verdict(tuple(path), tuple([draft_tokens[row - 1] for row in path]), tokens[row])
