"""One pass: from scheduled sequences and drafts to the rows that the model computes, and which logits are whose.

Called once per round by the engine. Knows the model's interface and row arithmetic; nothing of proposers,
sampling or text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.engine.scheduler import Scheduled
from draftproof.models.base import ForwardBatch, Model, Segment
from draftproof.ops.draft_batch import DraftBatch


@dataclass(frozen=True, slots=True)
class PassResult:
    """Logits of the sampling sequences of one pass.

    logits       float32 [num_logit_rows, vocab]: for each sampling sequence its root row, then its nodes
    row_offsets  sampling sequence s owns logit rows row_offsets[s] : row_offsets[s + 1]
    """

    logits: Tensor
    row_offsets: list[int]


@contextmanager
def one_pool_of_threads(model: Model) -> Iterator[None]:
    """Keeps PyTorch to the caller's thread where the model has threads of its own.

    Those of PyTorch, once woken for a vector of the vocabulary's length, spin for milliseconds beside the next pass.
    """
    num_threads = torch.get_num_threads()
    if model.kernels == "native":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def build_pass(scheduled: list[Scheduled], draft: DraftBatch) -> tuple[ForwardBatch, list[int]]:
    """The rows of a pass, and the offsets of each sampling sequence's logit rows (see `PassResult`).

    `draft` has one entry per sampling sequence, in the order of `scheduled`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    logit_rows: list[int] = []
    row_offsets = [0]
    draft_tokens, draft_parents, node_offsets = draft.lists
    for item in scheduled:
        sequence, first_row = item.sequence, len(token_ids)
        start, stop = sequence.num_computed, sequence.num_computed + item.num_rows
        token_ids.extend(sequence.token_ids[start:stop])
        positions.extend(range(start, stop))
        parents = None
        if item.samples:
            request = len(row_offsets) - 1
            nodes = range(node_offsets[request], node_offsets[request + 1])
            token_ids.extend(draft_tokens[node] for node in nodes)
            node_parents = [draft_parents[node] for node in nodes]
            depths = [0]
            for parent in node_parents:
                depths.append(depths[parent] + 1)
            positions.extend(stop - 1 + depth for depth in depths[1:])
            if node_parents != list(range(len(node_parents))):
                chunk = list(range(-1, item.num_rows - 1))
                chunk[0] = 0
                parents = chunk + [item.num_rows - 1 + parent for parent in node_parents]
            logit_rows.extend(range(first_row + item.num_rows - 1, len(token_ids)))
            row_offsets.append(len(logit_rows))
        segments.append(Segment(sequence.block_ids, start, first_row, len(token_ids) - first_row, parents))
    batch = ForwardBatch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        segments=segments,
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64),
    )
    return batch, row_offsets
