"""One description of speculation that no engine owns, and of the deployment around it.

Every dialect (`configs.engines`) parses into it and renders from it; rules, the planner and advice read it. Numbers
are in this product's terms (`docs/notation.md`): K draft tokens per round without the bonus token, tree nodes without
the root, batch ranges inclusive at both ends. None means "not said": the engine's own default holds, and a dialect
must not write it out. It describes; whether an engine can do it is the dialect's and the rules' business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, Literal

Method = Literal[
    "none", "ngram", "suffix", "predicted", "draft_model", "self", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator",
    "dflash", "dspark", "pard", "p_eagle", "lookahead", "early_exit", "cascade", "auto", "custom",
]  # fmt: skip
"""pard: a draft model that drafts in parallel; p_eagle: an EAGLE-3 head that does; custom: code of the user's."""

MODELS: frozenset[Method] = frozenset({"draft_model", "pard"})
"""Drafted by a model of its own."""
HEADS: frozenset[Method] = frozenset({"eagle", "eagle3", "p_eagle", "dflash", "dspark"})
"""Drafted by a head that was trained for the target and has a checkpoint of its own."""
DRAFTING: frozenset[Method] = MODELS | HEADS | {"mtp", "ngram", "suffix"}
"""What servers run today."""

Value = str | int | float | bool | None | tuple["Value", ...] | Mapping[str, "Value"]
"""A value of an engine's own key that has no neutral counterpart."""

NOTHING: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A checkpoint by directory, file or hub id. `quantization` is the engine's own word for it."""

    name: str
    revision: str | None = None
    quantization: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A draft tree: levels, branches per node, and nodes that are verified, the root not counted. With a tree the
    speculation's `depth` stays unsaid: `Tree.depth` holds the levels."""

    depth: int | None = None
    branching: int | None = None
    num_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Bounds of drafting from text: n-gram length in tokens, least hits, pool."""

    min_ngram: int | None = None
    max_ngram: int | None = None
    min_hits: int | None = None
    max_tree_depth: int | None = None
    max_cached_requests: int | None = None
    max_spec_factor: float | None = None
    min_token_prob: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """K draft tokens while between `low` and `high` requests (both inclusive; None: no upper end) are scheduled."""

    low: int
    high: int | None
    depth: int


def schedule_fault(schedule: Sequence[BatchRange]) -> str | None:
    """What keeps a schedule from saying one depth for each batch size from 1 on, or None. Engines fill gaps and tails
    each in its own way, so a dialect writes them out when it parses."""
    expected: int | None = 1
    for part in schedule:
        if part.low != expected:
            return f"a range begins at {part.low} where {expected or 'none'} was due"
        if (part.high is not None and part.high < part.low) or part.depth < 0:
            return f"an impossible range {part.low}–{part.high}: {part.depth}"
        expected = part.high + 1 if part.high is not None else None
    return "the last range has an upper end" if schedule and expected is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """`depth` is K of a chain; a tree says its own. `schedule` covers every batch size: `schedule_fault`.

    `verification`: standard (rejection sampling by Leviathan et al.), block (Sun et al.), coupled (the target's own
    sample), exact_match (accepted while equal to what the target picks), lossy (accepts what the target would not have
    produced). `extras` keeps an engine's keys that have no neutral counterpart as "engine.key", so that a way back to
    that engine loses nothing.
    """

    method: Method = "none"
    drafter: ModelRef | None = None
    depth: int | None = None
    min_depth: int | None = None
    tree: Tree | None = None
    lookup: LookUp | None = None
    schedule: tuple[BatchRange, ...] = ()
    adaptive: bool | None = None
    verification: Literal["standard", "block", "coupled", "exact_match", "lossy"] | None = None
    draft_sampling: Literal["greedy", "probabilistic"] | None = None
    min_confidence: float | None = None
    """Drafting stops early below this probability of the drafter's token."""
    different_vocabulary: bool | None = None
    draft_tensor_parallel: int | None = None
    draft_max_model_len: int | None = None
    draft_kv_dtype: str | None = None
    draft_weights: str | None = None
    parts: tuple[Speculation, ...] = ()
    extras: Mapping[str, Value] = field(default_factory=lambda: NOTHING)

    @property
    def levels(self) -> int | None:
        """Draft tokens on the longest path of a round: K, or the depth of the tree."""
        return self.tree.depth if self.tree else self.depth

    @property
    def draft_tokens(self) -> int | None:
        """Draft tokens that one round verifies, the root not counted: K, or the nodes of the tree."""
        return self.tree.num_nodes if self.tree else self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """An engine, a target and how both are run. `memory_fraction` is of the device's memory, as the engine defines it;
    `rest` are arguments of the command line that say nothing about speculation and go back unchanged to the same
    engine; `extras` as in `Speculation`."""

    engine: str
    version: str | None = None
    target: ModelRef | None = None
    speculation: Speculation = field(default_factory=Speculation)
    dtype: str | None = None
    kv_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    memory_fraction: float | None = None
    memory_bytes: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    block_size: int | None = None
    """Tokens per cache page."""
    graph_max_batch: int | None = None
    """Largest batch for which decode graphs are captured."""
    enforce_eager: bool | None = None
    prefix_caching: bool | None = None
    lora: bool | None = None
    extras: Mapping[str, Value] = field(default_factory=lambda: NOTHING)
    rest: tuple[str, ...] = ()


def as_dict(described: Deployment | Speculation) -> dict[str, Any]:
    """What is said, nested as the classes are, in types that JSON has. The method is always there."""
    found = _plain(described)
    assert isinstance(found, dict)
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kept = {item.name: getattr(value, item.name) for item in fields(value)}
        return {name: _plain(part) for name, part in kept.items() if _says(part)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _says(value: Any) -> bool:
    return value is not None and not (isinstance(value, tuple | Mapping) and not value)
