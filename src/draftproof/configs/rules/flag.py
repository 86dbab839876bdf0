"""FLAG: spellings that the engine refuses, warns of, ignores or rewrites, and values beyond its bounds.

What a dialect noticed while it read the configuration (`Remark`) becomes a finding; the rest is judged from values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from draftproof.configs.engines.base import Effect, Remark
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import ANY_VERSION, Hit, Reading, Rule
from draftproof.configs.rules.versions import is_range
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources of the engines, per flag", read="2026-11")


def _remarks(*effects: Effect) -> Callable[[Case], Iterator[Hit]]:
    def judge(case: Case) -> Iterator[Hit]:
        for remark in case.remarks:
            if remark.effect not in effects or (remark.effect, remark.setting) in _JUDGED_BY_CONFIG:
                continue
            today = f" Today: {remark.today}." if remark.today else ""
            yield Hit(
                severity=_SEVERITY.get(remark.effect),
                detail=f"{remark.setting}: {remark.reason.rstrip('.')}.{today}",
                evidence=(
                    Evidence(
                        where="command",
                        key=remark.setting,
                        found=remark.found or "not given",
                        expected=remark.today,
                    ),
                ),
                remedy=f"Write {remark.today}." if remark.today and remark.effect != "inferred" else None,
                reading=_reading_of(case, remark),
            )

    return judge


_SEVERITY: Mapping[Effect, Severity] = {"unknown": Severity.INFO}
"""Where it is not the rule's own: what a file sets may be all there is, one flag hardly is."""
_JUDGED_BY_CONFIG: frozenset[tuple[Effect, str]] = frozenset(
    {
        ("refused", "--speculative-algorithm"),
        ("refused", "--speculative-use-rejection-sampling"),
        ("refused", "speculative_model"),
    }
)
"""A missing drafter and rejection sampling have rules of their own, CONFIG-02 and CONFIG-08."""


def _reading_of(case: Case, remark: Remark) -> Reading | None:
    """vLLM's dialect has judged the version already, and its ranges may be words; other dialects know the version that
    was read."""
    if remark.versions and is_range(remark.versions) and remark.source is not None:
        return Reading(case.engine, remark.versions, remark.source)
    if case.engine == "vllm":
        return None if remark.source is None else Reading(case.engine, ANY_VERSION, remark.source)
    engine = read.BY_ENGINE.get(case.engine)
    return engine if engine is None or remark.source is None else replace(engine, source=remark.source)


def _bounds(case: Case) -> Iterator[Hit]:
    depth = case.speculation.draft_tokens
    if case.engine == "vllm" and depth is not None and depth > 128:
        yield Hit(
            detail=f"{depth} draft tokens; the sampler's kernel takes at most 128.",
            evidence=(
                Evidence(
                    where="command", key="num_speculative_tokens", found=str(depth), expected="at most 128"
                ),
            ),
            reading=read.VLLM,
        )
    tree = case.speculation.tree
    if case.engine == "trtllm" and tree is not None:
        yield from _trtllm_tree(case)


def _trtllm_tree(case: Case) -> Iterator[Hit]:
    tree = case.speculation.tree
    assert tree is not None
    if tree.branching is not None and tree.branching > 32 and case.is_on("use_rejection_sampling"):
        yield Hit(
            detail=(
                f"Rejection sampling in a dynamic tree takes at most 32 branches, and {tree.branching} are asked "
                "for."
            ),
            evidence=(
                Evidence(
                    where="config",
                    key="dynamic_tree_max_topK",
                    found=str(tree.branching),
                    expected="at most 32",
                ),
            ),
            reading=read.TRTLLM,
        )
    if tree.depth is None or tree.num_nodes is None or tree.branching is None:
        return
    if not tree.depth <= tree.num_nodes <= tree.depth * tree.branching:
        yield Hit(
            detail=(
                f"max_total_draft_tokens is {tree.num_nodes}, outside of {tree.depth} to "
                f"{tree.depth * tree.branching}."
            ),
            evidence=(
                Evidence(
                    where="config",
                    key="max_total_draft_tokens",
                    found=str(tree.num_nodes),
                    expected=f"{tree.depth} to {tree.depth * tree.branching}",
                ),
            ),
            reading=read.TRTLLM,
        )


