"""Grouped-query attention of new rows over paged keys and values, with equal bits for equal histories.

Called by `decoder.py`. Knows the cache's layout and which slots a row may see; no weights, no positions.

Each row is computed by itself, from tensors whose shapes depend on the length of its own history alone. That is
what makes its bits independent of the other rows: PyTorch's fused attention and products over many rows choose
kernels by the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kv.cache import BLOCK_SIZE
from draftproof.models.base import Segment


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What a pass needs to know of one segment in every layer.

    block_ids  int64 [num_blocks]: the blocks that hold the context and the segment's own rows
    visible    per row of the segment: the number of slots from the start of the sequence that it sees, or, where
               these are not consecutive, their indices, int64 [num_visible], in order of depth
    """

    first_row: int
    block_ids: Tensor
    visible: list[int | Tensor]


def view_segment(segment: Segment) -> SegmentView:
    """Prepares a segment once per pass."""
    num_slots = segment.context_len + segment.num_rows
    block_ids = torch.tensor(segment.block_ids[: -(-num_slots // BLOCK_SIZE)])
    visible: list[int | Tensor] = []
    if segment.parent_rows is None:
        visible.extend(range(segment.context_len + 1, num_slots + 1))
    else:
        context = torch.arange(segment.context_len)
        for path in _paths(segment.parent_rows):
            if path == list(range(len(path))):
                visible.append(segment.context_len + len(path))
            else:
                visible.append(torch.cat([context, segment.context_len + torch.tensor(path)]))
    return SegmentView(segment.first_row, block_ids, visible)


def _paths(parent_rows: list[int]) -> list[list[int]]:
    """For each row of a tree the rows from the root down to itself."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parent_rows):
        assert parent < row or row == parent == 0, "parents come before their children"
        paths.append([*paths[parent], row] if row else [0])
    return paths


def write_slots(segments: list[Segment]) -> tuple[Tensor, Tensor]:
    """Block and offset in the block where each row of the pass is stored, int64 [num_rows] both."""
    blocks, offsets = [], []
    for segment in segments:
        for slot in range(segment.context_len, segment.context_len + segment.num_rows):
            blocks.append(segment.block_ids[slot // BLOCK_SIZE])
            offsets.append(slot % BLOCK_SIZE)
    return torch.tensor(blocks), torch.tensor(offsets)


def attend(
    queries: Tensor, layer_cache: Tensor, views: list[SegmentView], scale: float, window: int | None
) -> Tensor:
    """Softmax attention of all rows; their own keys and values must be in the cache already.

    queries      float32 [num_rows, num_kv_heads, group, head_dim], rotated
    layer_cache  [num_blocks, 2, num_kv_heads, BLOCK_SIZE, head_dim]
    scale        factor of the scores
    window       None, or how many of the tokens on its path a row sees: itself and those just before it
    Returns float32 of the shape of `queries`.
    """
    output = torch.empty_like(queries)
    for view in views:
        blocks = layer_cache[view.block_ids].float()  # [num_blocks, 2, num_kv_heads, BLOCK_SIZE, head_dim]
        slots = blocks.permute(1, 2, 0, 3, 4).flatten(2, 3)  # [2, num_kv_heads, num_slots, head_dim]
        for row, visible in enumerate(view.visible, start=view.first_row):
            if isinstance(visible, int):
                first = 0 if window is None else max(0, visible - window)
                keys, values = slots[:, :, first:visible].unbind()
            else:
                seen = visible if window is None else visible[-window:]
                keys, values = slots.index_select(2, seen).unbind()
            scores = torch.bmm(
                queries[row] * scale, keys.transpose(1, 2)
            )  # [num_kv_heads, group, num_visible]
            output[row] = torch.bmm(torch.softmax(scores, dim=-1), values)
    return output
