"""What is planned: a target, perhaps a drafter, an engine's rules, and the sizes that memory follows from.

Made by the command and by advice; read by `memory`, `capacity` and the engines' rules. Numbers are per device where
they are bytes. Frozen: a knob is a changed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from draftproof.checkpoints.geometry import Geometry
from draftproof.checkpoints.layers import Layer
from draftproof.checkpoints.parts import Parts
from draftproof.checkpoints.weights import Weights
from draftproof.configs.speculation import Method, Value
from draftproof.planning.paging import Pool

MIB = 2**20
GIB = 2**30


class Certainty(StrEnum):
    """exact: from headers. computed: by a formula from shapes. rule: by a rule read from the engine. estimate: from
    shapes, by what a pass has to hold. assumption: not known for this engine; an allowance that the user can set."""

    EXACT = "exact"
    COMPUTED = "computed"
    RULE = "rule"
    ESTIMATE = "estimate"
    ASSUMPTION = "assumption"


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the memory of one device. `where`: fixed before the cache, the cache itself, or dynamic beside it."""

    name: str
    num_bytes: int
    certainty: Certainty
    why: str
    is_dynamic: bool = False
    """Needed in passes; an engine whose fraction covers weights and cache only takes it from the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """What drafts besides the target: its layers' caches and its weights. Look-up has none of both.

    samples_from_anchor   a DSpark head's first draft comes from the row of the last token (`sample_from_anchor`), so
                          that a block of drafts needs no row more
    is_built_in           the target's own prediction layers
    has_embedding         its weights hold a matrix of tokens, so that it does not take the target's
    """

    name: str
    layers: tuple[Layer, ...]
    weights: Weights
    hidden_size: int
    vocab_size: int
    num_parameters: int
    samples_from_anchor: bool = True
    has_embedding: bool = True
    is_built_in: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """Bytes per device for what nobody knows beforehand; None: the engine's default assumption."""

    runtime: int | None = None
    graphs: int | None = None
    activations: int | None = None


