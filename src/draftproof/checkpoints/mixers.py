"""Elements of what mixes tokens in one layer: projections, norms and biases of attention, and of running states.

Called by `parameters`. Formulas follow the model code in Transformers 5.24.
"""

from __future__ import annotations

from draftproof.checkpoints.architecture import Architecture
from draftproof.checkpoints.layers import (
    Compressed,
    KeyValues,
    Latent,
    Layer,
    NoCache,
    Paired,
    SharedCache,
    read_head_dim,
)
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.states import RunningState


def norm(values: Values, shape: Architecture) -> int:
    """Elements of one norm over the hidden state."""
    if not shape.norm_weight:
        return 0
    return values.count("hidden_size") * (2 if shape.norm_bias else 1)


def mixer(values: Values, shape: Architecture, layer: Layer) -> tuple[int, int]:
    """Elements of matrices, and of biases, norms and convolutions, by the layer's own configuration."""
    if shape.weigh is not None:
        return shape.weigh(values, layer)
    if isinstance(layer, NoCache):
        return 0, 0
    if isinstance(layer, RunningState):
        return _state(values, shape)
    if isinstance(layer, Paired):
        attention, state = mixer(values, shape, layer.attention), _state(values, shape)
        return attention[0] + state[0], attention[1] + state[1]
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    if isinstance(layer, Compressed) or shape.attention == "compressed":
        return _compressed(values, hidden, heads, layer)
    gate = hidden * heads if values.applies(shape.head_gate) else 0
    if values.applies(shape.value_gate):
        gate += (
            hidden
            * heads
            * (values.count("v_head_dim") if isinstance(layer, Latent) else read_head_dim(values))
        )
    if isinstance(layer, Latent):
        matrices, vectors = _latent(values, hidden, heads, layer)
        return matrices + gate, vectors + (heads if shape.sinks == "all" else 0)
    matrices, vectors = _grouped(values, shape, layer, hidden, heads)
    return matrices + gate, vectors


def _state(values: Values, shape: Architecture) -> tuple[int, int]:
    assert shape.state is not None
    found = shape.state(values)
    return found.matrices, found.vectors


def _grouped(
    values: Values, shape: Architecture, layer: KeyValues | SharedCache, hidden: int, heads: int
) -> tuple[int, int]:
    """Queries, keys, values and what joins the heads; a layer that shares another's cache has queries alone."""
    if isinstance(layer, SharedCache):
        layer = KeyValues(0, layer.key_dim, layer.key_dim)
    queries = heads * layer.key_dim * (2 if shape.query_gate else 1)
    keys, vals = layer.num_kv_heads * layer.key_dim, layer.num_kv_heads * layer.value_dim
    if shape.value_is_key is not None and layer.window is None and values.flag(shape.value_is_key):
        vals = 0
    matrices = hidden * (queries + keys + vals + heads * layer.value_dim)
    vectors = 0
    if shape.shared_queries is not None:
        narrow = values.count(shape.shared_queries, layer.key_dim)
        matrices += narrow * (hidden + queries) - hidden * queries
        vectors += narrow
    if values.applies(shape.qkv_bias):
        vectors += queries + keys + vals
    if values.applies(shape.o_bias):
        vectors += hidden
    if shape.qk_norm_if is None or values.flag(shape.qk_norm_if):
        of_head = (2 if keys else 1) * layer.key_dim
        vectors += {"none": 0, "head": of_head, "width": heads * layer.key_dim + keys}[shape.qk_norm]
    if layer.index_dim:
        index_heads = values.count("index_n_heads")
        matrices += hidden * (index_heads + 1) * layer.index_dim
        vectors += 2 * layer.index_dim
    has_sinks = shape.sinks == "all" or (shape.sinks == "window" and layer.window is not None)
    return matrices, vectors + (heads if has_sinks else 0)


def _latent(values: Values, hidden: int, heads: int, layer: Latent) -> tuple[int, int]:
    """DeepSeek-V2 (Liu et al., 2024), section 2.1, with its optional compression of queries; DeepSeek-V3.2's indexer:
    queries from the compressed ones, one key with a norm, and a weight per head."""
    nope, value_dim = values.count("qk_nope_head_dim"), values.count("v_head_dim")
    query = heads * (nope + layer.rope_dim)
    has_bias = values.flag("attention_bias")
    down = hidden * (layer.rank + layer.rope_dim)
    up = layer.rank * heads * (nope + value_dim)
    vectors = layer.rank
    if has_bias:
        vectors += layer.rank + layer.rope_dim + hidden
    if values.has("q_lora_rank"):
        rank = values.count("q_lora_rank")
        queries = hidden * rank + rank * query
        vectors += rank + (rank if has_bias else 0)
    else:
        queries = hidden * query
    matrices = queries + down + up + heads * value_dim * hidden
    if layer.index_dim:
        index_heads = values.count("index_n_heads")
        matrices += values.count("q_lora_rank") * index_heads * layer.index_dim
        matrices += hidden * (layer.index_dim + index_heads)
        vectors += 2 * layer.index_dim
    return matrices, vectors


def _compressed(values: Values, hidden: int, heads: int, layer: Layer) -> tuple[int, int]:
    """DeepSeek V4: one vector per token as key and value, heads joined through a low rank in groups, a compressor that
    weighs tokens by gates (twice as wide where its windows overlap), and an indexer with a compressor of its own."""
    dim, rank = values.count("head_dim"), values.count("q_lora_rank")
    joined, groups = values.count("o_lora_rank"), values.count("o_groups")
    matrices = hidden * rank + rank * heads * dim + hidden * dim
    matrices += heads * dim * joined + hidden * groups * joined
    vectors = heads + rank + dim
    if not isinstance(layer, Compressed):
        return matrices, vectors
    wide = 2 if layer.index_dim else 1
    matrices += 2 * hidden * wide * dim
    vectors += layer.rate * wide * dim + dim
    if layer.index_dim:
        index_heads = values.count("index_n_heads")
        matrices += 4 * hidden * layer.index_dim + rank * index_heads * layer.index_dim + hidden * index_heads
        vectors += 2 * layer.rate * layer.index_dim + layer.index_dim
    return matrices, vectors
