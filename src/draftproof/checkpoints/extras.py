"""What some architectures hold beside mixers, feed-forwards and norms: one function each, named by the rows.

Facts of the model code in Transformers 5.24.
"""

from __future__ import annotations

from draftproof.checkpoints.architecture import Extra
from draftproof.checkpoints.reading import Values


def inputs_per_layer(values: Values, num_layers: int) -> Extra:
    """Gemma 4: a second embedding with something for every layer, what brings it into the layers, and a factor per
    layer. Models without such inputs say 0."""
    hidden, size = values.count("hidden_size"), values.count("hidden_size_per_layer_input", 256, least=0)
    if size == 0:
        return Extra(0, 0, num_layers)
    return _inputs(values, num_layers, hidden, size, num_layers)


def _inputs(values: Values, num_layers: int, hidden: int, size: int, vectors: int) -> Extra:
    vocab = values.count("vocab_size_per_layer_input", 262144)
    matrices = 3 * num_layers * size * hidden
    return Extra(vocab * num_layers * size, matrices, vectors + size + num_layers * hidden)


def alternating_updates(values: Values, num_layers: int) -> Extra:
    """Gemma 3n: inputs per layer, several residual streams of which one is computed (AltUp, Baykal et al., 2023), and a
    low-rank path beside each layer's attention (LAuReL, Menghani et al., 2024)."""
    hidden, size = values.count("hidden_size"), values.count("hidden_size_per_layer_input", 256)
    streams, rank = values.count("altup_num_inputs", 4), values.count("laurel_rank", 64)
    inputs = _inputs(values, num_layers, hidden, size, 0)
    matrices = 2 * (streams - 1) * hidden * hidden
    matrices += num_layers * (2 * rank * hidden + streams * hidden + streams**2 + streams**3)
    scales = 0 if values.raw("altup_correct_scale") is False else hidden
    vectors = num_layers * (scales + 2 * hidden)
    return Extra(inputs.tables, inputs.matrices + matrices, inputs.vectors + vectors)


def hyper_connections(values: Values, num_layers: int) -> Extra:
    """DeepSeek V4: several residual streams, mixed by small matrices before attention and feed-forward and at the end.
    Its first layers choose experts by a table of tokens and have no bias for choosing them."""
    streams = values.count("hc_mult", 4)
    found = _connections(values, num_layers, streams * (2 + streams), 3)
    if values.raw("mlp_layer_types") is not None:
        hashed = sum(kind == "hash_moe" for kind in values.items("mlp_layer_types", num_layers))
    else:
        hashed = min(values.count("num_hash_layers", 3, least=0), num_layers)
    return Extra(0, found.matrices, found.vectors - hashed * values.count("n_routed_experts"))


def connections_of_predictions(values: Values, num: int) -> Extra:
    """DeepSeek V4's prediction layers mix streams as its layers do, each with an end of its own."""
    streams = values.count("hc_mult", 4)
    one = _connections(values, 1, streams * (2 + streams), 3)
    return Extra(0, num * one.matrices, num * one.vectors)


def simple_connections(values: Values, num_layers: int) -> Extra:
    """Hunyuan 4: the same with two numbers per stream."""
    return _connections(values, num_layers, 2 * values.count("hc_mult", 4), 2)


def _connections(values: Values, num_layers: int, mixes: int, scales: int) -> Extra:
    hidden, streams = values.count("hidden_size"), values.count("hc_mult", 4)
    matrices = num_layers * 2 * mixes * streams * hidden + streams * streams * hidden
    return Extra(0, matrices, num_layers * 2 * (mixes + scales) + streams + 1)


def attention_residuals(values: Values, num_layers: int) -> Extra:
    """Kimi K3: what attention over earlier blocks' results takes, a norm and a query each, before attention and
    feed-forward and at the end."""
    if not values.has("attn_res_block_size"):
        return Extra(0, 0, 0)
    return Extra(0, 0, (4 * num_layers + 2) * values.count("hidden_size"))


def rounded_size(values: Values) -> int:
    """LFM2: two thirds of the width that is said, times a factor, rounded up to a multiple."""
    size = values.count("intermediate_size")
    if values.raw("block_auto_adjust_ff_dim") is False:
        return size
    multiple = values.count("block_multiple_of", 256)
    size = int(values.factor("block_ffn_dim_multiplier", 1.0) * (2 * size // 3))
    return -(-size // multiple) * multiple


def shared_block(values: Values, num_layers: int) -> Extra:
    """Zamba: one block of attention and feed-forward over twice the width, which all its layers share. Zamba 2 has
    several, taken in turns, and narrow matrices of each layer's own beside them."""
    hidden, wide = values.count("hidden_size"), 2 * values.count("hidden_size")
    heads, groups = values.count("num_attention_heads"), values.count("num_key_value_heads")
    inner = values.count("intermediate_size")
    dim = values.count("head_dim")
    block = wide * (heads + 2 * groups) * dim + heads * dim * hidden + 3 * hidden * inner
    blocks = values.count("num_mem_blocks", 1)
    vectors = wide + hidden
    vectors += 2 * inner + hidden if values.flag("add_bias_linear") else 0
    return Extra(0, blocks * block, blocks * vectors)


def learned_scales(values: Values, num_layers: int) -> Extra:
    """Apertus: four numbers per layer of its activation (xIELU, Huang and Schlag, 2025)."""
    return Extra(0, 0, 4 * num_layers)


def positions(values: Values, num_layers: int) -> Extra:
    """GPT-2: a vector per position, learned."""
    return Extra(values.count("max_position_embeddings") * values.count("hidden_size"), 0, 0)


def positions_behind_two(values: Values, num_layers: int) -> Extra:
    """OPT: the same with two more, and where tokens have vectors of another width matrices to it and back."""
    hidden = values.count("hidden_size")
    narrow = values.count("word_embed_proj_dim", hidden)
    tables = (values.count("max_position_embeddings") + 2) * hidden
    if narrow == hidden:
        return Extra(tables, 0, 0)
    tables -= (hidden - narrow) * values.count("vocab_size")
    return Extra(tables, 2 * narrow * hidden, 0)


def prefix_size(values: Values) -> int:
    """Cohere 2 with experts: the width of the first layers, which have none."""
    return values.count("prefix_dense_intermediate_size", values.count("intermediate_size"))
