"""Gated MLPs and mixtures of them. Built by `decoder.py`; knows no attention and no sequences.

Activations are spelled out: PyTorch's own `silu` uses another exponential for the last elements of a tensor than for
the others. The bits of a row depend on that row alone: which experts it goes through follows from its own router
scores, and their results are added up in the order of the experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.models.base import ExpertConfig
from draftproof.models.linear import Linear

Mlp = Callable[[Tensor], Tensor]
"""float32 [num_rows, hidden] → the same shape."""


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate(x)) · up(x)); `gate_up` gives both, one after the other."""

    gate_up: Linear
    down: Linear
    activation: Callable[[Tensor], Tensor]

    def __call__(self, rows: Tensor) -> Tensor:
        gate, up = self.gate_up(rows).chunk(2, dim=-1)  # [num_rows, intermediate] both
        return self.down(self.activation(gate) * up)


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """The weighted sum of a few of the experts, chosen row by row."""

    config: ExpertConfig
    router: Linear
    experts: Sequence[GatedMlp]

    def __call__(self, rows: Tensor) -> Tensor:
        weights = route(self.router(rows), self.config)  # [num_rows, num_experts]
        result = torch.zeros_like(rows)
        for expert, mlp in enumerate(self.experts):
            chosen = weights[:, expert].nonzero().flatten()
            if len(chosen):
                result[chosen] += mlp(rows[chosen]) * weights[chosen, expert, None]
        return result


def route(scores: Tensor, config: ExpertConfig) -> Tensor:
    """Weights of the experts, 0 for those not chosen; float32 of the shape of `scores` [num_rows, num_experts].

    Among equal scores the first expert is taken.
    """
    shares = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    probabilities = shares / shares.sum(dim=-1, keepdim=True)
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, : config.num_used]
    chosen = probabilities.gather(1, order)  # [num_rows, num_used], largest first
    if config.is_normalised:
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
    return torch.zeros_like(scores).scatter(1, order, chosen)


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x), with the same bits for an element wherever it stands in the tensor."""
    return x / (1 + torch.exp(-x))


def gelu_tanh(x: Tensor) -> Tensor:
    """Hendrycks and Gimpel 2016, the approximation by tanh, which is written as a sigmoid: x · σ(2u)."""
    return x / (1 + torch.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}
