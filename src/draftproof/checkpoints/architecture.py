"""How one model type is built, as data: what a row of `architectures` and `hybrids` can say.

Read by `geometry`, `layers` and `parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftproof.checkpoints import layouts
from draftproof.checkpoints.layouts import FeedLayout, Layout
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.states import StateKind

Rule = bool | str
"""Always, never, or where this key of the configuration says so."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Elements that belong to no mixer, feed-forward or norm of a layer: tables looked up by token, matrices, vectors
    (less than none where fewer are there than the layers' rule says)."""

    tables: int
    matrices: int
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureKeys:
    """Where the configuration says how many experts there are and how wide.

    num, used, size  keys; of `num` the first that is there counts
    shared_count     key of the number of shared experts, each as wide as a routed one
    shared_size      key of the width of one shared expert
    shared_gate      whether a weight of hidden size gates it
    correction       whether each layer has a bias per expert for choosing them
    router_bias, expert_bias   of the projections
    router_scales    the router has a factor per element of its input and one per expert
    latent           key of the width to which a matrix brings the input of routed experts, and another back
    latent_norm      with a norm over that width
    beside_dense     the layer has its dense feed-forward as well, and `beside_norms` norms more
    idle             key of the number of experts that compute nothing, for which the router has rows all the same
    one_is_none      a number of one means no experts
    """

    num: tuple[str, ...] = ("num_experts", "num_local_experts", "n_routed_experts")
    used: str = "num_experts_per_tok"
    size: str = "moe_intermediate_size"
    shared_count: str | None = None
    shared_size: str | None = None
    shared_gate: bool = False
    correction: Rule = False
    router_bias: bool = False
    expert_bias: bool = False
    router_scales: bool = False
    latent: str | None = None
    latent_norm: Rule = False
    beside_dense: bool = False
    beside_norms: int = 3
    idle: str | None = None
    one_is_none: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one model type is built.

    attention      grouped (keys and values per head), latent (one compressed vector per token), compressed (DeepSeek
                   V4: one vector per token in a window and one per several tokens behind it)
    layout         which layer is of which kind, where `layer_types` is not said or not read (`reads_layer_types`)
    feed           which layers have experts, where there is a mixture
    state          the kind of running state of layers that keep one
    qkv_bias …     biases of the projections
    gated_mlp      gate, up and down; else up and down
    num_norms      norms of hidden size in a layer
    norm_weight, norm_bias   what a norm consists of
    qk_norm        head: a factor per element of a head; width: per element of all heads
    query_gate     queries come with a gate as wide
    head_gate      a gate per head from the layer's input; value_gate: per element of all heads' values
    shared_queries  key of the width that queries have before a matrix makes heads of them (Step 3)
    sinks          one number per head, in all layers or those with windows
    indexer        latent attention to tokens that an indexer picks by keys of its own
    value_is_key   layers over the whole context take values from the keys' projection, where this key says so
    value_dim      values have a length of their own (v_head_dim)
    head_bias      of the output matrix
    dense_size     key of the width of a dense feed-forward, or what computes it
    shared_layers  key of the number of last layers that read what earlier ones keep; wide_if: such layers have a
                   feed-forward twice as wide where this key says so
    names          other names of keys → the names here
    full_keys, window_keys   key → the key that takes its place in layers over everything or over a window
    extra          what else the model holds
    defaults       of configuration keys that published files leave out, as the model code takes them
    mtp_is_dense   prediction layers have no experts where the model's layers do
    mtp_pattern    key of the letters (Nemotron-H's) that a prediction layer is made of
    mtp_extra      what else prediction layers hold
    prepare        what the configuration says in words of its own, told in the keys here
    weigh          elements of matrices and vectors of a layer's mixer, where no other field tells them
    by_files_alone   no formula counts its mixers: headers must be at hand
    sublayers      layers, each with a cache, that one numbered layer consists of
    """

    attention: Literal["grouped", "latent", "compressed"] = "grouped"
    layout: Layout = layouts.full_attention
    feed: FeedLayout = layouts.all_experts
    state: StateKind | None = None
    qkv_bias: Rule = False
    o_bias: Rule = False
    gated_mlp: bool = True
    mlp_bias: Rule = False
    num_norms: int = 2
    norm_weight: bool = True
    norm_bias: bool = False
    qk_norm: Literal["none", "head", "width"] = "none"
    qk_norm_if: str | None = None
    query_gate: bool = False
    head_gate: Rule = False
    value_gate: Rule = False
    shared_queries: str | None = None
    sinks: Literal["none", "all", "window"] = "none"
    indexer: bool = False
    value_is_key: str | None = None
    value_dim: bool = False
    head_bias: bool = False
    mixture: MixtureKeys | None = None
    dense_size: str | Callable[[Values], int] = "intermediate_size"
    reads_layer_types: bool = False
    shared_layers: str | None = None
    wide_if: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    full_keys: Mapping[str, str] = field(default_factory=dict)
    window_keys: Mapping[str, str] = field(default_factory=dict)
    extra: Callable[[Values, int], Extra] | None = None
    mtp_is_dense: bool = False
    mtp_pattern: str | None = None
    mtp_extra: Callable[[Values, int], Extra] | None = None
    prepare: Callable[[Values], Values] | None = None
    weigh: Callable[[Values, Any], tuple[int, int]] | None = None
    by_files_alone: bool = False
    sublayers: int = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, reference: str, config: Mapping[str, Any]) -> Values:
        """A configuration under the names that rows use."""
        values = Values(reference, config, self.defaults, self.names)
        return values if self.prepare is None else self.prepare(values)