def _tree_under_overlap(case: Case) -> Iterator[Hit]:
    tree = case.speculation.tree
    if tree is None or tree.branching is None or tree.branching < 2 or case.is_on("disable_overlap_schedule"):
        return
    yield Hit(
        detail=(
            f"topk is {tree.branching} under the overlap scheduler. The documentation says that overlap needs topk "
            "1 and ends in an error otherwise; the source of this version has no such check and contains code for "
            "trees."
        ),
        evidence=(
            Evidence(
                where="command", key="--speculative-eagle-topk", found=str(tree.branching), expected="1"
            ),
        ),
    )


def _silent_block(case: Case) -> Iterator[Hit]:
    if case.speculation.verification != "block":
        return
    forced = case.environment("VLLM_USE_V2_MODEL_RUNNER") == "0"
    why = (
        "VLLM_USE_V2_MODEL_RUNNER=0"
        if forced
        else f"method {case.method}"
        if case.method in ("suffix", "custom", "pard", "p_eagle")
        else "use_heterogeneous_vocab"
        if case.speculation.different_vocabulary
        else None
    )
    if why is not None:
        yield Hit(
            detail=(
                f"Block verification needs model runner V2, and {why} runs V1, which verifies by the standard "
                "rule in silence."
            ),
            evidence=(Evidence(where="command", key="rejection_sample_method", found="block"),),
        )


def _idle_schedule(case: Case) -> Iterator[Hit]:
    if case.speculation.schedule and case.environment("VLLM_USE_V2_MODEL_RUNNER") == "1":
        yield Hit(
            detail=(
                "With model runner V2 the schedule was reported to reach the scheduler only: drafts are "
                "computed anyway."
            ),
            evidence=(
                Evidence(
                    where="command",
                    key="num_speculative_tokens_per_batch_size",
                    found="given with VLLM_USE_V2_MODEL_RUNNER=1",
                ),
            ),
        )


def _lossy(case: Case) -> Iterator[Hit]:
    if case.speculation.verification == "lossy":
        yield Hit(
            detail="The verification accepts tokens that the target would not have produced.",
            evidence=(Evidence(where="command", key="verification", found=_lossy_setting(case)),),
        )


_LOSSY_KEYS = (
    "rejection_sample_method", "accept_threshold_single", "accept_threshold_acc",
    "use_relaxed_acceptance_for_thinking", "posterior_threshold", "assistant_ensemble_weight",
)  # fmt: skip


def _lossy_setting(case: Case) -> str:
    named = [f"{key}={case.extra(key)}" for key in _LOSSY_KEYS if case.extra(key) is not None]
    return ", ".join(named) or "lossy"


def _gate(case: Case) -> Iterator[Hit]:
    threshold = case.extra("acceptance_rate_threshold")
    if threshold is not None:
        yield Hit(
            detail=(
                f"Below an acceptance of {threshold}, speculation is switched off for good, not until acceptance "
                "recovers."
            ),
            evidence=(Evidence(where="config", key="acceptance_rate_threshold", found=str(threshold)),),
        )


def _idle_drafter(case: Case) -> Iterator[Hit]:
    if case.has_drafter and case.is_inferred("--spec-type") and case.drafting.kind == "model":
        yield Hit(
            detail=(
                "No --spec-type is given, and this drafter is an ordinary model, whose type is not read from its "
                "file: it is loaded, takes memory and drafts nothing."
            ),
            evidence=(
                Evidence(where="command", key="--spec-type", found="not given", expected="draft-simple"),
                Evidence(where=case.drafter.reference, key="kind", found="an ordinary model"),
            ),
        )


_IDLE_DRAFTER = Source(name="llama.cpp build 11434, run with and without the flag", read="2026-11")


def _from_remarks(
    number: int, effect: Effect, severity: Severity, title: str, about: str, remedy: str
) -> Rule:
    return Rule(
        code=f"FLAG-{number:02}",
        title=title,
        severity=severity,
        about=about,
        remedy=remedy,
        source=_SOURCE,
        judge=_remarks(effect),
    )


