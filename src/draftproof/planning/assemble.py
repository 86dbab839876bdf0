"""From a checkpoint, a description of speculation and a few sizes to the setup that is planned.

Called by the command and by advice. Resolves what drafts (a second checkpoint, the target's own prediction layers, its
own weights, or nothing with weights), types by name, and the engine's defaults. Raises for what is not said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.parts import holds_embedding, weight_parts
from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.engines.account import build, said
from draftproof.configs.own import own_key, variable
from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.speculation import Deployment, Speculation
from draftproof.core.errors import DraftproofError
from draftproof.core.footprint import BYTES_PER_WEIGHT
from draftproof.planning.engines import memory_rules
from draftproof.planning.own import read_own
from draftproof.planning.setup import NO_ALLOWANCES, Allowances, Drafter, EngineMemory, Setup
from draftproof.planning.stages import checked_cuts, cut_by_engine

FLOAT_TYPES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
CACHE_TYPES = {
    **FLOAT_TYPES, "f32": 4.0, "f16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "int8": 1.0,
    "q8_0": 1.0625, "q5_0": 0.6875, "q4_0": 0.5625, "nvfp4": 0.5625,
}  # fmt: skip
"""Bytes per element, scales included where the format has them per block."""

WITH_WEIGHTS = (
    "draft_model", "pard", "eagle", "eagle3", "p_eagle", "medusa", "mlp_speculator", "dflash", "dspark",
)  # fmt: skip
_LOOK_UPS = ("none", "ngram", "suffix", "predicted", "lookahead")

Opener = Callable[[str], CheckpointView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user says beyond the deployment. Bytes are per device; None: the engine's default."""

    memory: int
    drafter: str | None = None
    draft_kv_dtype: str | None = None
    draft_window: int | None = None
    stage_layers: tuple[int, ...] = ()
    allowances: Allowances = NO_ALLOWANCES


def assemble(target: CheckpointView, deployment: Deployment, wish: Wish, open_view: Opener) -> Setup:
    """Raises DP001 for what is not planned, DP103 for what speculation must say and does not, DP106 for a drafter that
    is not there, DP110 for an engine whose memory is not known, DP403 and DP406 for checkpoints."""
    rules = memory_rules(deployment.engine)
    _require_sizes(deployment)
    shape = geometry(target)
    speculation = _leading(_acting(deployment))
    float_bytes, activation = _float_types(rules, deployment.dtype)
    kv_bytes = _cache_type("kv_dtype", deployment.kv_dtype, activation if rules.name != "llamacpp" else 2)
    draft_kv = wish.draft_kv_dtype or speculation.draft_kv_dtype
    drafter = _drafter(target, shape, speculation, wish, open_view)
    levels = _levels(speculation, shape) if speculation.method != "none" else 0
    parallel = deployment.tensor_parallel or 1
    seqs = deployment.max_num_seqs or (rules.max_num_seqs_speculative if levels else None)
    rows = deployment.max_num_batched_tokens
    return Setup(
        rules=rules,
        target=shape,
        method=speculation.method,
        drafter=drafter,
        levels=levels,
        draft_tokens=(speculation.draft_tokens or levels) if levels else 0,
        branching=(speculation.tree.branching or 1) if speculation.tree and levels else 1,
        memory=wish.memory,
        fraction=deployment.memory_fraction,
        max_num_seqs=seqs or rules.max_num_seqs(wish.memory),
        max_batched_tokens=rows or rules.max_batched_tokens(wish.memory),
        page_tokens=deployment.block_size or rules.page_tokens,
        float_bytes=float_bytes,
        activation_bytes=activation,
        kv_bytes=kv_bytes,
        draft_kv_bytes=_cache_type("draft_kv_dtype", draft_kv, kv_bytes),
        draft_weight_bits=_weight_bits(speculation, deployment.engine),
        draft_window=wish.draft_window,
        is_probabilistic=speculation.draft_sampling == "probabilistic",
        tensor_parallel=parallel,
        draft_tensor_parallel=(speculation.draft_tensor_parallel or parallel)
        if speculation.method in rules.own_ranks
        else parallel,
        graph_max_batch=deployment.graph_max_batch,
        cuts=_cuts(deployment, wish, rules, shape),
        parts=cache(lambda: weight_parts(target)),
        prefix_caching=deployment.prefix_caching is not False,
        limits_requests=deployment.max_num_seqs is not None
        or bool(levels and rules.max_num_seqs_speculative),
        own=read_own(deployment, rules) | _said_by_model(target),
        allowances=_without_graphs(wish.allowances) if deployment.enforce_eager else wish.allowances,
        by_memory=frozenset(
            name for name, size in {"max_num_seqs": seqs, "max_batched_tokens": rows}.items() if not size
        ),
    )


