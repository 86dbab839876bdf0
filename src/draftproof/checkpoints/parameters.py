"""How many parameters a model has, from its configuration alone: exactly what its files hold, tied matrices once.

Called by `geometry` where no weights are at hand, and to tell active parameters. Formulas follow the model code in
Transformers 5.24, with which the tests compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoints.architectures import Architecture, MixtureKeys
from draftproof.checkpoints.layers import KeyValues, Latent, Layer, RunningState
from draftproof.checkpoints.reading import Values


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer: how many there are, how many a token visits, and how wide each is; `shared_size` is
    the width of what every token visits besides (0: nothing)."""

    num: int
    num_used: int
    size: int
    shared_size: int


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of elements.

    total        all, tied matrices once
    active       all but the experts that a token does not visit
    quantised    those in matrices that weight quantisation usually takes (projections and experts, not the embedding,
                 the output matrix, norms and routers)
    embedding    of the embedding matrix; output: of the output matrix where it is one of its own, else 0
    experts      of all routed experts together
    """

    total: int
    active: int
    quantised: int
    embedding: int
    output: int
    experts: int


def read_experts(values: Values, shape: Architecture) -> Experts | None:
    """None for a model without experts. Raises DP406 for a mixture that is not fully told."""
    keys = shape.mixture
    if keys is None or values.first(*keys.num) is None:
        return None
    num_key = str(values.first(*keys.num))
    if values.count(num_key, least=0) == 0:  # GGUF files of dense models say so
        return None
    size = values.count(keys.size)
    shared = 0
    if keys.shared_count is not None and values.has(keys.shared_count):
        shared = values.count(keys.shared_count, least=0) * size
    if keys.shared_size is not None and values.has(keys.shared_size):
        shared = values.count(keys.shared_size, least=0)
    num, used = values.count(num_key), values.count(keys.used)
    if used > num:
        raise values.fault(keys.used, used, f"at most {num}")
    return Experts(num, used, size, shared)


def sparse_layers(values: Values, shape: Architecture, num_layers: int) -> list[bool]:
    """Which layers have experts."""
    keys = shape.mixture
    if keys is None or read_experts(values, shape) is None:
        return [False] * num_layers
    if keys.skips == "first":
        if values.raw("mlp_layer_types") is not None:
            kinds = values.raw("mlp_layer_types")
            if not isinstance(kinds, list) or len(kinds) < num_layers:
                raise values.fault("mlp_layer_types", kinds, f"{num_layers} kinds")
            return [kind == "sparse" for kind in kinds[:num_layers]]
        first = values.count("first_k_dense_replace", default=0, least=0)
        return [layer >= first for layer in range(num_layers)]
    if keys.skips == "steps":
        dense, step = values.raw("mlp_only_layers") or [], values.count("decoder_sparse_step", default=1)
        if not isinstance(dense, list):
            raise values.fault("mlp_only_layers", dense, "a list of layers")
        return [layer not in dense and (layer + 1) % step == 0 for layer in range(num_layers)]
    if keys.skips == "span":
        first, last = (
            values.count("moe_layer_start_index", least=0),
            values.count("moe_layer_end_index", num_layers - 1),
        )
        step = values.count("moe_layer_interval", default=1)
        return [first <= layer <= last and (layer + 1) % step == 0 for layer in range(num_layers)]
    return [True] * num_layers


@dataclass(frozen=True, slots=True)
class _LayerCount:
    """Elements of one layer: matrices (the routed experts included), vectors, and of the matrices routed experts."""

    matrices: int
    vectors: int
    routed: int = 0


def count_parameters(values: Values, shape: Architecture, layers: tuple[Layer, ...]) -> Parameters:
    """Of the whole model without its MTP layers. Raises DP406 for what the configuration does not tell."""
    hidden, vocab = values.count("hidden_size"), values.count("vocab_size")
    embedding = vocab * hidden
    output = 0 if values.flag("tie_word_embeddings") else embedding
    sparse = sparse_layers(values, shape, len(layers))
    counts = [
        _count_layer(values, shape, layer, is_sparse) for layer, is_sparse in zip(layers, sparse, strict=True)
    ]
    quantised, routed = sum(each.matrices for each in counts), sum(each.routed for each in counts)
    vectors = sum(each.vectors for each in counts) + _norm(values, shape) + (vocab if shape.head_bias else 0)
    total = embedding + output + quantised + vectors
    experts = read_experts(values, shape)
    idle = routed * (experts.num - experts.num_used) // experts.num if experts else 0
    return Parameters(total, total - idle, quantised, embedding, output, routed)


def count_mtp(values: Values, shape: Architecture, layers: tuple[Layer, ...], num: int) -> Parameters:
    """Of `num` built-in prediction layers: one more layer each, with attention and of the last layer's width, a matrix
    that joins hidden state and embedding, and norms; the embedding and the output matrix are the model's own."""
    hidden = values.count("hidden_size")
    attending = [layer for layer in layers if not isinstance(layer, RunningState)]
    if not attending:
        raise values.fault(
            "layer_types", "no layer with attention", "one, of which prediction layers are made"
        )
    is_sparse = sparse_layers(values, shape, len(layers))[-1] and not shape.mtp_is_dense
    one = _count_layer(values, shape, attending[-1], is_sparse)
    matrices, vectors = num * (one.matrices + 2 * hidden * hidden), num * (one.vectors + 3 * hidden)
    experts = read_experts(values, shape)
    idle = num * one.routed * (experts.num - experts.num_used) // experts.num if experts else 0
    return Parameters(matrices + vectors, matrices + vectors - idle, matrices, 0, 0, num * one.routed)


