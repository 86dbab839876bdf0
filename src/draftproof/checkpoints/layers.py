"""What each layer of a model keeps per token or per request: the units that caches are made of.

Made by `geometry` from a configuration; read by the planner. Knows elements, not bytes: types and pages are an
engine's.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoints.architectures import Architecture
from draftproof.checkpoints.reading import Values

MAX_LAYERS = 1 << 12


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values per head; `window` is the number of tokens that are kept, None: all."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    @property
    def elements_per_token(self) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector and one rotary key per token, the same for all heads, and
    therefore kept whole by every rank of tensor parallelism."""

    rank: int
    rope_dim: int

    @property
    def elements_per_token(self) -> int:
        return self.rank + self.rope_dim


@dataclass(frozen=True, slots=True)
class RunningState:
    """Linear attention (gated delta net): a state and a short convolution's inputs per request, whatever its length."""

    state_elements: int
    conv_elements: int


@dataclass(frozen=True, slots=True)
class SharedCache:
    """A layer that reads what an earlier layer keeps."""


Layer = KeyValues | Latent | RunningState | SharedCache

_KINDS = {
    "full_attention": False, "sliding_attention": True, "chunked_attention": True, "linear_attention": None,
}  # fmt: skip


def read_layers(values: Values, shape: Architecture) -> tuple[Layer, ...]:
    """Every layer that keeps keys and values for the model's own pass (MTP layers are counted apart)."""
    num_layers = values.count("num_hidden_layers")
    if num_layers > MAX_LAYERS:
        raise values.fault("num_hidden_layers", num_layers, f"at most {MAX_LAYERS}")
    if shape.attention == "latent":
        latent = Latent(values.count("kv_lora_rank"), values.count("qk_rope_head_dim"))
        return (latent,) * num_layers
    heads = values.count("num_attention_heads")
    head_dim = read_head_dim(values)
    kv_heads = values.counts("num_key_value_heads", num_layers, default=heads)
    kinds = layer_kinds(values, shape, num_layers)
    window = values.count("sliding_window") if any(kinds) else None
    state = _running_state(values) if None in kinds else None
    return tuple(
        state if kind is None and state is not None
        else KeyValues(num, head_dim, head_dim, window if kind else None)
        for kind, num in zip(kinds, kv_heads, strict=True)
    )  # fmt: skip


def read_head_dim(values: Values) -> int:
    """As Transformers takes it: head_dim, else hidden_size divided by the heads."""
    if values.has("head_dim"):
        return values.count("head_dim")
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    if hidden < heads:
        raise values.fault("num_attention_heads", heads, f"at most the hidden size, {hidden}")
    return hidden // heads


def layer_kinds(values: Values, shape: Architecture, num_layers: int) -> list[bool | None]:
    """For each layer whether it sees a window only; None: it keeps a running state."""
    given = values.raw("layer_types")
    if shape.reads_layer_types and given is not None:
        if not isinstance(given, list) or len(given) < num_layers:
            raise values.fault("layer_types", given, f"{num_layers} kinds of layers")
        for kind in given[:num_layers]:
            if not isinstance(kind, str) or kind not in _KINDS:
                raise values.fault("layer_types", kind, ", ".join(_KINDS))
        return [_KINDS[kind] for kind in given[:num_layers]]
    if shape.linear_period is not None:
        period = values.count(shape.linear_period)
        return [False if (layer + 1) % period == 0 else None for layer in range(num_layers)]
    return list(_windowed(values, shape, num_layers))


def _windowed(values: Values, shape: Architecture, num_layers: int) -> list[bool]:
    everywhere = values.has("sliding_window")
    if shape.windows == "none" or not everywhere:
        return [False] * num_layers
    if shape.windows in ("switched", "late"):
        is_on = values.flag("use_sliding_window")
        first = values.count("max_window_layers", least=0) if shape.windows == "late" and is_on else 0
        return [is_on and layer >= first for layer in range(num_layers)]
    if shape.windows == "alternate":
        return [layer % 2 == 0 for layer in range(num_layers)]
    if shape.windows == "pattern":
        key = values.first("_sliding_window_pattern", "sliding_window_pattern") or "sliding_window_pattern"
        period = values.count(key)
        return [(layer + 1) % period != 0 for layer in range(num_layers)]
    return [True] * num_layers


def _running_state(values: Values) -> RunningState:
    """Gated delta net (Yang et al., 2024) as Qwen3-Next and Qwen3.5 have it: a key × value matrix per value head, and
    the last inputs of a convolution over queries, keys and values."""
    keys = values.count("linear_num_key_heads") * values.count("linear_key_head_dim")
    value_heads, value_dim = values.count("linear_num_value_heads"), values.count("linear_value_head_dim")
    width = values.count("linear_conv_kernel_dim")
    channels = 2 * keys + value_heads * value_dim
    return RunningState(value_heads * values.count("linear_key_head_dim") * value_dim, channels * (width - 1))
