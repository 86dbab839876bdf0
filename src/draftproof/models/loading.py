"""From what the user names to a model that runs: find it, check it, choose type and kernels, build it.

Called by the engine and the commands. Ties the readers, the tokenizer and the decoders together; knows no requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from draftproof.checkpoints.files import CONFIG_MAX_BYTES, member, read_json
from draftproof.checkpoints.gguf import Checkpoint, GgufFile, open_checkpoint
from draftproof.checkpoints.safetensors import read_directory
from draftproof.core.errors import DraftproofError
from draftproof.core.footprint import BYTES_PER_WEIGHT, mib
from draftproof.models.base import Model, ModelConfig
from draftproof.models.blocks import quantize
from draftproof.models.catalogue import resolve
from draftproof.models.config import config_from_gguf, config_from_hf
from draftproof.models.config.gguf import rope_tensor
from draftproof.models.decoder import Decoder
from draftproof.models.linear import has_native_bfloat16
from draftproof.models.precision import ExpandedWeights, Form, FormedWeights, check_form
from draftproof.models.template import ChatTemplate, load_template
from draftproof.models.tensors import tensor_specs
from draftproof.models.tokenizer import Tokenizer, load_tokenizer
from draftproof.models.weights import GgufWeights, SafetensorsWeights, Weights, read_values

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)
"""Buffers that old checkpoints carry; they follow from the configuration."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with what belongs to it. `source` is the directory or file, `kernels_reason` why these kernels."""

    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate
    source: Path
    kernels_reason: str
    weights: Form = "native"
    weight_types: Mapping[str, int] = field(default_factory=dict)
    """How many matrices are computed with in which type: GGUF's names, or `float` for the storage type."""
    weights_bytes: int = 0
    """Of all matrices as they are computed with."""

    @property
    def config(self) -> ModelConfig:
        return self.model.config


def load_model(
    model: str | Path,
    *,
    dtype: str = "auto",
    weights: str = "native",
    kernels: str = "auto",
    device: str = "cpu",
    max_model_len: int | None = None,
    as_drafter: bool = False,
    memory: int | None = None,
) -> LoadedModel:
    """Loads a directory, a GGUF file or a name of the catalogue.

    dtype    auto (bfloat16 where the processor has it, else float32), float32 or bfloat16: storage of the cache and
             of weights that are not quantised
    weights  native (quantised weights as the file holds them), int8, int4 (rounded while loading), float
             (everything in `dtype`): `precision.Form`
    kernels  auto (native where they can be had, else python), native or python
    max_model_len  the longest text that shall be served, in tokens, if that is known: LongRoPE chooses by it between
             a short context and a long one
    as_drafter  int4 rounds embedding and head to four bits as well, and less memory is taken meanwhile
    memory   bytes that the process may hold, if that is limited: weights that alone are more are not begun with

    Raises DP4xx for what cannot be found, read or computed, DP601 if a catalogue model cannot be downloaded,
    DP701 for weights beyond `memory`, DP702 if native kernels were asked for and cannot be had, DP703 for another
    device than the CPU.
    """
    if device != "cpu":
        raise DraftproofError("DP703", "device", device, "cpu", "This version runs models on the CPU alone.")
    torch_dtype, form = _choose_dtype(dtype), check_form(weights)
    try:
        return _load(model, torch_dtype, form, kernels, max_model_len, as_drafter, memory)
    except OSError as error:
        raise DraftproofError(
            "DP401",
            "MODEL",
            f"{str(model)[:200]}: {error.strerror or error}",
            "a directory or file that can be read",
            "Check the path and its permissions.",
        ) from error


def _load(
    model: str | Path,
    torch_dtype: torch.dtype,
    form: Form,
    kernels: str,
    wanted_len: int | None,
    as_drafter: bool,
    memory: int | None,
) -> LoadedModel:
    path = resolve(model)
    checkpoint = open_checkpoint(path)
    config, weights = load_weights(checkpoint, wanted_len)
    if memory is not None:
        _check_room(memory, config, weights, form, torch_dtype)
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer.vocab_size > config.vocab_size:
        raise DraftproofError(
            "DP405",
            "tokenizer",
            f"{tokenizer.vocab_size} tokens",
            f"at most {config.vocab_size}, the rows of the model's embedding",
            "Use the tokenizer that belongs to the model.",
        )
    template = load_template(checkpoint)
    formed = FormedWeights(weights, form, as_drafter)
    decoder, reason = _build(config, formed, torch_dtype, kernels)
    weights_bytes = formed_bytes(config, formed, decoder.dtype, decoder.kernels)
    return LoadedModel(decoder, tokenizer, template, path, reason, form, formed.types, weights_bytes)


def reload_weights(loaded: LoadedModel, weights: str) -> LoadedModel:
    """The same model as a drafter for itself, its weights in another form, read from its files again.

    Embedding and head are rounded, too. Tokenizer, storage type and kernels stay. Raises what `load_model` raises.
    """
    form = check_form(weights)
    config, stored = load_weights(open_checkpoint(loaded.source), loaded.config.context_length)
    formed = FormedWeights(stored, form, as_drafter=True)
    decoder, _ = _build(config, formed, loaded.model.dtype, loaded.model.kernels)
    weights_bytes = formed_bytes(config, formed, decoder.dtype, decoder.kernels)
    return replace(
        loaded, model=decoder, weights=form, weight_types=formed.types, weights_bytes=weights_bytes
    )


