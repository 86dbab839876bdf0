"""Which layer of a model is of which kind: what mixes tokens in it, and whether it has experts.

A row of `architectures` names one layout of each sort; `layers` and `parameters` ask it. Facts of configuration keys,
as the model code in Transformers 5.24 reads them; nothing of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from draftproof.checkpoints.reading import Values

Kind = Literal["full", "window", "state", "both", "none", "compressed", "sparse"]
"""full, window: attention over everything or a window. state: a running state. both: attention and a state side by
side. none: feed-forward alone. compressed: DeepSeek V4's attention. sparse: attention to blocks that an indexer
picks."""

Feed = Literal["dense", "experts", "none"]
Layout = Callable[[Values, int], list[Kind]]
FeedLayout = Callable[[Values, int], list[Feed]]

_KINDS: dict[str, Kind] = {
    "full_attention": "full", "attention": "full", "indexed_attention": "full", "sliding_attention": "window",
    "chunked_attention": "window", "linear_attention": "state", "mamba": "state", "conv": "state", "hybrid": "both",
    "mlp": "none", "moe": "none", "compressed_sparse_attention": "compressed",
    "heavily_compressed_attention": "compressed", "minimax_m3_sparse": "sparse",
}  # fmt: skip
_NEMOTRON = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


def full_attention(values: Values, num: int) -> list[Kind]:
    return ["full"] * num


def everywhere(kind: Kind) -> Layout:
    return lambda values, num: [kind] * num


def every(period: str, kind: Kind = "state") -> Layout:
    """Layers of `kind`, but full attention in every so many; where the key has no value, full attention alone."""

    def kinds(values: Values, num: int) -> list[Kind]:
        step = values.count(period) if values.has(period) else 1
        return ["full" if (layer + 1) % step == 0 else kind for layer in range(num)]

    return kinds


def after(period: str, offset: str) -> Layout:
    """Jamba: full attention in one layer of a period, at an offset."""

    def kinds(values: Values, num: int) -> list[Kind]:
        step, start = values.count(period), values.count(offset, least=0)
        return ["full" if layer % step == start else "state" for layer in range(num)]

    return kinds


def listed(key: str) -> Layout:
    """Full attention in the layers that a list names, a running state in all others."""

    def kinds(values: Values, num: int) -> list[Kind]:
        full = values.layers(key, num)
        return ["full" if layer in full else "state" for layer in range(num)]

    return kinds


def by_zeros(key: str) -> Layout:
    """MiniMax: a list of 1 (attention) and 0 (running state); where there is none, they alternate."""

    def kinds(values: Values, num: int) -> list[Kind]:
        if values.raw(key) is None:
            return ["full" if layer % 2 == 0 else "state" for layer in range(num)]
        return ["full" if item else "state" for item in values.items(key, num)]

    return kinds


def kimi(values: Values, num: int) -> list[Kind]:
    """Kimi Linear: `linear_attn_config` numbers the layers with attention from 1."""
    told = values.raw("linear_attn_config")
    if not isinstance(told, dict):
        raise values.fault("linear_attn_config", told, "the numbers of layers with attention")
    full = values.changed(told).layers("full_attn_layers", num, first=1)
    return ["full" if layer + 1 in full else "state" for layer in range(num)]


def nemotron(values: Values, num: int) -> list[Kind]:
    """One letter per layer: M (Mamba), * (attention), - (feed-forward), E (experts)."""
    return [_KINDS[word] for word in nemotron_words(values, "hybrid_override_pattern", num)]


def nemotron_words(values: Values, key: str, num: int) -> list[str]:
    pattern = values.raw(key)
    if not isinstance(pattern, str) or len(pattern) < num or not set(pattern) <= set(_NEMOTRON):
        raise values.fault(key, pattern, f"a letter of {''.join(_NEMOTRON)} for each of {num} layers")
    return [_NEMOTRON[letter] for letter in pattern[:num]]


def chunks(values: Values, num: int) -> list[Kind]:
    """Llama 4: `no_rope_layers` has 0 for layers that see everything, else every nth does."""
    if not values.has("attention_chunk_size"):
        return ["full"] * num
    if values.raw("no_rope_layers"):
        return ["window" if item else "full" for item in values.items("no_rope_layers", num)]
    return every("no_rope_layer_interval", "window")(values, num)


def first_of_four(values: Values, num: int) -> list[Kind]:
    """Granite with windows: the first of four layers sees everything."""
    return ["full" if layer % 4 == 0 else "window" for layer in range(num)]


def convolutions(values: Values, num: int) -> list[Kind]:
    """LFM2: attention in the layers of `full_attn_idxs`, where it is said; else everywhere."""
    if values.raw("full_attn_idxs") is None:
        return ["full"] * num
    return listed("full_attn_idxs")(values, num)


def sparse_by_frequency(values: Values, num: int) -> list[Kind]:
    """MiniMax M3: `sparse_attention_config` has a list of 1 for layers with an indexer."""
    told = values.raw("sparse_attention_config")
    if not isinstance(told, dict) or "sparse_attention_freq" not in told:
        return ["full"] * num
    found = values.changed(told).items("sparse_attention_freq", num)
    return ["sparse" if item else "full" for item in found]


def hybrid_pattern(values: Values, num: int) -> list[Kind]:
    """MiMo V2: a list of 1 for windows."""
    return ["window" if item else "full" for item in values.items("hybrid_layer_pattern", num)]


def ratios(values: Values, num: int) -> list[Kind]:
    """DeepSeek V4: `compress_ratios`, 0 for a window alone; where there is none, compression in every layer."""
    if values.raw("compress_ratios") is None:
        return ["compressed"] * num
    return ["compressed" if item else "window" for item in values.items("compress_ratios", num)]


def windows(values: Values, num: int) -> list[Kind]:
    """A window wherever sliding_window is set."""
    return ["window" if values.has("sliding_window") else "full"] * num


def switched_windows(values: Values, num: int) -> list[Kind]:
    """The same with use_sliding_window."""
    return windows(values, num) if values.flag("use_sliding_window") else ["full"] * num


def late_windows(values: Values, num: int) -> list[Kind]:
    """The same from max_window_layers on."""
    if not values.has("sliding_window") or not values.flag("use_sliding_window"):
        return ["full"] * num
    first = values.count("max_window_layers", least=0)
    return ["window" if layer >= first else "full" for layer in range(num)]


def even_windows(values: Values, num: int) -> list[Kind]:
    on = values.has("sliding_window")
    return ["window" if on and layer % 2 == 0 else "full" for layer in range(num)]


def window_pattern(values: Values, num: int) -> list[Kind]:
    """A window in all but every nth layer."""
    key = values.first("_sliding_window_pattern", "sliding_window_pattern") or "sliding_window_pattern"
    return every(key, "window")(values, num) if values.has("sliding_window") else ["full"] * num


def repeated(key: str, words: Mapping[str, Kind]) -> Layout:
    """RecurrentGemma: a list of words that begins again."""

    def kinds(values: Values, num: int) -> list[Kind]:
        told = values.raw(key)
        if not isinstance(told, list | tuple) or not told or not all(word in words for word in told):
            raise values.fault(key, told, f"a list of {', '.join(words)}")
        return [words[told[layer % len(told)]] for layer in range(num)]

    return kinds


def _block_parts(values: Values, num: int, part: str) -> list[Mapping[str, Any]]:
    """Nemotron NAS: `block_configs` says of each layer's attention and feed-forward what they are."""
    blocks = values.items("block_configs", num)
    found = [block.get(part) if isinstance(block, dict) else None for block in blocks]
    if not all(isinstance(each, dict) for each in found):
        raise values.fault("block_configs", "a layer without it", f"{part} of each layer")
    return [each for each in found if isinstance(each, dict)]


