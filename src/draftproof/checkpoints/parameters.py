"""How many parameters a model has, from its configuration alone: exactly what its files hold, tied matrices once.

Called by `geometry` where no weights are at hand, and to tell active parameters. Formulas follow the model code in
Transformers 5.24, with which the tests compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.checkpoints.architecture import Architecture, Extra, MixtureKeys
from draftproof.checkpoints.layers import (
    Layer,
    NoCache,
    SharedCache,
    layer_kinds,
    layer_values,
    prediction_layers,
)
from draftproof.checkpoints.layouts import Feed, nemotron_words
from draftproof.checkpoints.mixers import mixer, norm
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.states import RunningState


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer: how many there are, how many a token visits, and how wide each is; `shared_size` is
    the width of what every token visits besides (0: nothing). Of the widest layer, where they differ."""

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
    embedding    of the embedding matrix, and of tables that layers look up by token; output: of the output matrix
                 where it is one of its own, else 0
    experts      of all routed experts together
    """

    total: int
    active: int
    quantised: int
    embedding: int
    output: int
    experts: int

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.total + other.total,
            self.active + other.active,
            self.quantised + other.quantised,
            self.embedding + other.embedding,
            self.output + other.output,
            self.experts + other.experts,
        )


def read_experts(values: Values, shape: Architecture) -> Experts | None:
    """Of one layer's configuration. None for a model without experts. Raises DP406 for a mixture that is not fully
    told."""
    keys = shape.mixture
    num_key = values.first(*keys.num) if keys is not None else None
    if keys is None or num_key is None:
        return None
    num = values.count(num_key, least=0)
    if num <= (1 if keys.one_is_none else 0):  # GGUF files of dense models say 0
        return None
    size = values.count(keys.size)
    width, shared = size, 0
    if keys.shared_size is not None and values.has(keys.shared_size):
        width = shared = values.count(keys.shared_size, least=0)
    if keys.shared_count is not None and values.has(keys.shared_count):
        shared = values.count(keys.shared_count, least=0) * width
    used = values.count(keys.used)
    if used > num:
        raise values.fault(keys.used, used, f"at most {num}")
    return Experts(num, used, size, shared)


@dataclass(frozen=True, slots=True)
class _Built:
    """One layer: its configuration, what it keeps, and what follows the mixing of tokens."""

    values: Values
    layer: Layer
    feed: Feed
    experts: Experts | None


def _built(values: Values, shape: Architecture, layers: Sequence[Layer]) -> list[_Built]:
    kinds = layer_kinds(values, shape, len(layers))
    own = layer_values(values, shape, kinds)
    told = values.raw("feed_types")  # of a GGUF file's tensors
    feeds = shape.feed(values, len(layers)) if told is None else values.items("feed_types", len(layers))
    found = []
    for here, layer, feed in zip(own, layers, feeds, strict=True):
        experts = read_experts(here, shape) if feed == "experts" else None
        found.append(_Built(here, layer, "dense" if feed == "experts" and experts is None else feed, experts))
    return found


def widest_experts(values: Values, shape: Architecture, layers: Sequence[Layer]) -> Experts | None:
    found = [each.experts for each in _built(values, shape, layers) if each.experts is not None]
    return max(found, key=lambda experts: experts.num * experts.size, default=None)


def widest_dense(values: Values, shape: Architecture, layers: Sequence[Layer]) -> int | None:
    """The width of the widest dense feed-forward; None where no layer has one."""
    built = [each for each in _built(values, shape, layers) if _is_dense(each, shape)]
    return max((_dense_size(each, shape) for each in built), default=None)


def _is_dense(built: _Built, shape: Architecture) -> bool:
    beside = shape.mixture is not None and shape.mixture.beside_dense
    return built.feed == "dense" or (built.feed == "experts" and beside)


def _dense_size(built: _Built, shape: Architecture) -> int:
    key, values = shape.dense_size, built.values
    size = key(values) if callable(key) else values.count(key)
    is_wide = (
        shape.wide_if is not None and values.flag(shape.wide_if) and isinstance(built.layer, SharedCache)
    )
    return 2 * size if is_wide else size


@dataclass(frozen=True, slots=True)
class _LayerCount:
    """Elements of one layer: matrices (the routed experts included), vectors, of the matrices routed experts, and of
    those the ones that a token does not visit."""

    matrices: int
    vectors: int
    routed: int = 0
    idle: int = 0


def count_parameters(values: Values, shape: Architecture, layers: tuple[Layer, ...]) -> Parameters:
    """Of the whole model without its MTP layers. Raises DP406 for what the configuration does not tell."""
    return sum(count_parts(values, shape, layers), Parameters(0, 0, 0, 0, 0, 0))


def count_parts(values: Values, shape: Architecture, layers: tuple[Layer, ...]) -> tuple[Parameters, ...]:
    """Of what comes before the layers (embedding and tables), of each layer, and of what comes behind them (norm and
    output matrix); what else the model holds in even shares of the layers."""
    hidden, vocab, num = values.count("hidden_size"), values.count("vocab_size"), len(layers)
    extra = Extra(0, 0, 0) if shape.extra is None else shape.extra(values, num)
    tables = vocab * hidden + extra.tables
    output = 0 if values.flag("tie_word_embeddings") else vocab * hidden
    ending = output + norm(values, shape) + (vocab if shape.head_bias else 0)
    found = [Parameters(tables, tables, 0, tables, 0, 0)]
    for index, each in enumerate(_built(values, shape, layers)):
        own = _count_layer(each, shape)
        matrices = own.matrices + _share(extra.matrices, index, num)
        total = matrices + own.vectors + _share(extra.vectors, index, num)
        found.append(Parameters(total, total - own.idle, matrices, 0, 0, own.routed))
    return (*found, Parameters(ending, ending, 0, 0, output, 0))


def _share(whole: int, index: int, num: int) -> int:
    return whole * (index + 1) // num - whole * index // num


def count_mtp(values: Values, shape: Architecture, layers: tuple[Layer, ...], num: int) -> Parameters:
    """Of `num` built-in prediction layers: one more layer each, a matrix that joins hidden state and embedding, and
    norms; the embedding and the output matrix are the model's own."""
    hidden = values.count("hidden_size")
    extra = Extra(0, 0, 0) if shape.mtp_extra is None else shape.mtp_extra(values, num)
    counts = [_count_layer(part, shape) for part in _mtp_parts(values, shape, layers, num)]
    matrices = sum(each.matrices for each in counts) + num * 2 * hidden * hidden + extra.matrices
    vectors = sum(each.vectors for each in counts) + num * 3 * hidden + extra.vectors
    idle, routed = sum(each.idle for each in counts), sum(each.routed for each in counts)
    return Parameters(matrices + vectors, matrices + vectors - idle, matrices, 0, 0, routed)


