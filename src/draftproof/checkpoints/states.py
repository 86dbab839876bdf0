"""Layers that keep a running state in place of keys and values: what they keep per request, and what they weigh.

One function per kind, named by the rows of `architectures`. Shapes follow the model code in Transformers 5.24; a
convolution keeps one input less than it is wide, as vLLM 0.33 and SGLang 0.5 hold it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from draftproof.checkpoints.reading import Values


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a request keeps in one layer, whatever its length.

    kind             by name
    ssm_dtype, ssm_cache_dtype   what `mamba_ssm_dtype` and `mamba_ssm_cache_dtype` say of the state proper's type:
                     each engine reads the one, the other or neither
    state_elements   of the state proper; 0 for a convolution alone
    conv_elements    of the last inputs of a short convolution
    conv_width       channels of that convolution: with `k` drafts an engine keeps `k` inputs more
    row_elements     of one row between the layer's projections, while a pass runs
    num_groups       groups of heads that share inputs (Mamba-2's B and C), `group_width` channels each
    has_bounded_gate   KDA's decay has a lower bound
    """

    state_elements: int
    conv_elements: int
    conv_width: int = 0
    row_elements: int = 0
    kind: Literal["delta_net", "kda", "mamba", "mamba2", "lightning", "convolution", "rglru", "wkv"] = (
        "delta_net"
    )
    ssm_dtype: str | None = None
    ssm_cache_dtype: str | None = None
    num_groups: int = 0
    group_width: int = 0
    has_bounded_gate: bool = False

    def on_each(self, num_devices: int) -> RunningState:
        """The part of one of `num_devices`. Heads and channels are divided; groups too where that comes out even, else
        each device has one of its own."""
        if num_devices == 1:
            return self
        groups = self.num_groups if self.num_groups % num_devices == 0 else num_devices
        channels = self.conv_width + (groups - self.num_groups) * self.group_width
        inputs = self.conv_elements // self.conv_width * channels if self.conv_width else self.conv_elements
        return replace(
            self,
            state_elements=-(-self.state_elements // num_devices),
            conv_elements=-(-inputs // num_devices),
            conv_width=-(-channels // num_devices),
        )


_FAMILIES = frozenset({
    "arwkv7", "bailinghybrid", "bailingmoe3", "bailingmoev25", "bailingmoev3", "bamba", "falconh1", "falconmamba",
    "gatedslotattention", "glm5next", "granitehybrid", "granitemoehybrid", "jamba", "kimik3", "kimilinear", "lfm2",
    "lfm2moe", "mamba", "mamba2", "minimax", "minimax01", "minimaxm1", "minimaxtext01", "nemotronh", "nemotronhmoe",
    "olmohybrid", "plamo2", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "recurrentgemma", "rwkv", "rwkv4", "rwkv5",
    "rwkv6", "rwkv6qwen2", "rwkv7", "xlstm", "zamba", "zamba2",
})  # fmt: skip
"""Letters and digits of the names of families with running states, in Transformers, vLLM 0.33 and llama.cpp 11434."""
_ENDINGS = re.compile(r"(?i)(forcausallm|forconditionalgeneration|lmheadmodel|model|_text)$")


def keeps_state(name: str) -> bool:
    """Whether a model_type, an architecture or the architecture of a GGUF file is of a family whose layers keep a
    running state in place of (all) keys and values."""
    return re.sub(r"[^a-z0-9]", "", _ENDINGS.sub("", name).lower()) in _FAMILIES


_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def dtype_bytes(name: str | None) -> int | None:
    """Per element of a type by name; None: not said, or not known."""
    return None if name is None else _BYTES.get(name)


@dataclass(frozen=True, slots=True)
class StateLayer:
    """`keeps`, and elements of matrices and of vectors (convolutions among them)."""

    keeps: RunningState
    matrices: int
    vectors: int


StateKind = Callable[[Values], StateLayer]


Kind = Literal["delta_net", "kda", "mamba", "mamba2", "convolution", "rglru"]


def _kept(values: Values, kind: Kind, state: int, channels: int, width: int, row: int) -> RunningState:
    return RunningState(
        state,
        channels * (width - 1),
        channels,
        row,
        kind,
        ssm_dtype=_word(values, "mamba_ssm_dtype"),
        ssm_cache_dtype=_word(values, "mamba_ssm_cache_dtype"),
    )


def _word(values: Values, key: str) -> str | None:
    said = values.raw(key)
    return said if isinstance(said, str) else None


def delta_net(values: Values) -> StateLayer:
    """Gated delta net (Yang et al., 2024) as Qwen3-Next, Qwen3.5 and OLMo hybrid have it: a key × value matrix per
    value head, and a convolution over queries, keys and values."""
    hidden = values.count("hidden_size")
    key_dim, value_dim = values.count("linear_key_head_dim"), values.count("linear_value_head_dim")
    value_heads, width = values.count("linear_num_value_heads"), values.count("linear_conv_kernel_dim")
    keys, vals = values.count("linear_num_key_heads") * key_dim, value_heads * value_dim
    channels = 2 * keys + vals
    row = channels + vals + 2 * value_heads
    return StateLayer(
        _kept(values, "delta_net", value_heads * key_dim * value_dim, channels, width, row),
        hidden * row + vals * hidden,
        channels * width + 2 * value_heads + value_dim,
    )


def kimi_delta(values: Values) -> StateLayer:
    """Kimi Delta Attention (Kimi Team, 2025): decay and output gate per channel, each through a narrow matrix; Kimi K3
    has a whole one for the gate."""
    told = values.raw("linear_attn_config")
    is_whole = isinstance(told, dict) and told.get("use_full_rank_gate") is True
    return _kda(values, num_whole=1 if is_whole else 0)


def bailing_delta(values: Values) -> StateLayer:
    """The same in Ling's hybrid, with whole matrices for decay and gate."""
    return _kda(values, num_whole=2)


def _kda(values: Values, num_whole: int) -> StateLayer:
    told = values.raw("linear_attn_config")
    values = values.changed(told) if isinstance(told, dict) else values
    hidden, heads = values.count("hidden_size"), values.count(_key(values, "linear_num_heads", "num_heads"))
    dim = values.count(_key(values, "linear_head_dim", "head_dim"))
    width = values.count(_key(values, "linear_conv_kernel_dim", "short_conv_kernel_size"))
    whole = heads * dim
    gates = num_whole * hidden * whole + (2 - num_whole) * (hidden * dim + dim * whole)
    kept = _kept(values, "kda", heads * dim * dim, 3 * whole, width, 5 * whole + heads)
    return StateLayer(
        replace(kept, has_bounded_gate=values.has("gate_lower_bound")),
        4 * hidden * whole + gates + hidden * heads,
        3 * whole * width + heads + whole + dim,
    )


def _key(values: Values, *keys: str) -> str:
    return values.first(*keys) or keys[0]


def mamba(values: Values) -> StateLayer:
    """Mamba (Gu and Dao, 2023), as Falcon has it too: norms without weights."""
    return _mamba(values, num_norms=0)


def jamba_mamba(values: Values) -> StateLayer:
    """Jamba's, with norms of step, input and output."""
    return _mamba(values, num_norms=1)


def _mamba(values: Values, num_norms: int) -> StateLayer:
    hidden, state = values.count("hidden_size"), values.count("mamba_d_state")
    if values.has("mamba_intermediate_size"):
        inner = values.count("mamba_intermediate_size")
    else:
        inner = values.count("mamba_expand") * hidden
    width, told = values.count("mamba_d_conv"), values.raw("mamba_dt_rank")
    rank = -(-hidden // 16) if told == "auto" else values.count("mamba_dt_rank")
    matrices = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    vectors = inner * state + inner + inner * width + inner + num_norms * (rank + 2 * state)
    vectors += inner if values.flag("mamba_conv_bias") else 0
    vectors += 2 * inner + hidden if values.flag("mamba_proj_bias") else 0
    return StateLayer(_kept(values, "mamba", inner * state, inner, width, 2 * inner), matrices, vectors)


def mamba2(values: Values) -> StateLayer:
    """Mamba-2 (Dao and Gu, 2024): one decay per head, and a norm behind the gate unless `mamba_rms_norm` is false."""
    hidden, heads, state = (
        values.count("hidden_size"),
        values.count("mamba_n_heads"),
        values.count("mamba_d_state"),
    )
    if values.raw("mamba_d_head") == "auto" or not values.has("mamba_d_head"):
        inner = _mamba2_inner(values, hidden)
    else:
        inner = heads * values.count("mamba_d_head")
    width, groups = values.count("mamba_d_conv"), values.count("mamba_n_groups")
    channels = inner + 2 * groups * state
    row = inner + channels + heads
    vectors = channels * width + 3 * heads
    vectors += inner if values.flag("mamba_rms_norm") else 0
    vectors += channels if values.flag("mamba_conv_bias") else 0
    vectors += row + hidden if values.flag("mamba_proj_bias") else 0
    kept = _kept(values, "mamba2", inner * state, channels, width, row)
    return StateLayer(
        replace(kept, num_groups=groups, group_width=2 * state), hidden * row + inner * hidden, vectors
    )


def _mamba2_inner(values: Values, hidden: int) -> int:
    return values.count("mamba_d_ssm") if values.has("mamba_d_ssm") else values.count("mamba_expand") * hidden


def lightning(values: Values) -> StateLayer:
    """Lightning attention (Qin et al., 2024) as MiniMax has it: no convolution."""
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    dim = values.count("head_dim") if values.has("head_dim") else hidden // heads
    whole = heads * dim
    return StateLayer(
        RunningState(heads * dim * dim, 0, 0, 4 * whole, "lightning"), 5 * hidden * whole, whole
    )


def short_convolution(values: Values) -> StateLayer:
    """LFM2: a gated short convolution; no state besides its inputs."""
    hidden, width = values.count("hidden_size"), values.count("conv_L_cache")
    bias = 5 * hidden if values.flag("conv_bias") else 0
    return StateLayer(
        _kept(values, "convolution", 0, hidden, width, 3 * hidden), 4 * hidden * hidden, hidden * width + bias
    )


def rglru(values: Values) -> StateLayer:
    """Real-gated linear recurrent unit (De et al., 2024) as RecurrentGemma has it: gates block by block of a head."""
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    wide, width = values.count("lru_width", hidden), values.count("conv1d_width", 4)
    gates = 2 * heads * (wide // heads) ** 2
    vectors = (wide * width + wide) + 2 * wide + hidden + 3 * wide
    return StateLayer(_kept(values, "rglru", wide, wide, width, 2 * wide), 3 * hidden * wide + gates, vectors)


def wkv(values: Values) -> StateLayer:
    """RWKV 6 and 7 (Peng et al., 2024 and 2025) as llama.cpp keeps them: a square matrix per head, and the last inputs
    of its two halves. What a layer weighs is not counted here."""
    hidden, size = values.count("hidden_size"), values.count("wkv_head_size")
    shifted = values.count("token_shift_count") * hidden
    return StateLayer(RunningState(hidden * size, shifted, 0, 4 * hidden, "wkv"), 0, 0)