def formed_bytes(config: ModelConfig, formed: FormedWeights, dtype: torch.dtype, kernels: str) -> int:
    """What the weights take once they are loaded. Decoders without the native kernels hold floats in any form."""
    names = (spec.name for spec in tensor_specs(config))
    return formed.num_bytes(names, dtype.itemsize, keeps_blocks=kernels == "native")


def load_weights(checkpoint: Checkpoint, wanted_len: int | None = None) -> tuple[ModelConfig, Weights]:
    """The configuration, and the tensors on demand under Transformers' names; all there, all of the right shape.

    wanted_len  the longest text that shall be served, in tokens, where that is known

    Raises DP401 to DP407.
    """
    weights: Weights
    if isinstance(checkpoint, GgufFile):
        factors = None
        divisors = rope_tensor(checkpoint.metadata, checkpoint.tensors, wanted_len)
        if divisors is not None:
            values = read_values(checkpoint.paths, checkpoint.tensors[divisors])
            factors = tuple(values.float().flatten().tolist())
        config = config_from_gguf(checkpoint.metadata, checkpoint.tensors, factors, wanted_len)
        weights = GgufWeights(checkpoint, config)
    else:
        documents = {}
        for name in ("config.json", "generation_config.json"):
            path = member(checkpoint, name)
            if path is not None:
                documents[name] = read_json(path, CONFIG_MAX_BYTES)
        if "config.json" not in documents:
            raise DraftproofError(
                "DP401", "MODEL", f"{checkpoint} without config.json", "config.json", "Complete the download."
            )
        generation = documents.get("generation_config.json", {})
        config = config_from_hf(documents["config.json"], generation, wanted_len)
        weights = SafetensorsWeights(read_directory(checkpoint), config)
    _check_tensors(config, weights)
    return config, weights


def _check_room(memory: int, config: ModelConfig, weights: Weights, form: Form, dtype: torch.dtype) -> None:
    """Where the limit is that of a container, loading too much would end the process without a word."""
    needed = _least_bytes(config, weights, form, dtype)
    if needed <= memory:
        return
    rounded = _least_bytes(config, weights, "int4", dtype)
    smaller = f" or --weights int4 (at least {mib(rounded)})" if rounded < needed else ""
    raise DraftproofError(
        "DP701",
        "memory",
        mib(memory),
        f"at least {mib(needed)} for the weights alone",
        f"Give the engine more memory (--memory), or take a smaller model{smaller}.",
    )


def _least_bytes(config: ModelConfig, weights: Weights, form: Form, dtype: torch.dtype) -> int:
    """What the weights take at least in that form, without reading them."""
    total = 0.0
    for spec in tensor_specs(config):
        num_elements = math.prod(spec.shape)
        in_floats = num_elements * dtype.itemsize
        least: float = in_floats if form == "float" else min(in_floats, weights.stored_bytes(spec.name))
        if form in BYTES_PER_WEIGHT and len(spec.shape) == 2:
            least = min(least, num_elements * BYTES_PER_WEIGHT[form])
        total += least
    return int(total)


def _check_tensors(config: ModelConfig, weights: Weights) -> None:
    expected = {spec.name: spec.shape for spec in tensor_specs(config)}
    for name, shape in expected.items():
        if name not in weights:
            raise _tensor_fault(name, "nothing", f"a tensor of shape {list(shape)}")
        if weights.shape(name) != shape:
            raise _tensor_fault(name, f"shape {list(weights.shape(name))}", f"shape {list(shape)}")
    for name in weights:
        is_tied_head = config.tie_embeddings and name == "lm_head.weight"
        if name not in expected and not is_tied_head and not name.endswith(_IGNORED_SUFFIXES):
            raise _tensor_fault(name, f"a tensor of shape {list(weights.shape(name))}", "no such tensor")


def _tensor_fault(name: str, found: str, expected: str) -> DraftproofError:
    remedy = "Weights and configuration do not belong together: get both from the same source."
    return DraftproofError("DP404", name, found, expected, remedy)


def _choose_dtype(dtype: str) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if has_native_bfloat16() else torch.float32
    if dtype not in DTYPES:
        raise DraftproofError("DP001", "dtype", dtype, f"auto, {', '.join(DTYPES)}", "Name one of these.")
    return DTYPES[dtype]


def _build(
    config: ModelConfig, weights: FormedWeights, dtype: torch.dtype, kernels: str
) -> tuple[Model, str]:
    if kernels not in ("auto", "native", "python"):
        raise DraftproofError("DP001", "kernels", kernels, "auto, native or python", "Name one of these.")
    if kernels == "python":
        return Decoder(config, ExpandedWeights(weights), dtype), "asked for"
    from draftproof.models import native

    weights.quantize = native.quantize
    try:
        model = native.NativeModel(config, weights, dtype, min(torch.get_num_threads(), native.MAX_THREADS))
        return model, native.status().reason
    except DraftproofError as error:
        if kernels == "native" or error.code != "DP702":
            raise
        weights.types.clear()
        weights.quantize = quantize
        return Decoder(
            config, ExpandedWeights(weights), dtype
        ), f"native kernels cannot be had: {error.found}"