def _is_left_out(part: Mapping[str, Any]) -> bool:
    return part.get("no_op") is True or part.get("replace_with_linear") is True


def blocks_attention(values: Values, num: int) -> list[Kind]:
    return ["none" if _is_left_out(part) else "full" for part in _block_parts(values, num, "attention")]


def blocks_feed(values: Values, num: int) -> list[Feed]:
    return ["none" if _is_left_out(part) else "dense" for part in _block_parts(values, num, "ffn")]


def kinds_by_types(values: Values, num: int) -> list[Kind]:
    """`layer_types`, or `layers_block_type`, as files say it."""
    key = values.first("layer_types", "layers_block_type") or "layer_types"
    found = []
    for word in values.items(key, num):
        if not isinstance(word, str) or word not in _KINDS:
            raise values.fault(key, word, ", ".join(_KINDS))
        found.append(_KINDS[word])
    return found


def _feed(sparse: list[bool]) -> list[Feed]:
    return ["experts" if is_sparse else "dense" for is_sparse in sparse]


def all_experts(values: Values, num: int) -> list[Feed]:
    return ["experts"] * num


def no_feed(values: Values, num: int) -> list[Feed]:
    return ["none"] * num


def first_dense(values: Values, num: int) -> list[Feed]:
    """`mlp_layer_types`, else dense for the first `first_k_dense_replace` layers."""
    if values.raw("mlp_layer_types") is not None:
        return _feed([kind != "dense" for kind in values.items("mlp_layer_types", num)])
    first = values.count("first_k_dense_replace", default=0, least=0)
    return _feed([layer >= first for layer in range(num)])