RULES = (
    _from_remarks(
        1,
        "removed",
        Severity.ERROR,
        "A setting that no longer exists",
        "The engine refuses it at start, or takes it for something else. Pages and scripts live longer than flags.",
        "Leave it out, or write what replaced it.",
    ),
    _from_remarks(
        2,
        "deprecated",
        Severity.WARNING,
        "A setting that still works and will go",
        "The engine warns and rewrites it.",
        "Write today's spelling.",
    ),
    _from_remarks(
        3,
        "ignored",
        Severity.WARNING,
        "A setting without effect",
        "The engine accepts it and does not act on it: what you read in the command is not what runs.",
        "Leave it out, so that the command says what runs.",
    ),
    _from_remarks(
        4,
        "rewritten",
        Severity.WARNING,
        "A value that the engine replaces",
        "Two settings contradict each other, and the engine decides for one of them.",
        "Write the value that the engine takes.",
    ),
    _from_remarks(
        5,
        "inferred",
        Severity.INFO,
        "A setting that the engine deduces",
        "What is not written is deduced from paths, files or other settings, and can change with them.",
        "Write it down.",
    ),
    Rule(
        code="FLAG-06",
        title="A value beyond the bounds of a kernel",
        severity=Severity.ERROR,
        about="Kernels are built for a largest depth, breadth or number of nodes.",
        remedy="Lower the value to the bound.",
        source=_SOURCE,
        judge=_bounds,
    ),
    Rule(
        code="FLAG-07",
        title="A tree under the overlap scheduler",
        severity=Severity.WARNING,
        about="Documentation and source of SGLang say different things about topk above 1 together with overlap.",
        remedy="Use topk 1, or add --disable-overlap-schedule and measure both.",
        source=read.SGLANG.source,
        judge=_tree_under_overlap,
        methods=frozenset({"eagle", "eagle3", "mtp", "draft_model"}),
        readings=(read.SGLANG,),
    ),
    Rule(
        code="FLAG-08",
        title="Block verification that does not happen",
        severity=Severity.WARNING,
        about="Model runner V1 accepts the setting and verifies by the standard rule: lossless, without the gain.",
        remedy="Leave it out, or let model runner V2 run this method.",
        source=read.VLLM_RAN.source,
        judge=_silent_block,
        readings=(Reading("vllm", ">=0.28,<=0.33.0", read.VLLM_RAN.source),),
    ),
    Rule(
        code="FLAG-09",
        title="A schedule that saves nothing",
        severity=Severity.WARNING,
        about="A setting that only half of the engine reads costs what it was to save.",
        remedy="Look at the drafted tokens per step under load: at depth 0 they must be 0.",
        source=Source(name="vLLM issue 51510, pull request 57053", read="2026-11"),
        judge=_idle_schedule,
        readings=(
            Reading("vllm", "<=0.33.0", Source(name="vLLM issue 51510, pull request 57053", read="2026-11")),
        ),
    ),
    Rule(
        code="FLAG-10",
        title="A verification that changes the text",
        severity=Severity.ERROR,
        about=(
            "Lossy acceptance trades text for speed. Comparisons with plain decoding then compare two different "
            "models."
        ),
        remedy=(
            "Use the standard rule (thresholds of 1.0, no relaxed acceptance) unless you have judged the "
            "quality yourself."
        ),
        source=_SOURCE,
        judge=_lossy,
    ),
    Rule(
        code="FLAG-11",
        title="A gate that does not open again",
        severity=Severity.WARNING,
        about=(
            "A bad hour early on takes speculation away until the next restart, and nothing but a log line says "
            "so."
        ),
        remedy="Watch the drafted tokens per step, or use a schedule by batch size instead.",
        source=read.TRTLLM.source,
        judge=_gate,
        readings=(read.TRTLLM,),
    ),
    Rule(
        code="FLAG-12",
        title="A drafter that is loaded and drafts nothing",
        severity=Severity.ERROR,
        about=(
            "llama.cpp recognises MTP, DFlash and DSpark files by themselves, not an ordinary model. Answers show no "
            "draft_n then, and nothing else tells."
        ),
        remedy="Add --spec-type draft-simple, and look for draft_n in an answer's timings.",
        source=_IDLE_DRAFTER,
        judge=_idle_drafter,
        methods=frozenset({"draft_model"}),
        readings=(Reading("llamacpp", "==11434", _IDLE_DRAFTER),),
    ),
    Rule(
        code="FLAG-13",
        title="Settings that the engine refuses together",
        severity=Severity.ERROR,
        about="Each value is one that the engine knows; in this combination it ends at start with an error.",
        remedy="Add the setting that is missing, or leave this one out.",
        source=_SOURCE,
        judge=_remarks("refused"),
    ),
    Rule(
        code="FLAG-14",
        title="A setting that is not known here",
        severity=Severity.WARNING,
        about=(
            "It was not read for this version, is no setting of the engine's that is known here, or stands in a "
            "file that was not at hand. Nothing was checked about it."
        ),
        remedy="Let the engine itself confirm it (its --help), or give the file's contents as part of the command.",
        source=_SOURCE,
        judge=_remarks("unknown", "unread"),
    ),
)
