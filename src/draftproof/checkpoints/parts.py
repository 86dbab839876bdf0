"""Bytes of a model's weights by what a stage of a pipeline takes: what is before the layers, each layer, the rest.

Called by the planner. By the headers' names where they are at hand, else by formula, as `geometry` counts the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from draftproof.checkpoints.geometry import architecture_of
from draftproof.checkpoints.layers import read_layers
from draftproof.checkpoints.parameters import Parameters, count_parts
from draftproof.checkpoints.view import CheckpointView, TensorInfo
from draftproof.checkpoints.weights import (
    Weights,
    is_of_mtp,
    joined,
    weights_from_formula,
    weights_from_tensors,
)

_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h|blocks)\.(\d{1,9})\.")
_TOWER = re.compile(
    r"(?:^|\.)(?:v|a|mm|[a-z_]*(?:visual|vision|audio|image|speech|projector|connector)[a-z_]*)\."
)
"""Encoders of images and sounds, and what joins them to the language model."""
_BEHIND = re.compile(
    r"(?:^|\.)(?:lm_head|output|embed_out|output_norm|norm|norm_f|embedding_norm|ln_f|final_layernorm|final_layer_norm|final_norm)\."
)
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|token_embd|wte|word_embeddings|embed_in|tok_embeddings|embedding)\."
)


@dataclass(frozen=True, slots=True)
class Parts:
    """before: embedding, tables, encoders. behind: the last norm and the output matrix. embedding: of the matrix of
    tokens alone, which is among what is before; is_tied: the output matrix is the same."""

    before: Weights
    layers: tuple[Weights, ...]
    behind: Weights
    embedding: Weights
    is_tied: bool

    def rounded(self, bits: float) -> Parts:
        return Parts(
            self.before.rounded(bits),
            tuple(layer.rounded(bits) for layer in self.layers),
            self.behind.rounded(bits),
            self.embedding.rounded(bits),
            self.is_tied,
        )

    def of_stage(self, first: int, end: int) -> Weights:
        """Of the stage with the layers from `first` to before `end`. A last stage that is not the first holds the
        matrix of tokens again where the output matrix is the same."""
        found = [*self.layers[first:end]]
        if first == 0:
            found.append(self.before)
        if end == len(self.layers):
            found.append(self.behind)
            if self.is_tied and first > 0:
                found.append(self.embedding)
        nothing = replace(self.before, float_elements=0, fixed_bytes=0, stored_bytes=0)
        return joined([*found, nothing])


def weight_parts(view: CheckpointView) -> Parts:
    """Without prediction layers. Raises what `geometry` raises."""
    _, shape = architecture_of(view)
    values = shape.read(view.reference, view.language_config)
    layers = read_layers(values, shape)
    counts = count_parts(values, shape, layers)
    is_tied = values.flag("tie_word_embeddings")
    tokens = values.count("vocab_size") * values.count("hidden_size")
    embedding = Parameters(tokens, tokens, 0, tokens, 0, 0)
    if view.tensors is None:
        before, *own, behind, matrix = (weights_from_formula(view, part) for part in (*counts, embedding))
        return Parts(before, tuple(own), behind, matrix, is_tied)
    sorted_ = _sorted(view.tensors, len(layers), shape.sublayers)
    before, *own, behind = (weights_from_tensors(part) for part in sorted_)
    vocab = values.count("vocab_size")
    matrices = {name: of for name, of in sorted_[0].items() if vocab in of.shape and _EMBEDDING.search(name)}
    matrix = weights_from_tensors(matrices) if matrices else weights_from_formula(view, embedding)
    return Parts(before, tuple(own), behind, matrix, is_tied)


def holds_embedding(view: CheckpointView, num_layers: int, is_of_predictions: bool = False) -> bool:
    """Whether a matrix of tokens is among the tensors, or among those of built-in prediction layers. Without headers:
    no, as heads are published."""
    return any(
        _EMBEDDING.search(name) is not None and is_of_mtp(name, num_layers) == is_of_predictions
        for name in view.tensor_names or ()
    )


def _sorted(
    tensors: Mapping[str, TensorInfo], num_layers: int, sublayers: int
) -> list[dict[str, TensorInfo]]:
    """Before the layers, each layer, behind them. Where numbered layers consist of several, the first has it all."""
    found: list[dict[str, TensorInfo]] = [{} for _ in range(num_layers + 2)]
    for name, info in tensors.items():
        if is_of_mtp(name, num_layers // sublayers):
            continue
        is_language = _TOWER.search(name) is None
        match = _LAYER.search(name) if is_language else None
        if match is not None and int(match[1]) < num_layers // sublayers:
            found[1 + int(match[1]) * sublayers][name] = info
        else:
            found[-1 if is_language and _BEHIND.search(name) else 0][name] = info
    return found