def by_steps(values: Values, num: int) -> list[Feed]:
    dense, step = values.layers("mlp_only_layers", num), values.count("decoder_sparse_step", default=1)
    return _feed([layer not in dense and (layer + 1) % step == 0 for layer in range(num)])


def in_span(values: Values, num: int) -> list[Feed]:
    first = values.count("moe_layer_start_index", least=0)
    last = values.count("moe_layer_end_index", num - 1)
    step = values.count("moe_layer_interval", default=1)
    return _feed([first <= layer <= last and (layer + 1) % step == 0 for layer in range(num)])


def interleaved(values: Values, num: int) -> list[Feed]:
    """Llama 4: the layers of `moe_layers`, else every nth."""
    if values.raw("moe_layers") is not None:
        experts = values.layers("moe_layers", num)
        return _feed([layer in experts for layer in range(num)])
    step = values.count("interleave_moe_layer_step")
    return _feed([(layer + 1) % step == 0 for layer in range(num)])


def every_other(values: Values, num: int) -> list[Feed]:
    """LongCat: of two layers the first has experts beside its dense feed-forward."""
    return _feed([layer % 2 == 0 for layer in range(num)])


def at_offset(values: Values, num: int) -> list[Feed]:
    """Jamba: one layer of a period."""
    step, start = values.count("expert_layer_period"), values.count("expert_layer_offset", least=0)
    return _feed([layer % step == start for layer in range(num)])


def by_frequency(values: Values, num: int) -> list[Feed]:
    """`mlp_layer_types`, else a list of 1 for layers with experts."""
    if values.raw("mlp_layer_types") is None and values.raw("moe_layer_freq") is not None:
        return _feed([bool(item) for item in values.items("moe_layer_freq", num)])
    return first_dense(values, num)


def enumerated(values: Values, num: int) -> list[Feed]:
    """Step 3: `mlp_layer_types`, else the numbers of layers with experts, as a list or in a string; else all from a
    first one (3.5: the fourth) on."""
    if values.raw("mlp_layer_types") is not None:
        return first_dense(values, num)
    if values.raw("moe_layers_enum") is None:
        first = values.count("first_expert_layer", 3)
        return _feed([layer >= first for layer in range(num)])
    experts = values.layers("moe_layers_enum", num)
    return _feed([layer in experts for layer in range(num)])


def nemotron_feed(values: Values, num: int) -> list[Feed]:
    if values.first("layer_types", "layers_block_type") is not None:
        words = values.items(values.first("layer_types", "layers_block_type") or "", num)
    else:
        words = nemotron_words(values, "hybrid_override_pattern", num)
    feeds: dict[str, Feed] = {"mlp": "dense", "moe": "experts"}
    return [feeds.get(str(word), "none") for word in words]
