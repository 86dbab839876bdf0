"""GGUF models with layers of several kinds: which layer is of which, and their sizes, under Transformers' names.

Called by `naming`. Metadata of such files leave out what llama.cpp's code takes for granted; the tensors' names and
shapes tell it. Read from llama.cpp's converter and models at build 11434.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.checkpoints.view import TensorInfo

READ = frozenset({
    "llama4", "granitehybrid", "jamba", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "falcon-h1", "mamba",
    "mamba2", "gemma3n", "gemma4", "deci", "rwkv6", "rwkv7", "arwkv7",
})  # fmt: skip
"""Architectures, as general.architecture names them."""
_ONE_WIDTH = ("llama4", "granitehybrid", "jamba")
"""Those whose experts are as wide as intermediate_size says."""
_NAME = re.compile(r"blk\.(\d{1,9})\.([a-z0-9_.]+?)(?:\.(weight|bias))?")
_ATTENTION = ("attn_k", "attn_qkv", "attn_kv_a_mqa", "attn_q")
_CHUNK = 8192
_CHUNK_PERIOD = 4
"""Of Llama 4: tokens that a layer sees, and which layers see everything."""
_MAX_LAYERS = 1 << 12

Tensors = Mapping[str, TensorInfo]


def layer_keys(architecture: str, own: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """What metadata and tensors say of the layers. `own`: metadata without the architecture's name. A size
    that is not said is left out, so that who needs it says so; nothing at all where a layer has no tensors."""
    num = own.get("block_count")
    if type(num) is not int or not 0 < num <= _MAX_LAYERS:
        return {}
    if architecture not in READ:
        return _windows_alone(own, num)
    layers = _by_layer(tensors, num)
    if not all(layers):
        return {}
    kinds = [_kind(layer) for layer in layers]
    found = _widths(architecture, layers) | _of_gemma(architecture, own, tensors, layers)
    found["feed_types"] = [_feed(layer) for layer in layers]
    found["layer_types"] = _with_windows(architecture, own, kinds, found)
    if any(kind in ("attention", "hybrid") for kind in kinds):
        found |= _heads(own, layers)
    if architecture == "deci":
        found["block_configs"] = _blocks(own, layers, found)
    return {key: value for key, value in found.items() if value is not None} | _states(own, layers)


def _windows_alone(own: Mapping[str, Any], num: int) -> dict[str, Any]:
    """Of models that have attention in every layer: which has a window, as a list or every how many has none."""
    pattern = own.get("attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) >= num:
        return {
            "layer_types": ["sliding_attention" if has_window else "full_attention" for has_window in pattern]
        }
    return {"sliding_window_pattern": pattern} if type(pattern) is int else {}


Layer = Mapping[str, tuple[int, ...]]
"""Tensors of one layer, by their short names; biases with `.bias`."""


def _by_layer(tensors: Tensors, num: int) -> Sequence[Layer]:
    found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(num)]
    for name, info in tensors.items():
        match = _NAME.fullmatch(name)
        if match is not None and int(match[1]) < num:
            found[int(match[1])][match[2] + (".bias" if match[3] == "bias" else "")] = info.shape
    return found


def _kind(layer: Layer) -> str:
    attends = any(name in layer for name in _ATTENTION)
    if "shortconv.conv" in layer:
        return "conv"
    if any(name.startswith(("ssm_", "time_mix_")) for name in layer):
        return "hybrid" if attends else "mamba"
    if attends:
        return "attention"
    return "moe" if _feed(layer) == "experts" else "mlp"


def _feed(layer: Layer) -> str:
    if "ffn_up_exps" in layer or "ffn_gate_up_exps" in layer:
        return "experts"
    return "dense" if "ffn_up" in layer or "channel_mix_key" in layer else "none"


def _widest(layers: Sequence[Layer], name: str, place: int = 0) -> int | None:
    return max((layer[name][place] for layer in layers if len(layer.get(name, ())) > place), default=None)


def _widths(architecture: str, layers: Sequence[Layer]) -> dict[str, Any]:
    """Of feed-forwards, routed and shared experts."""
    dense = _widest(layers, "ffn_up") or _widest(layers, "channel_mix_key")
    joined = _widest(layers, "ffn_gate_up_exps", 1)
    expert = _widest(layers, "ffn_up_exps", 1) or (joined // 2 if joined else None)
    shared = _widest(layers, "ffn_up_shexp")
    return {
        "intermediate_size": (expert or dense) if architecture in _ONE_WIDTH else (dense or expert),
        "intermediate_size_mlp": dense,
        "moe_intermediate_size": expert,
        "shared_intermediate_size": shared or dense,
        "moe_shared_expert_intermediate_size": shared,
        "block_auto_adjust_ff_dim": False,
    }


def _states(own: Mapping[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """Of state space models, short convolutions and RWKV. What is not said is null here, so that no default counts."""
    inner, rank = own.get("ssm.inner_size"), own.get("ssm.time_step_rank")
    is_first = any("ssm_x" in layer for layer in layers)
    found = {
        "conv_L_cache": own.get("shortconv.l_cache"),
        "mamba_d_conv": own.get("ssm.conv_kernel"),
        "mamba_d_state": own.get("ssm.state_size"),
        "mamba_n_groups": own.get("ssm.group_count"),
        "mamba_intermediate_size": inner,
        "mamba_d_ssm": inner,
        "mamba_dt_rank": rank if is_first else None,
        "mamba_n_heads": None if is_first else rank,
        "mamba_conv_bias": any("ssm_conv1d.bias" in layer for layer in layers),
        "mamba_rms_norm": any("ssm_norm" in layer for layer in layers),
        "wkv_head_size": own.get("wkv.head_size"),
        "token_shift_count": own.get("token_shift_count"),
    }
    if not is_first and type(inner) is int and type(rank) is int and rank > 0:
        found["mamba_d_head"] = inner // rank
    return found


def _of_gemma(
    architecture: str, own: Mapping[str, Any], tensors: Tensors, layers: Sequence[Layer]
) -> dict[str, Any]:
    """Of Gemma 3n and 4: inputs per layer, shared caches, heads of two lengths."""
    if architecture not in ("gemma3n", "gemma4"):
        return {}
    table = tensors.get("per_layer_token_embd.weight")
    found = {
        "sliding_window": own.get("attention.sliding_window", 0),
        "num_kv_shared_layers": own.get("attention.shared_kv_layers", 0),
        "hidden_size_per_layer_input": own.get("embedding_length_per_layer_input", 0),
        "vocab_size_per_layer_input": table.shape[0] if table is not None else None,
        "altup_num_inputs": own.get("altup.num_inputs"),
        "laurel_rank": _widest(layers, "laurel_l"),
    }
    if architecture == "gemma4":
        found["head_dim"] = own.get("attention.key_length_swa", own.get("attention.key_length"))
        found["global_head_dim"] = own.get("attention.key_length")
        found["attention_k_eq_v"] = any("attn_k" in layer and "attn_v" not in layer for layer in layers)
    return found


def _with_windows(
    architecture: str, own: Mapping[str, Any], kinds: list[str], found: dict[str, Any]
) -> list[str]:
    """Kinds of layers, with those that see a window alone named so."""
    pattern = own.get("attention.sliding_window_pattern")
    word = "sliding_attention"
    if architecture == "llama4":
        if own.get("attention.sliding_window") == 0:
            return kinds
        found["attention_chunk_size"], word = _CHUNK, "chunked_attention"
        if pattern is None:
            pattern = [(layer + 1) % _CHUNK_PERIOD != 0 for layer in range(len(kinds))]
    if not isinstance(pattern, list) or len(pattern) < len(kinds):
        return kinds
    return [
        word if has_window and kind == "attention" else kind
        for kind, has_window in zip(kinds, pattern, strict=False)
    ]


def _heads(own: Mapping[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """Heads, and heads of keys in each layer: as said, else by the rows of their matrix."""
    said, heads = own.get("attention.head_count_kv"), own.get("attention.head_count")
    groups, length = [], own.get("attention.key_length")
    if isinstance(heads, list):
        heads = max((num for num in heads if type(num) is int), default=None)
    hidden = own.get("embedding_length")
    if length is None and type(hidden) is int and type(heads) is int and heads > 0:
        length = hidden // heads
    for index, layer in enumerate(layers):
        own_groups = said[index] if isinstance(said, list) and index < len(said) else said
        rows = layer.get("attn_k", ())
        if not own_groups and rows and type(length) is int and length > 0:
            own_groups = rows[0] // length
        groups.append(own_groups or 1)
    return {"num_attention_heads": heads, "num_key_value_heads": groups}


def _blocks(
    own: Mapping[str, Any], layers: Sequence[Layer], found: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Nemotron NAS, as its configuration says it."""
    heads, groups = found.get("num_attention_heads"), found.get("num_key_value_heads", [])
    blocks: list[dict[str, Any]] = []
    for index, layer in enumerate(layers):
        block: dict[str, dict[str, Any]] = defaultdict(dict)
        if any(name in layer for name in _ATTENTION) and type(heads) is int:
            block["attention"]["n_heads_in_group"] = max(1, heads // groups[index])
        else:
            block["attention"]["replace_with_linear" if "attn_output" in layer else "no_op"] = True
        if layer.get("ffn_up"):
            block["ffn"]["intermediate_size"] = layer["ffn_up"][0]
        else:
            block["ffn"]["no_op"] = True
        blocks.append(dict(block))
    return blocks
