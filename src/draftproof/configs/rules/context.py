"""CONTEXT: positions, rope scaling and windows of the drafter, against the context that is served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.checkpoints.rope import ROPE_KEYS, rope_kind, rope_rules
from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.rules.case import CHARS_PER_TOKEN, Case, real, whole
from draftproof.configs.rules.facts.runners import runner
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.configs.speculation import HEADS, MODELS
from draftproof.core.finding import Evidence, Severity, Source

_VLLM = Source(name="vLLM 0.33.0 source", read="2026-11")
_OVERRIDES = Reading(
    "vllm",
    "<=0.33.0",
    Source(
        name="vLLM issues 58080, 37435; pull request 58094",
        read="2026-11",
        url="https://github.com/vllm-project/vllm/issues/58080",
    ),
)
_PLAIN_ROPE = frozenset({"default", "linear", "llama3", "ntk", "proportional"})
"""Kinds of scaling under which vLLM lengthens a head's positions to the target's."""


def _effect(case: Case) -> str:
    """What the engine does with what lies beyond the drafter's positions."""
    if case.engine == "sglang":
        return "beyond it drafts are no longer accepted, and prompts get slower than without speculation"
    on = runner(case)
    if on == "V1":
        return "vLLM (model runner V1) stops drafting for the whole batch beyond it"
    if on == "V2" and case.is_within("==0.33.0"):
        kinds = {rope_kind(rule) for rule in rope_rules(case.drafter.language_config)}
        if case.method == "draft_model" or not kinds <= _PLAIN_ROPE:
            return "vLLM (model runner V2) lowers the served context to it, with a warning alone"
        return "vLLM lengthens the head's positions and drafts on, where it was never trained and is hardly accepted"
    return "beyond it drafts are no longer accepted"


_MAX_LEN = Reading(
    "vllm", ">=0.32,<=0.33.0", Source(name="vLLM 0.32.0 and 0.33.0 source: config/model.py", read="2026-11")
)
_SCALED_ALREADY = frozenset({"llama3", "longrope", "deepseek_llama_scaling"})
"""Kinds under which max_position_embeddings counts the scaling in."""
_YARN = frozenset({"yarn", "deepseek_yarn"})


def _positions(case: Case, view: CheckpointView) -> int | None:
    """Positions with the checkpoint's own rope scaling, as the engine counts them."""
    config = view.language_config
    plain = whole(config, "max_position_embeddings")
    if plain is None or "gemma3" in str(config.get("model_type")):
        return plain
    return max((_scaled(case, plain, rule) for rule in rope_rules(config)), default=plain)


def _scaled(case: Case, plain: int, rule: Mapping[str, Any]) -> int:
    kind, factor = rope_kind(rule), real(rule, "factor")
    if kind in _SCALED_ALREADY or factor is None or factor <= 0:
        return plain
    if case.engine == "vllm" and case.is_within(_MAX_LEN.versions):
        return plain if kind in _YARN else int(plain * factor)
    original = whole(rule, "original_max_position_embeddings")
    if original is None:
        return int(plain * factor) if case.engine == "sglang" else plain
    return max(plain, int(original * factor))


