"""What each layer of a model keeps per token or per request: the units that caches are made of.

Made by `geometry` from a configuration; read by the planner. Knows elements, not bytes: types and pages are an
engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.checkpoints.architecture import Architecture
from draftproof.checkpoints.layouts import Kind, kinds_by_types
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.states import RunningState

MAX_LAYERS = 1 << 12


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values per head; `window` is the number of tokens that are kept, None: all. `index_dim`: length of one
    more key per token, by which an indexer picks blocks."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    index_dim: int = 0

    @property
    def elements_per_token(self) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim) + self.index_dim


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector and one rotary key per token, the same for all heads, and
    therefore kept whole by every rank of tensor parallelism. `index_dim`: length of the key of DeepSeek V3.2's indexer;
    0: no indexer."""

    rank: int
    rope_dim: int
    index_dim: int = 0

    @property
    def elements_per_token(self) -> int:
        return self.rank + self.rope_dim + self.index_dim


@dataclass(frozen=True, slots=True)
class Compressed:
    """DeepSeek V4: one vector per token in a window (key and value at once), one more per `rate` tokens over the whole
    context, and by it the key of an indexer where `index_dim` is not 0."""

    key_dim: int
    window: int
    rate: int
    index_dim: int

    @property
    def elements_per_token(self) -> float:
        """Of a long request, beside the window."""
        return (self.key_dim + self.index_dim) / self.rate


@dataclass(frozen=True, slots=True)
class Paired:
    """Attention and a running state side by side in one layer (Falcon-H1)."""

    attention: KeyValues
    state: RunningState

    @property
    def elements_per_token(self) -> int:
        return self.attention.elements_per_token


@dataclass(frozen=True, slots=True)
class SharedCache:
    """A layer that reads what an earlier layer keeps; its queries are `key_dim` long."""

    key_dim: int


@dataclass(frozen=True, slots=True)
class NoCache:
    """A layer of feed-forward alone."""


Layer = KeyValues | Latent | Compressed | RunningState | Paired | SharedCache | NoCache


def attention_of(layer: Layer) -> KeyValues | Latent | Compressed | None:
    """What a layer keeps of attention; None where it keeps none."""
    own = layer.attention if isinstance(layer, Paired) else layer
    return own if isinstance(own, KeyValues | Latent | Compressed) else None


def state_of(layer: Layer) -> RunningState | None:
    """The running state that a layer keeps; None where it keeps none."""
    own = layer.state if isinstance(layer, Paired) else layer
    return own if isinstance(own, RunningState) else None


def count_layers(values: Values) -> int:
    """`num_hidden_layers`, or as many as `layers_block_type` has words (Nemotron-H as Transformers 5 writes it)."""
    words = values.raw("layers_block_type")
    found = len(words) if isinstance(words, list) and not values.has("num_hidden_layers") else None
    num = values.count("num_hidden_layers", found)
    if num > MAX_LAYERS:
        raise values.fault("num_hidden_layers", num, f"at most {MAX_LAYERS}")
    return num


def layer_kinds(values: Values, shape: Architecture, num_layers: int) -> list[Kind]:
    """What mixes tokens in each layer."""
    if shape.reads_layer_types and values.first("layer_types", "layers_block_type") is not None:
        return kinds_by_types(values, num_layers)
    return shape.layout(values, num_layers)


_PER_LAYER = (
    "num_attention_heads", "num_key_value_heads", "intermediate_size", "moe_intermediate_size", "num_experts",
    "num_experts_per_tok", "indexer_types", "compress_ratios", "layer_types",
    "block_configs",
)  # fmt: skip
"""Keys that may have a list with something for each layer."""


def layer_values(values: Values, shape: Architecture, kinds: Sequence[Kind]) -> list[Values]:
    """The configuration as it holds in each layer: items of lists, keys of the layer's kind, and what
    `per_layer_config` (Transformers 5) changes."""
    lists = {key: values.items(key, len(kinds)) for key in _PER_LAYER if isinstance(values.raw(key), list)}
    changes = _changes(values)
    found = []
    for layer, kind in enumerate(kinds):
        here = {key: items[layer] for key, items in lists.items()}
        keys = {"window": shape.window_keys, "full": shape.full_keys}.get(kind, {})
        here |= {key: values.raw(instead) for key, instead in keys.items() if values.has(instead)}
        found.append(values.changed(here | changes.get(layer, {})))
    return found


def _indexers(values: Values, num_layers: int) -> dict[str, list[str]]:
    """`indexer_types` where a file says it otherwise: a letter per layer, or how often a layer has an indexer, from an
    offset on (GLM-5; those between take an earlier one's choice)."""
    if values.raw("indexer_types") is not None:
        return {}
    pattern = values.raw("index_topk_pattern")
    if isinstance(pattern, str) and len(pattern) >= num_layers:
        return {"indexer_types": ["shared" if letter == "S" else "full" for letter in pattern[:num_layers]]}
    every = values.count("index_topk_freq", 1)
    offset = values.count("index_skip_topk_offset", 2, least=0)
    shared = [max(layer - offset + 1, 0) % every != 0 for layer in range(num_layers)]
    return {"indexer_types": ["shared" if is_shared else "full" for is_shared in shared]}