_LARGEST = {
    "max_num_seqs": 1 << 16, "max_num_batched_tokens": 1 << 24, "max_model_len": 1 << 24, "block_size": 1 << 16,
    "tensor_parallel": 1 << 10, "pipeline_parallel": 1 << 10, "graph_max_batch": 1 << 16,
}  # fmt: skip
"""Of what a deployment may say: beyond every machine, and small enough that sums of it mean something."""


def _require_sizes(deployment: Deployment) -> None:
    for name, largest in _LARGEST.items():
        value = getattr(deployment, name)
        if value is not None and value > largest:
            raise DraftproofError("DP001", name, str(value)[:40], f"at most {largest}", "Check the number.")


def _cuts(deployment: Deployment, wish: Wish, rules: EngineMemory, shape: Geometry) -> tuple[int, ...]:
    """Layers of each stage: as the user says, as the deployment says, else as the engine cuts. Empty for one stage."""
    said = wish.stage_layers or _told_cuts(deployment, rules)
    num_layers = shape.num_layers // shape.sublayers
    num_stages = deployment.pipeline_parallel or (len(wish.stage_layers) or 1)
    if num_stages == 1 and not wish.stage_layers:
        return ()
    if rules.stages is None:
        raise DraftproofError(
            "DP001",
            "pipeline_parallel",
            num_stages,
            f"1: {rules.title} has no pipeline parallelism, or it was not read",
            "Leave it out, or name another engine.",
        )
    if num_stages > num_layers:
        raise DraftproofError(
            "DP001",
            "pipeline_parallel",
            num_stages,
            f"at most {num_layers}, the model's layers",
            "Take fewer.",
        )
    if said:
        field = "stage_layers" if wish.stage_layers else str(rules.partition)
        return tuple(num * shape.sublayers for num in checked_cuts(said, num_layers, num_stages, field))
    return cut_by_engine(rules, shape, num_stages)


def _told_cuts(deployment: Deployment, rules: EngineMemory) -> tuple[int, ...]:
    """By a variable, or a key with a list. Raises DP001 for what is no list of numbers."""
    if rules.partition is None:
        return ()
    if rules.partition.isupper():
        text = variable(deployment, rules.partition)
        said: object = None if text is None else [part.strip() for part in text.split(",")]
    else:
        own = own_key(deployment, rules.partition)
        said = None if own is None else own.value
    if said is None:
        return ()
    parts = said if isinstance(said, list | tuple) else ()
    if not parts or not all(str(part).isdecimal() and len(str(part)) < 6 for part in parts):
        raise DraftproofError(
            "DP001", rules.partition, str(said)[:80], "numbers of layers", "Name the layers of each stage."
        )
    return tuple(int(str(part)) for part in parts)


def _said_by_model(target: CheckpointView) -> dict[str, bool]:
    """Of the target's configuration what engines ask beside its shape."""
    config = target.language_config
    found = {"is_hybrid_swa": config.get("is_hybrid_swa") is True}
    found["names_predictions"] = config.get("num_nextn_predict_layers") is not None
    return found


def _without_graphs(allowances: Allowances) -> Allowances:
    graphs = 0 if allowances.graphs is None else allowances.graphs
    return Allowances(runtime=allowances.runtime, graphs=graphs, activations=allowances.activations)


_SIZES = frozenset(
    ("speculation.depth", *(f"speculation.tree.{name}" for name in ("branching", "num_nodes")))
)


def _acting(deployment: Deployment) -> Speculation:
    """With what the engine drafts where nobody says it, as far as the text tells it."""
    if deployment.engine not in DIALECTS:
        return deployment.speculation
    usual = {
        item.setting: item.value
        for item in dialect(deployment.engine).defaults(deployment)
        if item.setting in _SIZES and item.value is not None
    }
    return build(deployment.engine, usual | said(deployment)).speculation


def _leading(speculation: Speculation) -> Speculation:
    """Of methods that take turns the one with weights: look-up holds nothing worth planning."""
    if not speculation.parts:
        return speculation
    heavy = [part for part in speculation.parts if part.method not in _LOOK_UPS]
    if len(heavy) > 1:
        raise DraftproofError(
            "DP104",
            "speculation.proposers",
            f"{len(heavy)} parts with weights",
            "at most one, for a plan",
            "Plan the parts one by one.",
        )
    return heavy[0] if heavy else max(speculation.parts, key=lambda part: part.draft_tokens or 0)


