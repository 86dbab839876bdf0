"""What proposers hand to verification: the drafted tokens of several requests in one flat structure.

Made by proposers, read by `verify` and by the engine. A chain is a tree with one path, so there is one form.
Rows: a request with `n` drafted nodes is verified in `n + 1` rows. Row 0 of a request is its *root* (the last
committed token, whose logits judge the first drafted token); node `k` of the request (0-based) sits in row
`k + 1` and its logits judge the node's children, or give the bonus token at a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor


class DraftLists(NamedTuple):
    """The fields of the same names of a `DraftBatch`, for those who go through them one by one."""

    tokens: list[int]
    parent_rows: list[int]
    node_offsets: list[int]


@dataclass(frozen=True)
class DraftBatch:
    """Drafted tokens of `num_requests` requests, flat over nodes, in the order of the requests.

    tokens         int64 [num_nodes]       target-vocabulary ids
    parent_rows    int64 [num_nodes]       row *within the request* of the node's parent: 0 is the root, and a
                                           parent always stands in an earlier row than its child
    node_offsets   int64 [num_requests+1]  request r owns nodes node_offsets[r] : node_offsets[r + 1]
    is_point_mass  bool  [num_nodes]       True: proposed with certainty (q is one-hot); False: drawn from `q`
    q_rows         int64 [num_nodes]       row of `q` that a drawn node was drawn from (0 for point masses);
                                           siblings share one row and stand in the order in which they were drawn
    q              float [num_q_rows, vocab]  normalised draft distributions as actually drawn from; may have no rows

    Chains are kept as lists, and their tensors made when they are asked for: in most rounds nobody does.
    """

    tokens: Tensor
    parent_rows: Tensor
    node_offsets: Tensor
    is_point_mass: Tensor
    q_rows: Tensor
    q: Tensor

    def __post_init__(self) -> None:
        num_nodes = self.tokens.shape[0]
        assert self.parent_rows.shape == (num_nodes,)
        assert self.is_point_mass.shape == (num_nodes,)
        assert self.q_rows.shape == (num_nodes,)
        assert self.node_offsets.dim() == 1
        assert self.node_offsets.shape[0] >= 1
        assert self.q.dim() == 2

    @cached_property
    def lists(self) -> DraftLists:
        return DraftLists(self.tokens.tolist(), self.parent_rows.tolist(), self.node_offsets.tolist())

    @property
    def num_requests(self) -> int:
        return len(self.lists.node_offsets) - 1

    @property
    def num_nodes(self) -> int:
        return len(self.lists.tokens)

    @classmethod
    def chains(cls, chains: Sequence[Sequence[int]]) -> DraftBatch:
        """Point-mass chains, one per request; an empty chain is a request that decodes plainly this round."""
        tokens: list[int] = []
        parents: list[int] = []
        offsets = [0]
        for chain in chains:
            tokens.extend(chain)
            parents.extend(range(len(chain)))
            offsets.append(len(tokens))
        return cls._of_chains(DraftLists(tokens, parents, offsets))

    @classmethod
    def _of_chains(cls, lists: DraftLists) -> DraftBatch:
        made = object.__new__(cls)
        made.__dict__["lists"] = lists
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor:
            """A tensor of chains that is asked for the first time."""
            lists = self.__dict__.get("lists")
            if lists is None or name not in self.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            num_nodes = len(lists.tokens)
            made = DraftBatch(
                *(torch.tensor(each, dtype=torch.int64) for each in lists),
                is_point_mass=torch.ones(num_nodes, dtype=torch.bool),
                q_rows=torch.zeros(num_nodes, dtype=torch.int64),
                q=torch.zeros((0, 0), dtype=torch.float64),
            )
            self.__dict__.update(made.__dict__)
            return self.__dict__[name]

    def spread(self, places: Sequence[int], num_requests: int) -> DraftBatch:
        """The same drafts among `num_requests` requests: entry i at `places[i]`, ascending; the others have none."""
        tokens, parents, before = self.lists
        sizes = [0] * num_requests
        for entry, place in enumerate(places):
            sizes[place] = before[entry + 1] - before[entry]
        offsets = [0, *accumulate(sizes)]
        if "tokens" not in self.__dict__:
            return self._of_chains(DraftLists(tokens, parents, offsets))
        return replace(self, node_offsets=torch.tensor(offsets))

    def request(self, request: int) -> DraftBatch:
        """The part of one request, as a batch of one, with the rows of `q` that its nodes were drawn from."""
        start, stop = self.lists.node_offsets[request : request + 2]
        q_rows, q = self.q_rows[start:stop], self.q
        if q.shape[0]:
            drawn = ~self.is_point_mass[start:stop]
            used, places = torch.unique(q_rows[drawn], return_inverse=True)
            q_rows = torch.zeros_like(q_rows)
            q_rows[drawn] = places
            q = q[used]
        return DraftBatch(
            tokens=self.tokens[start:stop],
            parent_rows=self.parent_rows[start:stop],
            node_offsets=torch.tensor([0, stop - start]),
            is_point_mass=self.is_point_mass[start:stop],
            q_rows=q_rows,
            q=q,
        )

    @classmethod
    def concat(cls, batches: Sequence[DraftBatch]) -> DraftBatch:
        """The requests of `batches` one after the other; rows of `q` are kept in order."""
        batches = list(batches)
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return cls.chains([])
        offsets = [batches[0].node_offsets[:1]]
        q_rows, num_nodes, num_q_rows = [], 0, 0
        vocab = max(batch.q.shape[1] for batch in batches)
        for batch in batches:
            offsets.append(batch.node_offsets[1:] + num_nodes)
            q_rows.append(batch.q_rows + torch.where(batch.is_point_mass, 0, num_q_rows))
            num_nodes += batch.num_nodes
            num_q_rows += batch.q.shape[0]
        qs = [batch.q for batch in batches if batch.q.shape[0]]
        return cls(
            tokens=torch.cat([batch.tokens for batch in batches]),
            parent_rows=torch.cat([batch.parent_rows for batch in batches]),
            node_offsets=torch.cat(offsets),
            is_point_mass=torch.cat([batch.is_point_mass for batch in batches]),
            q_rows=torch.cat(q_rows),
            q=torch.cat(qs) if qs else torch.zeros((0, vocab), dtype=torch.float64),
        )