NO_ALLOWANCES = Allowances()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipeline, of which a setup is. `cuts`: layers of each stage; `layers`: of the whole model."""

    index: int
    cuts: tuple[int, ...]
    layers: tuple[Layer, ...]

    @property
    def is_last(self) -> bool:
        return self.index == len(self.cuts) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One configuration of one engine.

    levels, draft_tokens   draft tokens on the longest path and of the whole draft; 0 without speculation
    branching              branches per node of a tree; 1: a chain
    memory                 bytes of one device
    fraction               of it, as the engine defines the fraction; None: the engine's default
    max_num_seqs           requests that may run at once: buffers are sized by it
    max_batched_tokens     rows of the largest pass
    page_tokens            tokens per page of the cache
    float_bytes            per element of weights that are floats; None: as stored
    activation_bytes       per element of activations
    kv_bytes, draft_kv_bytes   per element of the caches
    draft_weight_bits      None: as `float_bytes` says
    draft_window           tokens that the drafter's cache keeps; None: all
    cuts                   layers of each stage of a pipeline; empty: there is none
    stage                  the one that this setup is of; None: of the whole
    parts                  weights by what a stage takes of them
    prefix_caching         as the engine has it by default, unless somebody turned it off
    limits_requests        `max_num_seqs` is a limit that somebody set, or that speculation sets
    own                    settings of the engine's own, by `EngineMemory.reads`; what the target's configuration says
                           to engines: `is_hybrid_swa`, and `names_predictions` for num_nextn_predict_layers
    by_memory              of `max_num_seqs` and `max_batched_tokens` those that nobody said: the engine goes by memory
    """

    rules: EngineMemory
    target: Geometry
    method: Method = "none"
    drafter: Drafter | None = None
    levels: int = 0
    draft_tokens: int = 0
    branching: int = 1
    memory: int
    fraction: float | None = None
    max_num_seqs: int
    max_batched_tokens: int
    page_tokens: int
    float_bytes: int | None = None
    activation_bytes: int = 2
    kv_bytes: float = 2
    draft_kv_bytes: float = 2
    draft_weight_bits: float | None = None
    draft_window: int | None = None
    is_probabilistic: bool = False
    tensor_parallel: int = 1
    draft_tensor_parallel: int = 1
    graph_max_batch: int | None = None
    allowances: Allowances = NO_ALLOWANCES
    cuts: tuple[int, ...] = ()
    stage: Stage | None = None
    parts: Callable[[], Parts] | None = None
    prefix_caching: bool = True
    limits_requests: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)
    by_memory: frozenset[str] = frozenset()

    def on(self, memory: int) -> Setup:
        """The same on devices of `memory` bytes; a size that was turned since stays as it is."""
        seqs, rows = self.rules.max_num_seqs, self.rules.max_batched_tokens
        found = replace(self, memory=memory)
        if "max_num_seqs" in self.by_memory and self.max_num_seqs == seqs(self.memory):
            found = replace(found, max_num_seqs=seqs(memory))
        if "max_batched_tokens" in self.by_memory and self.max_batched_tokens == rows(self.memory):
            found = replace(found, max_batched_tokens=rows(memory))
        return found

    @property
    def num_stages(self) -> int:
        return max(1, len(self.cuts))

    @property
    def all_layers(self) -> tuple[Layer, ...]:
        """Of the whole model."""
        return self.target.layers if self.stage is None else self.stage.layers

    @property
    def draws(self) -> bool:
        """Whether its devices compute logits, and drafts: the last stage does."""
        return self.stage is None or self.stage.is_last

    @property
    def used_fraction(self) -> float | None:
        return self.rules.fraction if self.fraction is None else self.fraction

    @property
    def verify_rows(self) -> int:
        """Rows of one pass whose logits are needed: a root and its drafts for each request, as far as a pass goes."""
        rows = self.max_num_seqs * (1 + self.draft_tokens)
        return min(rows, self.max_batched_tokens) if self.rules.bounds_rows else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """How one engine divides memory.

    fraction_covers   all: everything the engine takes; static: weights and cache, the rest is what remains; free: of
                      what is free when all else is loaded, for the cache; whole: no fraction, memory is a limit
    max_num_seqs, max_batched_tokens   defaults, by a device's bytes; max_num_seqs_speculative where the engine lowers
                      the number with speculation
    lookahead         tokens beyond a request's own that are reserved for drafts
    pool              the cache's pages, for target and drafter together
    buffers           memory of passes
    knobs             neutral name → this engine's flag; a knob that is not here does not exist in the engine
    stages            how a pipeline cuts so many layers into so many stages; None: the engine has no pipeline
    partition         where its own cuts are said: a variable in capitals, or a key
    shares_least      every stage gives its cache what the stage with the least has left
    reads             keys of the engine's own that change its pools, with what reads a value (raises ValueError)
    own_ranks         methods whose drafter may run on another number of devices than the target
    bounds_rows       rows of drafts count among those of the largest pass
    unknowns          what is not known, in words
    """

    name: str
    title: str
    read_version: str
    page_tokens: int
    max_num_seqs: Callable[[int], int]
    max_num_seqs_speculative: int | None = None
    max_batched_tokens: Callable[[int], int]
    fraction: float | None
    fraction_covers: Literal["all", "static", "free", "whole"]
    lookahead: Callable[[Setup], int]
    pool: Callable[[Setup], Pool]
    buffers: Callable[[Setup], tuple[Item, ...]]
    knobs: Mapping[str, str]
    stages: Callable[[int, int], tuple[int, ...]] | None = None
    partition: str | None = None
    shares_least: bool = False
    reads: Mapping[str, Callable[[Value], Any]] = field(default_factory=dict)
    own_ranks: frozenset[Method] = frozenset()
    bounds_rows: bool = False
    unknowns: tuple[str, ...] = ()
    warnings: Callable[[Setup], tuple[str, ...]] = lambda setup: ()
