"""CACHE: what has to be taken back when drafts are rejected, and what speculation does to the cache of prefixes."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.checkpoints.states import keeps_state
from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.engines.llamacpp.words import KEEPS_STATES, WITH_STATES
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.rule import ANY_VERSION, Hit, Reading, Rule, on_command
from draftproof.configs.speculation import DRAFTING, MODELS
from draftproof.core.finding import Evidence, Severity, Source

_RECURRENT_LAYERS = ("linear_attention", "mamba", "conv", "recurrent", "short_conv")
_TRANSFORMERS = Source(
    name="transformers pull requests 31478 and 46937",
    read="2026-11",
    url="https://github.com/huggingface/transformers/pull/46937",
)
_LLAMACPP = Source(
    name="llama.cpp pull requests 20080, 28118; issue 13747",
    read="2026-11",
    url="https://github.com/ggml-org/llama.cpp/pull/28118",
)
_VLLM_PREFIX = Source(name="vLLM issues 38182, 53670, 54360, 57128", read="2026-11")


def _running_state(view: CheckpointView) -> tuple[str, str] | None:
    """The key and value that show layers with a running state."""
    config = view.language_config
    kinds = config.get("layer_types", config.get("layers_block_type"))
    for kind in kinds if isinstance(kinds, list) else ():
        if isinstance(kind, str) and kind.lower() in _RECURRENT_LAYERS:
            return "layer_types", kind
    model_type = config.get("model_type")
    if isinstance(model_type, str) and keeps_state(model_type):
        return "model_type", model_type
    return None


def _views(case: Case) -> Iterator[tuple[str, CheckpointView]]:
    yield "target", case.target
    if case.has_drafter and case.method in MODELS | {"auto"}:
        yield "drafter", case.drafter


_REFUSED = (
    "Transformers refuses assisted and look-up decoding for such models, and versions before the refusal gave other "
    "text in silence"
)
_SAVED = (
    "llama.cpp saves the whole state in every round and computes accepted tokens again after a rejection (reported: "
    "three quarters of the round's time); older builds refuse or loop"
)
_KEPT = "llama.cpp 11434 keeps a state per draft token to go back to, which costs memory; older builds save all of it"


def _cannot_rewind(case: Case) -> Iterator[Hit]:
    for whose, view in _views(case):
        found = _running_state(view)
        if found is None:
            continue
        severity, effect, remedy = Severity.ERROR, _REFUSED, None
        if case.engine == "llamacpp":
            keeps = case.method in WITH_STATES and view.language_config.get("model_type") in KEEPS_STATES
            severity, effect = (Severity.INFO, _KEPT) if keeps else (Severity.WARNING, _SAVED)
            remedy = "Measure against plain decoding first."
        yield Hit(
            detail=f"The {whose} has layers with a running state, which rejected drafts have changed: {effect}.",
            evidence=(Evidence(where=view.reference, key=found[0], found=found[1]),),
            severity=severity,
            remedy=remedy,
        )


def _rotating(case: Case) -> Iterator[Hit]:
    if case.is_on("swa_full"):
        return
    for whose, view in _views(case):
        window = whole(view.language_config, "sliding_window")
        if window and view.language_config.get("use_sliding_window") is not False:
            yield Hit(
                detail=(
                    f"The {whose} keeps the last {window} tokens and one batch of some layers in a rotating cache: an "
                    "earlier prefix is reused only from a checkpoint that was kept of it."
                ),
                evidence=(Evidence(where=view.reference, key="sliding_window", found=str(window)),),
            )


def _quantised_cache(case: Case) -> Iterator[Hit]:
    for name, dtype in (
        ("kv_dtype", case.deployment.kv_dtype),
        ("draft_kv_dtype", case.speculation.draft_kv_dtype),
    ):
        if dtype and "turboquant" in dtype.lower():
            yield on_command(
                f"{name} is {dtype}: with speculation, texts that loop were reported.",
                "--kv-cache-dtype",
                dtype,
            )


def _prefixes(case: Case) -> Iterator[Hit]:
    if case.deployment.prefix_caching is False:
        return
    hybrid = case.target_view is not None and _running_state(case.target_view) is not None
    yield on_command(
        "The last block of a cached prefix is computed again under this method: reported hit rates fell from "
        "92 to "
        "71 %, and for some from 97 to 40 %."
        + (" On hybrid targets silent corruption was reported, too." if hybrid else ""),
        "prefix caching",
        "on (the default)",
    )


RULES = (
    Rule(
        code="CACHE-01",
        title="A state that cannot be taken back",
        severity=Severity.ERROR,
        about=(
            "Attention forgets a rejected draft by dropping rows. Recurrent and convolutional layers keep one "
            "state that every token changes; it has to be saved before and restored after a rejection."
        ),
        remedy="Use an engine that restores the state, or decode plainly.",
        source=Source(name="mlx-lm issues 1427, 1446, 1914; llama.cpp pull request 20080", read="2026-11"),
        judge=_cannot_rewind,
        methods=DRAFTING | {"auto"},
        readings=(
            Reading("transformers", ">=4.43,<=5.24.0", _TRANSFORMERS),
            Reading("llamacpp", "<=11434", _LLAMACPP),
        ),
    ),
    Rule(
        code="CACHE-02",
        title="A rotating cache of a sliding window",
        severity=Severity.INFO,
        about="A cache that overwrites old tokens saves memory and can give back only what it still holds.",
        remedy=(
            "Add --swa-full where parts of long prompts are reused; it costs the memory of a full cache."
        ),
        source=_LLAMACPP,
        judge=_rotating,
        methods=DRAFTING | {"auto"},
        readings=(Reading("llamacpp", "<=11434", _LLAMACPP),),
    ),
    Rule(
        code="CACHE-03",
        title="A cache in few bits under speculation",
        severity=Severity.WARNING,
        about="Some quantised caches return degenerate text once several rows are verified at a time.",
        remedy="Compare with another cache type on your own requests, long ones too.",
        source=Source(name="vLLM issues 40831 and 40880", read="2026-11"),
        judge=_quantised_cache,
        methods=DRAFTING | {"auto"},
        readings=(Reading("vllm", ANY_VERSION, Source(name="vLLM issues 40831 and 40880", read="2026-11")),),
    ),
    Rule(
        code="CACHE-04",
        title="Fewer hits in the cache of prefixes",
        severity=Severity.INFO,
        about=(
            "The drafter needs hidden states that a cached prefix does not hold, so part of it is computed again. "
            "What is won in decoding can be lost in the time to the first token."
        ),
        remedy="Compare time to first token and cached tokens with and without speculation on your own prompts.",
        source=_VLLM_PREFIX,
        judge=_prefixes,
        methods=frozenset({"eagle", "eagle3", "p_eagle", "mtp"}),
        readings=(Reading("vllm", ">=0.10,<=0.33.0", _VLLM_PREFIX),),
    ),
)
