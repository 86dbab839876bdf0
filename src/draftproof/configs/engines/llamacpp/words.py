"""The words of llama.cpp's speculation: types, flags with their neutral settings, defaults, flags of the past. Data.

Called by this dialect's reading and writing. Read from the source of build 11434 (common/arg.cpp,
common/speculative.cpp, tools/server), November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.configs.reading.options import Kind, Option
from draftproof.core.finding import Source

READ_VERSION = "11434"
KNOWN_VERSIONS = ">=1000"
"""Builds: what is not known of one is said, not refused."""
SOURCE = Source(name="llama.cpp build 11434 source", read="2026-11")

DRAFT_TYPES: Mapping[str, str] = {
    "draft-simple": "draft_model",
    "draft-eagle3": "eagle3",
    "draft-mtp": "mtp",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
}
NGRAM_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
PRIORITY = (*NGRAM_TYPES, *DRAFT_TYPES)
"""In this order the implementations are asked, however the list is written: the first that has a draft."""
PLAIN_NGRAM = "ngram-simple"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that belongs to some types. `path` is a part's neutral setting; the lowest and highest value it takes."""

    name: str
    path: str
    kind: Kind = "int"
    low: int | None = None
    high: int | None = None
    aliases: tuple[str, ...] = ()


def _map_flags(kind: str) -> tuple[Flag, ...]:
    return (
        Flag(f"--spec-{kind}-size-n", "lookup.max_ngram", low=1, high=1024),
        Flag(f"--spec-{kind}-size-m", "depth", low=1, high=1024),
        Flag(f"--spec-{kind}-min-hits", "lookup.min_hits", low=1),
    )


_DRAFT_FLAGS = (
    Flag("--spec-draft-n-max", "depth", low=0),
    Flag("--spec-draft-n-min", "min_depth"),
    Flag("--spec-draft-p-min", "min_confidence", "float", aliases=("--draft-p-min",)),
    Flag("--spec-draft-sampling", "draft_sampling", "str"),
)
FLAGS: Mapping[str, tuple[Flag, ...]] = {
    **dict.fromkeys(DRAFT_TYPES, _DRAFT_FLAGS),
    "ngram-simple": _map_flags("ngram-simple"),
    "ngram-map-k": _map_flags("ngram-map-k"),
    "ngram-map-k4v": _map_flags("ngram-map-k4v"),
    "ngram-mod": (
        Flag("--spec-ngram-mod-n-match", "lookup.max_ngram", low=1, high=1024),
        Flag("--spec-ngram-mod-n-max", "depth", low=0, high=1024),
        Flag("--spec-ngram-mod-n-min", "min_depth", low=0, high=1024),
    ),
    "ngram-cache": (),
}
"""Type → its flags. Types that draft with a model share theirs."""

_MAP_DEFAULTS: Mapping[str, int | float | str] = {"lookup.max_ngram": 12, "depth": 48}
DEFAULTS: Mapping[str, Mapping[str, int | float | str]] = {
    **{
        kind: {"depth": 3, "min_depth": 0, "min_confidence": 0.0, "draft_sampling": "greedy"}
        for kind in DRAFT_TYPES
    },
    "ngram-simple": _MAP_DEFAULTS,
    "ngram-map-k": _MAP_DEFAULTS,
    "ngram-map-k4v": _MAP_DEFAULTS,
    "ngram-mod": {"lookup.max_ngram": 24, "depth": 64, "min_depth": 48},
    "ngram-cache": {"depth": 8},
}

MODEL = Option("--model", aliases=("-m",))
HUB = Option("--hf-repo", aliases=("-hf", "-hfr"))
DRAFTER = Option("--spec-draft-model", aliases=("-md", "--model-draft"))
DRAFTER_HUB = Option("--spec-draft-hf", aliases=("-hfd", "-hfrd", "--hf-repo-draft"))
TYPE = Option("--spec-type")
CONTEXT = Option("--ctx-size", "int", ("-c",))
PARALLEL = Option("--parallel", "int", ("-np",))
CACHE_K = Option("--cache-type-k", aliases=("-ctk",))
CACHE_V = Option("--cache-type-v", aliases=("-ctv",))
DRAFT_CACHE_K = Option("--spec-draft-type-k", aliases=("-ctkd", "--cache-type-k-draft"))
DRAFT_CACHE_V = Option("--spec-draft-type-v", aliases=("-ctvd", "--cache-type-v-draft"))
UNIFIED = Option("--kv-unified", "flag", ("-kvu",))
NOT_UNIFIED = Option("--no-kv-unified", "flag", ("-no-kvu",))
CACHES = Option("--cache-prompt", "flag")
CACHES_NOT = Option("--no-cache-prompt", "flag")
DEFAULT_SPECULATION = Option("--spec-default", "flag")
SYNTHETIC = (Option("--spec-synth-len"), Option("--spec-synth-rates"))