def _count_layer(values: Values, shape: Architecture, layer: Layer, is_sparse: bool) -> _LayerCount:
    hidden = values.count("hidden_size")
    matrices, vectors = _mixer(values, shape, layer)
    vectors += shape.num_norms * _norm(values, shape)
    experts = read_experts(values, shape) if is_sparse else None
    if experts is not None and shape.mixture is not None:
        routed = experts.num * _expert(hidden, experts.size, shape)
        matrices += routed + _expert(hidden, experts.shared_size, shape)
        return _LayerCount(matrices, vectors + _mixture_vectors(hidden, experts, shape.mixture), routed)
    size = values.count("intermediate_size")
    if values.applies(shape.mlp_bias):
        vectors += _mlp_bias(hidden, size, shape)
    return _LayerCount(matrices + _expert(hidden, size, shape), vectors)


def _mixer(values: Values, shape: Architecture, layer: Layer) -> tuple[int, int]:
    """Elements of matrices, and of biases and norms, of what mixes tokens in one layer."""
    hidden = values.count("hidden_size")
    if isinstance(layer, RunningState):
        return _delta_net(values, hidden)
    heads = values.count("num_attention_heads")
    if isinstance(layer, Latent):
        return _latent(values, hidden, heads, layer)
    assert isinstance(layer, KeyValues)
    queries, keys, vals = (
        heads * layer.key_dim,
        layer.num_kv_heads * layer.key_dim,
        layer.num_kv_heads * layer.value_dim,
    )
    joined = heads * layer.value_dim
    matrices = hidden * (queries * (2 if shape.query_gate else 1) + keys + vals + joined)
    vectors = 0
    if values.applies(shape.qkv_bias):
        vectors += queries * (2 if shape.query_gate else 1) + keys + vals
    if values.applies(shape.o_bias):
        vectors += hidden
    if shape.qk_norm_if is None or values.flag(shape.qk_norm_if):
        vectors += {"none": 0, "head": 2 * layer.key_dim, "width": queries + keys}[shape.qk_norm]
    return matrices, vectors + (heads if shape.sinks else 0)


def _latent(values: Values, hidden: int, heads: int, layer: Latent) -> tuple[int, int]:
    """DeepSeek-V2 (Liu et al., 2024), section 2.1, with its optional compression of queries."""
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
    return queries + down + up + heads * value_dim * hidden, vectors


def _delta_net(values: Values, hidden: int) -> tuple[int, int]:
    keys = values.count("linear_num_key_heads") * values.count("linear_key_head_dim")
    value_heads, value_dim = values.count("linear_num_value_heads"), values.count("linear_value_head_dim")
    vals = value_heads * value_dim
    matrices = hidden * (2 * keys + 2 * vals + 2 * value_heads) + vals * hidden
    convolution = (2 * keys + vals) * values.count("linear_conv_kernel_dim")
    return matrices, convolution + 2 * value_heads + value_dim


def _expert(hidden: int, size: int, shape: Architecture) -> int:
    return (3 if shape.gated_mlp else 2) * hidden * size


def _mlp_bias(hidden: int, size: int, shape: Architecture) -> int:
    return (2 * size if shape.gated_mlp else size) + hidden


def _mixture_vectors(hidden: int, experts: Experts, keys: MixtureKeys) -> int:
    found = hidden * experts.num
    if keys.router_bias:
        found += experts.num
    if keys.correction:
        found += experts.num
    if keys.expert_bias:
        found += experts.num * (2 * experts.size + hidden)
    if keys.shared_gate and experts.shared_size:
        found += hidden
    return found


def _norm(values: Values, shape: Architecture) -> int:
    if not shape.norm_weight:
        return 0
    return values.count("hidden_size") * (2 if shape.norm_bias else 1)