def _mtp_parts(values: Values, shape: Architecture, layers: tuple[Layer, ...], num: int) -> list[_Built]:
    """What prediction layers are made of: what lists of layers say behind the last one, letters of their own, or the
    last layer with attention; experts where the model's last layer has them, unless the architecture says otherwise."""
    built = _built(values, shape, layers)
    last = built[-1]
    feed: Feed = "dense" if shape.mtp_is_dense and last.feed == "experts" else last.feed
    told = prediction_layers(values, shape, len(layers), num)
    if told:
        return [_Built(own, layer, feed, last.experts if feed == "experts" else None) for own, layer in told]
    attending = [each for each in built if not isinstance(each.layer, RunningState | NoCache | SharedCache)]
    if not attending:
        raise values.fault(
            "layer_types", "no layer with attention", "one, of which prediction layers are made"
        )
    part = attending[-1]
    if shape.mtp_pattern is not None:
        words = _words(values, shape.mtp_pattern)
        return [each for word in words for each in _part(built, part, word)] * num
    return [_Built(part.values, part.layer, feed, last.experts if feed == "experts" else None)] * num


def _words(values: Values, key: str) -> list[str]:
    """Nemotron-H: letters, or words in `mtp_layers_block_type`; without either, attention and experts."""
    pattern, words = values.raw(key), values.raw("mtp_layers_block_type")
    if isinstance(pattern, str):
        return nemotron_words(values, key, len(pattern))
    return [str(word) for word in words] if isinstance(words, list) else ["attention", "moe"]


def _part(built: Sequence[_Built], attention: _Built, word: str) -> Sequence[_Built]:
    if word in ("attention", "full_attention"):
        return [attention]
    feed = {"moe": "experts", "mlp": "dense"}.get(word)
    return [each for each in built if each.feed == feed][-1:]


def _count_layer(built: _Built, shape: Architecture) -> _LayerCount:
    values, experts = built.values, built.experts
    hidden = values.count("hidden_size")
    matrices, vectors = mixer(values, shape, built.layer)
    vectors += shape.num_norms * norm(values, shape)
    routed = idle = 0
    if experts is not None and shape.mixture is not None:
        wide, joining = _latent(values, shape.mixture, hidden)
        routed = experts.num * _expert(wide, experts.size, shape)
        idle = routed * (experts.num - experts.num_used) // experts.num
        matrices += routed + joining + _expert(hidden, experts.shared_size, shape)
        vectors += _mixture_vectors(values, hidden, experts, shape.mixture)
        vectors += shape.mixture.beside_norms * norm(values, shape) if shape.mixture.beside_dense else 0
        vectors += wide if joining and values.applies(shape.mixture.latent_norm) else 0
    if _is_dense(built, shape):
        size = _dense_size(built, shape)
        matrices += _expert(hidden, size, shape)
        vectors += _mlp_bias(hidden, size, shape) if values.applies(shape.mlp_bias) else 0
    return _LayerCount(matrices, vectors, routed, idle)


def _latent(values: Values, keys: MixtureKeys, hidden: int) -> tuple[int, int]:
    """The width of what routed experts see, and elements of the matrices to it and back."""
    if keys.latent is None or not values.has(keys.latent):
        return hidden, 0
    wide = values.count(keys.latent)
    return wide, 2 * hidden * wide


def _expert(hidden: int, size: int, shape: Architecture) -> int:
    return (3 if shape.gated_mlp else 2) * hidden * size


def _mlp_bias(hidden: int, size: int, shape: Architecture) -> int:
    return (2 * size if shape.gated_mlp else size) + hidden


def _mixture_vectors(values: Values, hidden: int, experts: Experts, keys: MixtureKeys) -> int:
    rows = experts.num + (values.count(keys.idle, 0, least=0) if keys.idle is not None else 0)
    found = hidden * rows
    if keys.router_bias:
        found += rows
    if values.applies(keys.correction):
        found += rows
    if keys.expert_bias:
        found += experts.num * (2 * experts.size + hidden)
    if keys.shared_gate and experts.shared_size:
        found += hidden
    if keys.router_scales:
        found += hidden + experts.num
    return found