OWN = (
    Option("--spec-draft-p-split", aliases=("--draft-p-split",)),
    Option("--spec-draft-threads", aliases=("-td", "--threads-draft")),
    Option("--spec-draft-threads-batch", aliases=("-tbd", "--threads-batch-draft")),
    Option("--spec-draft-cpu-mask", aliases=("-Cd", "--cpu-mask-draft")),
    Option("--spec-draft-cpu-range", aliases=("-Crd", "--cpu-range-draft")),
    Option("--spec-draft-cpu-strict", aliases=("--cpu-strict-draft",)),
    Option("--spec-draft-prio", aliases=("--prio-draft",)),
    Option("--spec-draft-poll", aliases=("--poll-draft",)),
    Option("--spec-draft-cpu-mask-batch", aliases=("-Cbd", "--cpu-mask-batch-draft")),
    Option("--spec-draft-cpu-strict-batch", aliases=("--cpu-strict-batch-draft",)),
    Option("--spec-draft-prio-batch", aliases=("--prio-batch-draft",)),
    Option("--spec-draft-poll-batch", aliases=("--poll-batch-draft",)),
    Option("--spec-draft-override-tensor", aliases=("-otd", "--override-tensor-draft")),
    Option("--spec-draft-n-cpu-moe", aliases=("--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft")),
    Option("--spec-draft-device", aliases=("-devd", "--device-draft")),
    Option("--spec-draft-ngl", aliases=("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft")),
    Option("--lookup-cache-static", aliases=("-lcs",)),
    Option("--lookup-cache-dynamic", aliases=("-lcd",)),
    Option("--spec-draft-cpu-moe", "flag", ("-cmoed", "--cpu-moe-draft")),
    Option("--spec-draft-backend-sampling", "flag"),
    Option("--no-spec-draft-backend-sampling", "flag"),
)
"""Flags about drafting that only llama.cpp has: kept in the extras under their name without dashes."""

REMOVED: Mapping[str, tuple[str, ...]] = {
    "--draft": ("--spec-draft-n-max", "--spec-ngram-mod-n-max"),
    "--draft-n": ("--spec-draft-n-max", "--spec-ngram-mod-n-max"),
    "--draft-max": ("--spec-draft-n-max", "--spec-ngram-mod-n-max"),
    "--draft-min": ("--spec-draft-n-min", "--spec-ngram-mod-n-min"),
    "--draft-n-min": ("--spec-draft-n-min", "--spec-ngram-mod-n-min"),
    "--spec-ngram-size-n": (
        "--spec-ngram-simple-size-n", "--spec-ngram-map-k-size-n", "--spec-ngram-map-k4v-size-n",
        "--spec-ngram-mod-n-match",
    ),
    "--spec-ngram-size-m": (
        "--spec-ngram-simple-size-m", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k4v-size-m",
    ),
    "--spec-ngram-min-hits": (
        "--spec-ngram-simple-min-hits", "--spec-ngram-map-k-min-hits", "--spec-ngram-map-k4v-min-hits",
    ),
}  # fmt: skip
"""Flag of the past, refused today → the flags that took its place, of which the types in use decide."""

CACHE_TYPES: Mapping[str, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""llama.cpp's word → the neutral one; its quantised types (q8_0 and so on) are their own."""
QUANTISED_CACHES = frozenset(("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"))

KEEPS_STATES = frozenset({
    "kimi_k3", "kimi-k3", "qwen3_5_text", "qwen3_5_moe_text", "qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe",
    "lfm2", "lfm2_moe", "lfm2moe", "bailing_hybrid", "bailingmoe3", "qwen4_exp_text", "qwen4exp", "glm5_next",
    "glm5-next",
})  # fmt: skip
WITH_STATES = frozenset(("mtp", "eagle3", "dflash", "dspark"))
"""Models (model_type, or architecture of a GGUF file) and methods for which a running state is kept per draft token, to
go back to (`llm_arch_supports_rs_rollback`, `need_n_rs_seq`)."""
