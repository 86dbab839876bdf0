"""Values beyond bounds, and settings that do something else than they say, judged from what the deployment says."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.checkpoints.heads import find_mtp
from draftproof.configs.engines.vllm.facts import MAX_DEPTH
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.facts.runners import VARIABLE, forced, lacking_in_v2, runner
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources of the engines, per flag", read="2026-11")


def _bounds(case: Case) -> Iterator[Hit]:
    depth = case.speculation.draft_tokens
    if case.engine == "vllm" and depth is not None and depth > MAX_DEPTH and runner(case) == "V1":
        yield on_command(
            f"{depth} draft tokens; the sampler of model runner V1 takes at most {MAX_DEPTH}.",
            "num_speculative_tokens",
            depth,
            f"at most {MAX_DEPTH}",
            reading=read.VLLM_BOTH,
        )
    tree = case.speculation.tree
    if case.engine == "trtllm" and tree is not None:
        yield from _trtllm_tree(case)


def _trtllm_tree(case: Case) -> Iterator[Hit]:
    tree = case.speculation.tree
    assert tree is not None
    if tree.branching is not None and tree.branching > 32 and case.asks_rejection_sampling:
        yield on_command(
            f"Rejection sampling in a dynamic tree takes at most 32 branches, and {tree.branching} are asked "
            "for.",
            "dynamic_tree_max_topK",
            tree.branching,
            "at most 32",
            where="config",
            reading=read.TRTLLM,
        )
    if tree.depth is None or tree.num_nodes is None or tree.branching is None:
        return
    if not tree.depth <= tree.num_nodes <= tree.depth * tree.branching:
        yield on_command(
            f"max_total_draft_tokens is {tree.num_nodes}, outside of {tree.depth} to "
            f"{tree.depth * tree.branching}.",
            "max_total_draft_tokens",
            tree.num_nodes,
            f"{tree.depth} to {tree.depth * tree.branching}",
            where="config",
            reading=read.TRTLLM,
        )


def _tree_under_overlap(case: Case) -> Iterator[Hit]:
    tree = case.speculation.tree
    if tree is None or tree.branching is None or tree.branching < 2 or case.is_on("disable_overlap_schedule"):
        return
    yield on_command(
        f"topk is {tree.branching} under the overlap scheduler. The documentation says that overlap needs topk "
        "1 and ends in an error otherwise; the source of this version has no such check and contains code for "
        "trees.",
        "--speculative-eagle-topk",
        tree.branching,
        "1",
    )


def _silent_block(case: Case) -> Iterator[Hit]:
    if case.speculation.verification != "block":
        return
    why = f"{VARIABLE}=0" if forced(case) == "V1" else lacking_in_v2(case)
    if why is not None:
        yield on_command(
            f"Block verification needs model runner V2, and {why} runs V1, which verifies by the standard "
            "rule in silence.",
            "rejection_sample_method",
            "block",
        )


_SCHEDULE_REPORTED = Source(name="vLLM issue 51510, pull request 57053", read="2026-11")
_SCHEDULE_READ = Source(
    name="vLLM 0.32.0 and 0.33.0 source: config/vllm.py, worker/gpu/spec_decode", read="2026-11"
)
_CUT = (
    "all drafts are computed and those beyond the scheduled number thrown away: only verifying gets cheaper"
)


def _idle_schedule(case: Case) -> Iterator[Hit]:
    schedule = case.speculation.schedule
    if not schedule or (case.deployment.data_parallel or 1) > 1:  # CONFIG-05 says that it is off
        return
    for on, versions, source, severity, effect in (
        ("V2", "<0.32", _SCHEDULE_REPORTED, Severity.WARNING,
         "it was reported to reach the scheduler only: drafts are computed anyway"),
        ("V2", ">=0.32,<=0.33.0", _SCHEDULE_READ, Severity.WARNING,
         _CUT if case.method == "draft_model" or _has_several_modules(case) else ""),
        ("V2", ">=0.32,<0.33", _SCHEDULE_READ, Severity.WARNING,
         _CUT if case.method in ("dflash", "dspark") and any(part.depth == 0 for part in schedule) else ""),
        ("V1", "==0.33.0", _SCHEDULE_READ, Severity.WARNING,
         "it is switched off with a warning, and every round drafts the full number"
         if case.method in ("suffix", "custom") else ""),
        ("V1", ">=0.32,<=0.33.0", _SCHEDULE_READ, Severity.INFO,
         "" if case.method in ("suffix", "custom") or case.deployment.enforce_eager
         else "it takes full CUDA graphs away (piecewise ones are left), which costs time at small batches"),
    ):  # fmt: skip
        if runner(case) == on and effect and case.is_within(versions):
            yield on_command(
                f"The schedule on model runner {on}, with {case.method}: {effect}.",
                "num_speculative_tokens_per_batch_size",
                f"{len(schedule)} ranges, on model runner {on}",
                severity=severity,
                remedy=_OFF_V1 if on == "V1" else None,
                reading=Reading("vllm", versions, source),
            )


_OFF_V1 = (
    "Leave the schedule out, or run a method that model runner V2 has, without VLLM_USE_V2_MODEL_RUNNER=0."
)


def _has_several_modules(case: Case) -> bool:
    """Whether the MTP layers are drafted with one after the other, each having its own step."""
    if case.method != "mtp" or case.has_drafter or case.target_view is None:
        return False
    declared = find_mtp(case.target).declared
    return declared is not None and declared[0].endswith("num_nextn_predict_layers") and declared[1] > 1


def _lossy(case: Case) -> Iterator[Hit]:
    if case.speculation.verification == "lossy":
        yield on_command(
            "The verification accepts tokens that the target would not have produced.",
            "verification",
            _lossy_setting(case),
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
        yield on_command(
            f"Below an acceptance of {threshold}, speculation is switched off for good, not until acceptance "
            "recovers.",
            "acceptance_rate_threshold",
            threshold,
            where="config",
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


_HEADS = Source(
    name="vLLM 0.33.0 source (config/model.py), SGLang 0.5.23 source (models/llama.py, models/qwen2.py)",
    read="2026-11",
)


def _undivided_heads(case: Case) -> Iterator[Hit]:
    ranks = case.deployment.tensor_parallel or 1
    if case.engine == "sglang":  # attention has ranks of its own
        whole_copies = (case.deployment.data_parallel or 1) if case.is_on("enable_dp_attention") else 1
        ranks //= max(whole_copies, case.size("attn_dp_size")) * max(1, case.size("attn_cp_size"))
    if ranks < 2:
        return
    num_heads = whole(case.target.language_config, "num_attention_heads")
    if num_heads and num_heads % ranks:
        yield on_command(
            f"The target has {num_heads} attention heads, which {ranks} ranks cannot share evenly.",
            "tensor_parallel_size",
            ranks,
            f"a divisor of {num_heads}",
        )


RULES = (
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
        title="A schedule that saves less than it says",
        severity=Severity.WARNING,
        about=(
            "A schedule by batch size has to reach the scheduler, the drafter and the graphs. In vLLM EAGLE and MTP "
            "with one layer draft what is scheduled; other methods draft everything, or run where the schedule is off."
        ),
        remedy="Compare time per step at your peak load with and without the schedule; choose a smaller fixed number.",
        source=_SCHEDULE_REPORTED,
        judge=_idle_schedule,
        readings=(Reading("vllm", "<=0.33.0", _SCHEDULE_READ),),
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
        code="FLAG-15",
        title="Ranks that cannot share the heads evenly",
        severity=Severity.ERROR,
        about="Tensor parallelism gives every rank as many attention heads; other numbers end at start with an error.",
        remedy="Take a number of ranks that divides the heads.",
        source=_HEADS,
        judge=_undivided_heads,
        readings=(Reading("vllm", "<=0.33.0", _HEADS), Reading("sglang", "<=0.5.23", _HEADS)),
    ),
)