def _float_types(rules: EngineMemory, dtype: str | None) -> tuple[int | None, int]:
    """Bytes per element of weights that are floats (None: as stored), and of activations."""
    if dtype is None or dtype == "auto":
        return (None, 4) if rules.name == "llamacpp" else (2, 2)
    found = FLOAT_TYPES.get(dtype.removeprefix("torch."))
    if found is None:
        raise DraftproofError(
            "DP001", "dtype", dtype, f"auto, {', '.join(FLOAT_TYPES)}", "Name one of these types."
        )
    return found, found


def _cache_type(field: str, name: str | None, default: float) -> float:
    if name is None or name == "auto":
        return default
    found = CACHE_TYPES.get(name)
    if found is None:
        raise DraftproofError(
            "DP001", field, name, f"auto, {', '.join(CACHE_TYPES)}", "Name one of these types."
        )
    return found


def _weight_bits(speculation: Speculation, engine: str) -> float | None:
    """Our own engine rounds a drafter to four bits where nobody says otherwise and its kernels run."""
    name = speculation.draft_weights or "auto"
    if name == "auto" and (speculation.method == "self" or engine == "draftproof"):
        name = "int4"
    return 8 * BYTES_PER_WEIGHT[name] if name in BYTES_PER_WEIGHT else None


def _levels(speculation: Speculation, shape: Geometry) -> int:
    if speculation.levels is not None:
        return speculation.levels
    tree = speculation.tree
    if tree is not None and tree.num_nodes is not None:  # a trie is as deep as it is not wide
        return max(1, (tree.num_nodes + 1) // (tree.branching or 1))
    if speculation.method == "mtp" and shape.mtp_layers:
        return len(shape.mtp_layers)
    raise DraftproofError(
        "DP103",
        "speculation.num_speculative_tokens",
        "nothing",
        "draft tokens per round: look-ahead and buffers follow from it",
        'Name it: "num_speculative_tokens": 5.',
    )


def _drafter(
    target: CheckpointView, shape: Geometry, speculation: Speculation, wish: Wish, open_view: Opener
) -> Drafter | None:
    method = speculation.method
    name = wish.drafter or (speculation.drafter.name if speculation.drafter else None)
    if method in _LOOK_UPS or (method == "auto" and name is None):
        return None
    if method == "self" or name == "self":  # it reads and writes the target's own cache
        return replace(_of("the target's own weights", shape), layers=())
    if method == "mtp" and name is None:
        if not shape.mtp_layers or shape.mtp_weights is None:
            raise DraftproofError(
                "DP106",
                "speculation.method",
                f"mtp, but {target.reference} has {len(shape.mtp_layers)} prediction layers declared and "
                f"{'their' if shape.mtp_weights else 'no'} tensors of them",
                "a checkpoint with built-in prediction layers",
                "Choose another method, or name the checkpoint that holds them (--draft).",
            )
        return Drafter(
            name=f"{len(shape.mtp_layers)} prediction layers",
            layers=shape.mtp_layers,
            weights=shape.mtp_weights,
            hidden_size=shape.hidden_size,
            vocab_size=shape.vocab_size,
            num_parameters=shape.mtp_weights.float_elements,
            is_built_in=True,
            has_embedding=holds_embedding(target, shape.num_layers, is_of_predictions=True),
        )
    if method not in (*WITH_WEIGHTS, "mtp", "auto"):
        raise DraftproofError(
            "DP106",
            "speculation.method",
            method,
            f"a method whose memory is known: {', '.join((*_LOOK_UPS, *WITH_WEIGHTS, 'mtp', 'self'))}",
            "What it holds is not guessed.",
        )
    if name is None:
        raise DraftproofError(
            "DP103",
            "speculation.model",
            "nothing",
            "the drafter's checkpoint",
            "Name it: --draft D, or in the JSON.",
        )
    view = open_view(name)
    anchor = view.config.get("sample_from_anchor", "speculators_model_type" not in view.config)
    drafter = _of(name, geometry(view))
    has_embedding = method in ("draft_model", "pard") or holds_embedding(view, len(drafter.layers))
    return replace(drafter, samples_from_anchor=anchor is not False, has_embedding=has_embedding)


def _of(name: str, shape: Geometry) -> Drafter:
    return Drafter(
        name=name,
        layers=shape.layers,
        weights=shape.weights,
        hidden_size=shape.hidden_size,
        vocab_size=shape.draft_vocab_size,
        num_parameters=shape.parameters.total,
    )
