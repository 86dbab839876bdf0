"""The numbers that memory and cost follow from, out of a checkpoint's configuration and headers.

Called by the planner, rules and advice: `geometry(view)`. What a configuration does not tell is an error (DP403 for an
architecture that has no row, DP406 for a value), never a guess. Knows nothing of engines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from draftproof.checkpoints.architecture import Architecture
from draftproof.checkpoints.architectures import ALIASES, ARCHITECTURES
from draftproof.checkpoints.hybrids import GGUF_TELLS, HYBRIDS
from draftproof.checkpoints.layers import (
    KeyValues,
    Latent,
    Layer,
    attention_of,
    prediction_layers,
    read_head_dim,
    read_layers,
)
from draftproof.checkpoints.parameters import (
    Experts,
    Parameters,
    count_mtp,
    count_parameters,
    widest_dense,
    widest_experts,
)
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.view import CheckpointView
from draftproof.checkpoints.weights import (
    Weights,
    count_from_tensors,
    is_of_mtp,
    num_mtp_layers,
    weights_from_formula,
    weights_from_tensors,
)
from draftproof.core.errors import DraftproofError

Generation = Literal["eagle", "eagle3"]

_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
_MAX_MTP_LAYERS = 64
_OTHER_DRAFTERS = ("dflash", "dspark", "medusa", "mlpspeculator", "pard")
"""Parts of the names of drafters whose weights no formula here counts: their headers must be at hand."""


@dataclass(frozen=True, slots=True)
class EagleHead:
    """A drafter that reads the target's hidden states.

    generation           eagle (1 and 2): one hidden state; eagle3: several layers' hidden states side by side
    target_hidden_size   of the target that it was made for; None: not said
    num_features         hidden states that its first matrix joins, by its shape or the configuration; None: not said
    """

    generation: Generation
    target_hidden_size: int | None
    num_features: int | None


@dataclass(frozen=True, slots=True)
class Geometry:
    """One model's shape. Sizes are elements or tokens, `weights` bytes.

    layers          what each layer keeps; MTP layers apart
    vocab_size      rows of the embedding, padding included; `draft_vocab_size`: rows of a head's own output matrix
    intermediate_size   of dense layers; None where every layer has experts
    mtp_layers      built-in prediction layers that the configuration declares, and what each keeps
    mtp_weights     of them; None where there are none, or the files do not hold them
    sublayers       layers that one numbered layer consists of: a pipeline does not part them
    parameters_by   tensors: counted in the headers; formula: from the configuration
    """

    model_type: str
    hidden_size: int
    intermediate_size: int | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    context_length: int | None
    tie_embeddings: bool
    layers: tuple[Layer, ...]
    experts: Experts | None
    parameters: Parameters
    parameters_by: Literal["tensors", "formula"]
    weights: Weights
    mtp_layers: tuple[Layer, ...]
    mtp_weights: Weights | None
    head: EagleHead | None
    sublayers: int = 1

    @property
    def num_layers(self) -> int:
        return len(self.layers)


def geometry(view: CheckpointView) -> Geometry:
    """The geometry of `view`. Raises DP403, DP406, and what reading the view raises."""
    config = view.language_config
    model_type, shape = architecture_of(view)
    values = shape.read(view.reference, config)
    layers = read_layers(values, shape)
    vocab, head = values.count("vocab_size"), _head(view, values)
    if head is not None and head.generation == "eagle3":
        shape = replace(shape, mixture=None)  # every published class has a dense feed-forward in all layers
    draft_vocab = values.count("draft_vocab_size", default=vocab) if head else vocab
    if view.tensors is None and any(word in _architecture_name(view) for word in _OTHER_DRAFTERS):
        raise values.fault(
            "architectures", _architecture_name(view), "weight files, whose headers tell their size"
        )
    if shape.by_files_alone and view.tensors is None:
        raise values.fault("model_type", model_type, "weight files, whose headers tell its size")
    mtp = _mtp_layers(view, values, shape, layers) if head is None else ()
    parameters = _count_head(values, shape, layers, head) if head else count_parameters(values, shape, layers)
    counted = mtp_weights = None
    if view.tensors is not None:
        numbered = len(layers) // shape.sublayers
        body = {name: info for name, info in view.tensors.items() if not is_of_mtp(name, numbered)}
        predicting = {name: info for name, info in view.tensors.items() if name not in body}
        weights, counted = weights_from_tensors(body), count_from_tensors(view.kind, body)
        mtp_weights = weights_from_tensors(predicting) if predicting else None
    else:
        weights = weights_from_formula(view, parameters)
        if mtp:
            mtp_weights = weights_from_formula(view, count_mtp(values, shape, layers, len(mtp)))
    grouped = [own for layer in layers if isinstance(own := attention_of(layer), KeyValues)]
    attends = any(attention_of(layer) is not None for layer in layers)
    return Geometry(
        model_type=model_type,
        hidden_size=values.count("hidden_size"),
        intermediate_size=widest_dense(values, shape, layers),
        num_heads=values.count("num_attention_heads") if attends else 0,
        num_kv_heads=max((layer.num_kv_heads for layer in grouped), default=1 if attends else 0),
        head_dim=max((layer.key_dim for layer in grouped), default=read_head_dim(values) if attends else 0),
        vocab_size=vocab,
        draft_vocab_size=draft_vocab,
        context_length=_context(values),
        tie_embeddings=values.flag("tie_word_embeddings"),
        layers=layers,
        experts=widest_experts(values, shape, layers),
        parameters=parameters if counted is None else _with_total(values, parameters, counted),
        parameters_by="formula" if counted is None else "tensors",
        weights=weights,
        mtp_layers=mtp,
        mtp_weights=mtp_weights,
        head=head,
        sublayers=shape.sublayers,
    )


def architecture_of(view: CheckpointView) -> tuple[str, Architecture]:
    found = view.language_config.get("model_type")
    name = ALIASES.get(found, found) if isinstance(found, str) else None
    if name == "llama" and view.language_config.get("num_experts"):
        name = "mixtral"  # GGUF files call both by one name
    if name == "kimi_linear" and view.language_config.get("attn_res_block_size"):
        name = "kimi_k3"  # its text part calls itself by its ancestor's name
    shape = ARCHITECTURES.get(name) if name is not None else None
    is_told = name in GGUF_TELLS or view.language_config.get("feed_types") is not None
    if shape is not None and view.kind == "gguf" and name in HYBRIDS and not is_told:
        raise DraftproofError(
            "DP403",
            f"{view.reference}: general.architecture",
            f"{str(found)[:80]}",
            "an architecture whose GGUF files tell which layer is of which kind, and are read",
            "Name the directory or the hub id that the file was made from: its config.json is read.",
        )
    if name is None or shape is None:
        raise DraftproofError(
            "DP403",
            f"{view.reference}: model_type",
            "nothing" if found is None else f"{str(found)[:80]}",
            f"an architecture whose memory is known: {', '.join(ARCHITECTURES)}",
            "Its cache and weights are not known, and are not guessed. Ask for the architecture, or add its row.",
        )
    return name, shape


def _architecture_name(view: CheckpointView) -> str:
    names = view.config.get("architectures")
    return names[0].lower() if isinstance(names, list) and names and isinstance(names[0], str) else ""


def _context(values: Values) -> int | None:
    return values.count("max_position_embeddings") if values.has("max_position_embeddings") else None


def _mtp_layers(
    view: CheckpointView, values: Values, shape: Architecture, layers: tuple[Layer, ...]
) -> tuple[Layer, ...]:
    """Each declared prediction layer keeps what lists of layers say behind the last one, else what the last layer with
    attention over the whole context keeps. Where the configuration declares none (Qwen3-Next), the tensors' names
    do."""
    key = values.first(*_MTP_KEYS)
    num = num_mtp_layers(view.tensor_names or frozenset()) if key is None else values.count(key, least=0)
    if num > _MAX_MTP_LAYERS:
        raise values.fault(str(key), num, f"at most {_MAX_MTP_LAYERS}")
    told = prediction_layers(values, shape, len(layers), num)
    if told:
        return tuple(layer for _, layer in told)
    whole = [layer for layer in layers if getattr(layer, "elements_per_token", 0)]
    if num and not whole:
        raise values.fault(
            "layer_types", "no layer with attention", "one, of which prediction layers are made"
        )
    return (whole[-1],) * num if num else ()


def _head(view: CheckpointView, values: Values) -> EagleHead | None:
    """By tensors where they are at hand (heads of EAGLE's authors call themselves by the target's name), else by
    architecture and format; None for a model of its own."""
    name = _architecture_name(view)
    kind = view.config.get("speculators_model_type")
    tensors = view.tensors or {}
    first = tensors.get("fc.weight") or tensors.get("model.fc.weight")
    if any(word in name for word in _OTHER_DRAFTERS) or kind in ("dflash", "dflash2", "dspark"):
        return None
    is_third = (
        "eagle3" in name or kind in ("eagle3", "peagle") or values.has("draft_vocab_size") or "d2t" in tensors
    )
    if not is_third and "eagle" not in name and kind != "eagle" and first is None:
        return None
    hidden = values.count("hidden_size")
    target = values.count("target_hidden_size", default=hidden)
    num_features = None if is_third else 1
    if first is not None and len(first.shape) == 2 and is_third:
        num_features = first.shape[1] // target
    elif isinstance(values.raw("eagle_aux_hidden_state_layer_ids"), list):
        num_features = len(values.raw("eagle_aux_hidden_state_layer_ids"))
    return EagleHead("eagle3" if is_third else "eagle", target, num_features)


def _count_head(
    values: Values, shape: Architecture, layers: tuple[Layer, ...], head: EagleHead
) -> Parameters:
    """Of an EAGLE head as published: without the embedding, which is the target's. EAGLE-3 (Li et al., 2025): a matrix
    over three hidden states, what the first layer's attention reads over hidden state and embedding, an output matrix
    of its own over the draft vocabulary. EAGLE-1 and 2: a matrix over embedding and hidden state; the output matrix is
    the target's."""
    hidden, target = values.count("hidden_size"), head.target_hidden_size or values.count("hidden_size")
    whole = count_parameters(values, shape, layers)
    body = whole.total - whole.embedding - whole.output
    if head.generation == "eagle":
        # No norm before attention and none behind the layer; the joining matrix has a bias unless told otherwise.
        joined = 2 * hidden * hidden
        vectors = (hidden if values.raw("bias") is not False else 0) - 2 * hidden
        total = body + joined + vectors
        return Parameters(total, total, whole.quantised + joined, 0, 0, whole.experts)
    wider = hidden * _columns_of_input(values, shape, layers[0])
    output = values.count("draft_vocab_size", default=values.count("vocab_size")) * hidden
    joined = (head.num_features or 3) * target * hidden
    total = body + wider + joined + output + hidden
    return Parameters(total, total, whole.quantised + wider + joined, 0, output, whole.experts)