def _changes(values: Values) -> dict[int, dict[str, Any]]:
    """`per_layer_config`, by the number of the layer, which files may write with zeros in front."""
    told = values.raw("per_layer_config")
    if not isinstance(told, dict):
        return {}
    return {
        int(number): said
        for number, said in told.items()
        if isinstance(said, dict) and str(number).isdecimal() and len(str(number)) < 6
    }


def read_layers(values: Values, shape: Architecture) -> tuple[Layer, ...]:
    """Every layer for the model's own pass (MTP layers are counted apart)."""
    num_layers = count_layers(values) * shape.sublayers
    kinds = layer_kinds(values, shape, num_layers)
    shared = values.count(shape.shared_layers, 0, least=0) if shape.shared_layers else 0
    found: list[Layer] = []
    for layer, own in enumerate(layer_values(values, shape, kinds)):
        if layer >= num_layers - shared:
            found.append(SharedCache(read_head_dim(own)))
        else:
            found.append(_layer(own, shape, kinds[layer]))
    return tuple(found)


_TAILED = ("layer_types", "compress_ratios", "hybrid_layer_pattern")
"""Lists that some files continue behind the last layer, for prediction layers."""


def prediction_layers(
    values: Values, shape: Architecture, num_layers: int, num: int
) -> list[tuple[Values, Layer]]:
    """Prediction layers with their configuration, where a list of layers goes on behind the last; else nothing."""
    total = num_layers + num
    tails = [values.raw(key) for key in _TAILED if isinstance(values.raw(key), list)]
    if not num or not tails or any(len(tail) < total for tail in tails):
        return []
    kinds = layer_kinds(values, shape, total)
    longer = values.changed(
        {
            key: None
            for key in _PER_LAYER
            if isinstance(values.raw(key), list) and len(values.raw(key)) < total
        }
    )
    own = layer_values(longer, shape, kinds)[num_layers:]
    return [(here, _layer(here, shape, kind)) for here, kind in zip(own, kinds[num_layers:], strict=True)]


def _layer(values: Values, shape: Architecture, kind: Kind) -> Layer:
    if kind == "none":
        return NoCache()
    if kind in ("state", "both") and shape.state is None:
        raise values.fault(
            "layer_types", kind, "layers with attention: this architecture has no running state"
        )
    if kind == "state":
        assert shape.state is not None
        return shape.state(values).keeps
    if kind == "both":
        assert shape.state is not None
        return Paired(_key_values(values, shape, "full"), shape.state(values).keeps)
    if shape.attention == "latent":
        index = values.count("index_head_dim") if shape.indexer else 0
        if values.raw("indexer_types") == "shared":  # it takes the choice of an earlier layer
            index = 0
        return Latent(values.count("kv_lora_rank"), values.count("qk_rope_head_dim"), index)
    if shape.attention == "compressed":
        return _compressed(values, kind)
    return _key_values(values, shape, kind)


def _key_values(values: Values, shape: Architecture, kind: Kind) -> KeyValues:
    heads, dim = values.count("num_attention_heads"), read_head_dim(values)
    value_dim = values.count("v_head_dim", dim) if shape.value_dim else dim
    window = values.count("sliding_window") if kind == "window" else None
    index = values.count("index_head_dim") if kind == "sparse" else 0
    return KeyValues(values.count("num_key_value_heads", default=heads), dim, value_dim, window, index)


def compress_rate(values: Values) -> int:
    """Tokens per compressed vector in one layer of DeepSeek V4."""
    ratio, rates = values.raw("compress_ratios"), values.raw("compress_rates")
    word = values.raw("layer_types")
    if isinstance(word, str) and isinstance(rates, dict):
        return values.changed(rates).count(word)
    if isinstance(ratio, int):
        return values.count("compress_ratios")
    raise values.fault("compress_ratios", ratio, "tokens per compressed vector for each layer")


def _compressed(values: Values, kind: Kind) -> Layer:
    dim, window = values.count("head_dim"), values.count("sliding_window")
    if kind == "window":
        return KeyValues(1, dim, 0, window)
    rate = compress_rate(values)
    return Compressed(dim, window, rate, values.count("index_head_dim") if rate == 4 else 0)


def read_head_dim(values: Values) -> int:
    """As Transformers takes it: head_dim, else hidden_size divided by the heads."""
    if values.has("head_dim"):
        return values.count("head_dim")
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    if hidden < heads:
        raise values.fault("num_attention_heads", heads, f"at most the hidden size, {hidden}")
    return hidden // heads