def _short_drafter(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    theirs = case.speculation.draft_max_model_len or _positions(case, case.drafter)
    served = case.deployment.max_model_len
    is_said = served is not None
    if served is None and case.target_view is not None:
        served = _positions(case, case.target_view)
    if theirs is None or served is None or theirs >= served:
        return
    beyond = _share_beyond(case, theirs)
    effect = _effect(case)
    yield Hit(
        detail=f"The drafter has {theirs} positions, and up to {served} are served: {effect}.{beyond}",
        evidence=(
            Evidence(
                where=case.drafter.reference,
                key="max_position_embeddings",
                found=str(theirs),
                expected=f"at least {served}",
            ),
        ),
        severity=Severity.WARNING if is_said or beyond else Severity.INFO,
    )


def _share_beyond(case: Case, positions: int) -> str:
    lengths = case.traffic.prompt_chars if case.traffic is not None else ()
    over = sum(chars > positions * CHARS_PER_TOKEN for chars in lengths)
    if not over:
        return ""
    return f" About {over / len(lengths):.0%} of the requests exceed it (by {CHARS_PER_TOKEN} characters per token)."


_ROPE_KEYS = frozenset({*ROPE_KEYS, "max_position_embeddings", "rope_theta"})


def _lost_override(case: Case) -> Iterator[Hit]:
    text = case.extra("hf_overrides")
    overrides: object = text
    if isinstance(text, str):
        try:
            overrides = json.loads(text)
        except (ValueError, RecursionError):
            return
    if not isinstance(overrides, Mapping):
        return
    inner = overrides.get("text_config")
    keys = sorted(_ROPE_KEYS & (set(overrides) | set(inner if isinstance(inner, Mapping) else ())))
    if keys:
        if runner(case) == "V2" and case.is_within("==0.33.0"):
            effect = "it turns positions as before and is hardly accepted beyond the native length"
        else:
            effect = "beyond the native length the whole batch gets dummy drafts, and none is accepted"
        yield on_command(
            f"--hf-overrides changes {', '.join(keys)} of the target and is not applied to the drafter: {effect}. "
            "Verifying is paid for all the same.",
            "--hf-overrides",
            ", ".join(keys),
        )


def _partial_rotary(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    ours, theirs = (_rotary_share(view) for view in (case.target, case.drafter))
    if ours is not None and ours != 1 and theirs is None:
        yield Hit(
            detail=(
                f"The target turns {ours:g} of each head (partial_rotary_factor), and the drafter's configuration "
                "does not say so."
            ),
            evidence=(
                Evidence(where=case.target.reference, key="partial_rotary_factor", found=f"{ours:g}"),
                Evidence(where=case.drafter.reference, key="partial_rotary_factor", found="not there"),
            ),
        )


def _rotary_share(view: CheckpointView) -> float | None:
    config = view.language_config
    found = (real(place, "partial_rotary_factor") for place in (config, *rope_rules(config)))
    return next((share for share in found if share is not None), None)


def _draft_limit(case: Case) -> Iterator[Hit]:
    limit = case.speculation.draft_max_model_len
    if limit is None:
        return
    for view, whose in (
        (case.target, "target"),
        (case.drafter if case.has_drafter else case.target, "drafter"),
    ):
        positions = _positions(case, view)
        if positions is not None and limit > positions:
            yield on_command(
                f"max_model_len of the drafter is {limit}, and the {whose} has {positions} positions.",
                "max_model_len",
                limit,
                f"at most {positions}",
                where="speculative config",
            )
            return


def _windowed_tree(case: Case) -> Iterator[Hit]:
    if case.speculation.tree is None:
        return
    config = case.target.language_config
    window, latent = whole(config, "sliding_window"), whole(config, "kv_lora_rank")
    if (window and config.get("use_sliding_window") is not False) or latent:
        kind = "latent attention" if latent else f"a sliding window of {window}"
        yield on_command(
            f"The target has {kind}. TensorRT-LLM's feature page rules dynamic trees out for it; its support "
            "matrix says that sliding windows work.",
            "kv_lora_rank" if latent else "sliding_window",
            latent or window,
            where="config.json",
        )


_ANSWER_OF_LENGTH = Source(
    name="vLLM 0.33.0 source (config/model.py), SGLang 0.5.23 source (configs/model_config.py), llama.cpp build "
    "11434, run",
    read="2026-11",
)
_LENGTH_READINGS = (
    Reading("vllm", ">=0.32,<=0.33.0", _ANSWER_OF_LENGTH),
    Reading("sglang", "==0.5.23", _ANSWER_OF_LENGTH),
    Reading("llamacpp", "==11434", _ANSWER_OF_LENGTH),
)
_ALLOWS_MORE = {
    "vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}
_LENGTH_FLAG = {"vllm": "--max-model-len", "sglang": "--context-length", "llamacpp": "--ctx-size"}
_CHANGES_LENGTH = (
    "hf_overrides",
    "hf_config_path",
    "json_model_override_args",
)
_TRUE = ("1", "true", "yes", "y")


def _longest(case: Case, view: CheckpointView) -> int | None:
    """The most that the engine derives from the checkpoint, with its own rope scaling."""
    config = view.language_config
    plain = whole(config, "max_position_embeddings")
    found = [_positions(case, view), whole(config, "model_max_length")]
    for rule in rope_rules(config):
        factor = real(rule, "factor")
        if plain is not None and factor is not None and "original_max_position_embeddings" not in rule:
            found.append(int(plain * factor))
    return max((length for length in found if length is not None), default=None)


def _is_stretched(case: Case) -> bool:
    """Whether llama.cpp's command scales YaRN, which alone moves the context that its slots are cut to."""
    rules = rope_rules(case.target.language_config)
    said = case.extra("rope_scaling")
    is_yarn = said == "yarn" if said is not None else any(rope_kind(rule) in _YARN for rule in rules)
    return is_yarn and any(case.extra(key) is not None for key in ("rope_scale", "rope_freq_scale"))


def _beyond_target(case: Case) -> Iterator[Hit]:
    served, is_llamacpp = case.deployment.max_model_len, case.engine == "llamacpp"
    changes = ("override_kv",) if is_llamacpp else _CHANGES_LENGTH
    if served is None or any(case.extra(key) is not None for key in changes):
        return
    if is_llamacpp and _is_stretched(case):
        return
    view = case.target
    longest = whole(view.language_config, "max_position_embeddings") if is_llamacpp else _longest(case, view)
    if longest is None or served <= longest:
        return
    variable = _ALLOWS_MORE.get(case.engine)
    is_allowed = variable is None or (case.environment(variable) or "").lower() in _TRUE
    if is_llamacpp:
        effect = "a request is cut off there, and the cache takes memory for all of them"
    elif is_allowed:
        effect = "it starts with a warning"
    else:
        effect = f"{case.title} refuses to start, unless {variable}=1 is set"
    yield on_command(
        f"{served} positions are asked for, and the target has {longest}: {effect}.",
        _LENGTH_FLAG[case.engine],
        served,
        f"at most {longest}",
        severity=Severity.WARNING if is_allowed else None,
    )


RULES = (
    Rule(
        code="CONTEXT-01",
        title="The drafter has fewer positions than are served",
        severity=Severity.WARNING,
        about=(
            "Heads are often trained on short texts (2,048 positions). Longer requests are drafted badly or not at "
            "all; in some engines one long request stops drafting for everybody in its batch."
        ),
        remedy=(
            "Serve at most the drafter's positions with speculation, or use a drafter that was trained on "
            "longer texts."
        ),
        source=Source(name="SGLang issue 6783, vLLM pull request 22935, vLLM 0.33.0 source", read="2026-11"),
        judge=_short_drafter,
        methods=MODELS | HEADS | {"auto"},
    ),
    Rule(
        code="CONTEXT-02",
        title="An override of the target's positions does not reach the drafter",
        severity=Severity.ERROR,
        about=(
            "Overrides given as a dictionary are not applied to drafters or MTP layers. Reported: at 265 thousand "
            "tokens 0 of 19,998 drafts accepted."
        ),
        remedy=(
            "Write the rope settings into config.json of target and drafter (in copies) instead of --hf-overrides, "
            "or serve the native length with speculation."
        ),
        source=_OVERRIDES.source,
        judge=_lost_override,
        methods=MODELS | HEADS | {"mtp", "auto"},
        readings=(_OVERRIDES,),
    ),
    Rule(
        code="CONTEXT-03",
        title="The head does not say that only part of each head is turned",
        severity=Severity.INFO,
        about=(
            "A head that was trained with full rotation where the target turns a part, or the other way round, "
            "validates well and is hardly accepted when served (reported: 0.87 in training, 0.04 in serving)."
        ),
        remedy=(
            "Compare the acceptance of the first draft token in serving with that of the training before "
            "anything else."
        ),
        source=Source(name="speculators issues 613 and 738, vLLM pull request 46301", read="2026-11"),
        judge=_partial_rotary,
        methods=HEADS,
    ),
    Rule(
        code="CONTEXT-04",
        title="The drafter's limit lies beyond what a model has",
        severity=Severity.ERROR,
        about="vLLM refuses a draft max_model_len above the drafter's or the target's own.",
        remedy="Lower max_model_len in the speculative config, or leave it out.",
        source=_VLLM,
        judge=_draft_limit,
        readings=(Reading("vllm", ">=0.24,<=0.33.0", _VLLM),),
    ),
    Rule(
        code="CONTEXT-05",
        title="A dynamic tree on windows or latent attention",
        severity=Severity.WARNING,
        about="Two pages of TensorRT-LLM's documentation contradict each other here.",
        remedy="Use a chain (no dynamic tree) until a run of yours has shown that the tree works.",
        source=Source(name="TensorRT-LLM documentation of 1.2 and main of mid-2026", read="2026-11"),
        judge=_windowed_tree,
        readings=(
            Reading(
                "trtllm", ">=1.2,<1.4", Source(name="TensorRT-LLM, main branch of mid-2026", read="2026-11")
            ),
        ),
    ),
    Rule(
        code="CONTEXT-06",
        title="More positions are asked for than the target has",
        severity=Severity.ERROR,
        about=(
            "vLLM and SGLang refuse a context above what config.json gives with its rope scaling, unless a variable "
            "allows it. llama.cpp gives no request more than the context in the file, whatever --ctx-size says, unless "
            "YaRN is scaled in the command."
        ),
        remedy=(
            "Lower the context to what the target has, or write the rope scaling into its config.json (llama.cpp: "
            "--rope-scaling yarn --rope-scale N)."
        ),
        source=_ANSWER_OF_LENGTH,
        judge=_beyond_target,
        readings=_LENGTH_READINGS,
    ),
)