def _columns_of_input(values: Values, shape: Architecture, first: Layer) -> int:
    """Of all matrices that read the input of an EAGLE-3 head's first attention: queries, keys and values, or with
    latent attention (vLLM 0.33's Eagle3DeepseekV2ForCausalLM) the compressions of queries and of keys. Raises DP403 for
    attention that no published head has."""
    heads = values.count("num_attention_heads")
    if isinstance(first, KeyValues) and not (first.index_dim or shape.query_gate or shape.shared_queries):
        return heads * first.key_dim + first.elements_per_token
    if isinstance(first, Latent) and not first.index_dim:
        if values.has("q_lora_rank"):
            return values.count("q_lora_rank") + first.elements_per_token
        return heads * (values.count("qk_nope_head_dim") + first.rope_dim) + first.elements_per_token
    raise DraftproofError(
        "DP403",
        f"{values.reference}: model_type",
        f"an EAGLE-3 head whose first layer is not plain attention ({type(first).__name__})",
        "a first layer with keys and values per head, or with latent attention",
        "No published head is known to have one, and its size is not guessed. Compare config.json with its source.",
    )


def _with_total(values: Values, parameters: Parameters, total: int) -> Parameters:
    """The headers' count in place of the formula's; what is idle per token stays the formula's. Raises DP406 where
    that is more than the files hold."""
    idle = parameters.total - parameters.active
    if idle >= max(total, 1):
        raise values.fault(
            "num_experts_per_tok",
            f"{idle} idle parameters by the configuration, {total} in the files",
            "experts that the files hold",
        )
    return Parameters(
        total, total - idle, parameters.quantised, parameters.embedding, parameters.output, parameters.experts
    )
