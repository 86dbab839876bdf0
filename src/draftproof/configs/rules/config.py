"""CONFIG: whether the configuration is complete, and of a method that the engine has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from draftproof.configs.engines.llamacpp.names import is_file
from draftproof.configs.engines.vllm.facts import OWN_RANKS
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.facts.methods import find_method, of_engine
from draftproof.configs.rules.facts.runners import (
    READING,
    VARIABLE,
    forced,
    lacking_in_v1,
    lacking_in_v2,
    runner,
)
from draftproof.configs.rules.facts.stages import is_adaptive, is_frozen
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.configs.speculation import DRAFTING, HEADS, MODELS, Method
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources of the engines", read="2026-11")


def _no_such_method(case: Case) -> Iterator[Hit]:
    known = of_engine(case.engine)
    if case.method == "none" or not known:
        return
    fact = find_method(case.engine, case.method)
    if fact is None and not (case.engine == "trtllm" and case.method == "eagle"):
        yield on_command(
            f"{case.title} has no method {case.method}.",
            "method",
            case.method,
            ", ".join(sorted({other.method for other in known if other.gone is None})),
            reading=read.BY_ENGINE.get(case.engine),
        )
    elif fact is not None and fact.gone is not None and case.is_within(fact.gone.versions):
        yield on_command(
            f"{case.method} was removed from {case.title} ({fact.gone.versions}).",
            "method",
            case.method,
            remedy=fact.instead,
            reading=fact.gone,
        )


def _no_drafter(case: Case) -> Iterator[Hit]:
    fact = find_method(case.engine, case.method)
    if fact is None or fact.drafter != "checkpoint" or case.has_drafter:
        return
    target, is_sought = case.deployment.target, False
    if target is not None and case.engine == "llamacpp" and case.method in HEADS:
        is_sought = not is_file(target.name)
    yield Hit(
        detail=f"{case.method} drafts with a checkpoint of its own, and none is named"
        + (
            ": llama.cpp looks for one in the target's repository, and without it drafts nothing."
            if is_sought
            else "."
        ),
        evidence=tuple(
            Evidence(where="command", key=key, found=found)
            for key, found in zip(_NAMING[case.engine], (case.method, "not given"), strict=True)
        ),
        severity=Severity.INFO if is_sought else None,
    )


_NAMING: Mapping[str, tuple[str, str]] = {
    "draftproof": ("method", "model"),
    "vllm": ("method", "model"),
    "sglang": ("--speculative-algorithm", "--speculative-draft-model-path"),
    "trtllm": ("decoding_type", "speculative_model"),
    "llamacpp": ("--spec-type", "--spec-draft-model"),
    "transformers": ("generate", "assistant_model"),
    "openvino": ("LLMPipeline", "draft_model"),
    "fireworks": ("deployment", "draftModel"),
}
"""How engines name the method and its drafter."""
_OF_THE_CHECKPOINT: frozenset[Method] = frozenset({"mtp", "dspark"})
"""Methods whose drafter says how many tokens it drafts."""
_NEEDS_DEPTH: frozenset[Method] = DRAFTING - {"suffix"} | {"custom"}


def _no_depth(case: Case) -> Iterator[Hit]:
    is_bundled = case.method in _OF_THE_CHECKPOINT
    if case.speculation.depth is None and not (is_bundled and case.has_drafter):
        why = (
            "takes it from a drafter that is named alone" if is_bundled else "has no default for this method"
        )
        yield on_command(
            f"num_speculative_tokens is not given, and vLLM {why}.",
            "num_speculative_tokens",
            "not given",
            "a number from 1",
        )


def _draft_parallel(case: Case) -> Iterator[Hit]:
    draft, target = case.speculation.draft_tensor_parallel, case.deployment.tensor_parallel or 1
    if draft is None or draft == target:
        return
    expected, severity = str(target), Severity.ERROR
    if draft != 1:
        expected = f"1 or {target}"
        why = f"vLLM takes 1 or as many as the target has ({target})"
    elif case.method in MODELS and runner(case) == "V1":
        why = f"model runner V1, which this runs on, takes as many as the target has ({target}) alone"
    elif case.method not in OWN_RANKS:
        severity = Severity.WARNING
        why = f"vLLM reads this of draft models and DSpark alone, and divides a head among the target's {target}"
    else:
        return
    yield on_command(
        f"The drafter is to run on {draft} ranks; {why}.",
        "draft_tensor_parallel_size",
        draft,
        expected,
        severity=severity,
    )


_SGLANG_SCHEDULED: frozenset[Method] = frozenset({"eagle", "eagle3", "mtp"})


def _schedule(case: Case) -> Iterator[Hit]:
    schedule = case.speculation.schedule
    if not schedule:
        return
    shown = Evidence(where="command", key="schedule", found=f"{len(schedule)} ranges of batch sizes")
    if case.engine == "sglang" and case.method not in _SGLANG_SCHEDULED:
        yield Hit(
            detail=(
                f"SGLang's adaptive steps exist for EAGLE and EAGLE3 only: a schedule for {case.method} is "
                "impossible."
            ),
            evidence=(shown,),
            reading=read.SGLANG,
        )
    if case.engine in ("llamacpp", "transformers", "openvino", "fireworks"):
        yield Hit(
            detail=f"{case.title} has no depth by batch size.",
            evidence=(shown,),
            reading=read.BY_ENGINE[case.engine],
        )
    if case.engine == "vllm" and (case.deployment.data_parallel or 1) > 1:
        yield Hit(
            detail="With data parallelism vLLM switches the schedule off by itself.",
            evidence=(shown,),
            severity=Severity.WARNING,
            reading=read.VLLM_BOTH,
        )


def _adaptive(case: Case) -> Iterator[Hit]:
    own = {"sglang": "--speculative-adaptive", "vllm": "enable_adaptive_verification"}.get(case.engine)
    if own is None or not (case.speculation.adaptive or case.is_on(own)):
        return
    shown = Evidence(where="command", key=own, found="on")
    if case.engine == "sglang":
        obstacles = list(_sglang_obstacles(case))
        if obstacles:
            yield Hit(
                detail=f"Adaptive steps fall back to fixed ones: {'; '.join(obstacles)}.",
                evidence=(shown,),
                reading=read.SGLANG,
            )
    if case.engine == "vllm":
        refused = [word for word, on in _vllm_obstacles(case) if on]
        if refused:
            yield Hit(
                detail=f"Adaptive verification is refused with {' and '.join(refused)}.",
                evidence=(shown,),
                severity=Severity.ERROR,
                reading=read.VLLM_BOTH,
            )


def _sglang_obstacles(case: Case) -> Iterator[str]:
    if case.method not in _SGLANG_SCHEDULED:
        yield f"they exist for EAGLE and EAGLE3, not for {case.method}"
    tree = case.speculation.tree
    if tree is not None and (tree.branching or 1) > 1:
        yield f"topk is {tree.branching}, not 1"
    for key in (
        "enable_dp_attention",
        "enable_multi_layer_eagle",
        "enable_two_batch_overlap",
        "enable_pdmux",
    ):
        if case.is_on(key):
            yield f"{key} is on"


def _vllm_obstacles(case: Case) -> tuple[tuple[str, bool], ...]:
    return (
        ("LoRA", bool(case.deployment.lora)),
        ("pipeline parallelism", (case.deployment.pipeline_parallel or 1) > 1),
        ("enforce_eager, for it needs full graphs", bool(case.deployment.enforce_eager)),
        ("model runner V1", forced(case) == "V1"),
    )


def _wrong_runner(case: Case) -> Iterator[Hit]:
    said = forced(case)
    lacking = None if said is None else lacking_in_v2(case) if said == "V2" else lacking_in_v1(case)
    if lacking is not None:
        yield on_command(
            f"Model runner {said} is forced and does not have {lacking}: vLLM refuses to start.",
            VARIABLE,
            "1" if said == "V2" else "0",
            "not set",
        )


_MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")


def _mask_token(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    config = case.drafter.config
    inner = config.get("dflash_config")
    named = any(key in config for key in _MASK_KEYS) or (isinstance(inner, dict) and "mask_token_id" in inner)
    if not named:
        yield Hit(
            detail=(
                "Parallel drafting fills the places to draft with a mask token, and the drafter's configuration "
                "names none."
            ),
            evidence=(
                Evidence(
                    where=case.drafter.reference,
                    key="mask_token_id",
                    found="not there",
                    expected="a token id",
                ),
            ),
        )
    elif case.method == "p_eagle" and not any(
        "mask_hidden" in name for name in case.names(case.drafter, "drafter")
    ):
        yield Hit(
            detail="A parallel EAGLE head needs a mask_hidden tensor, and there is none.",
            evidence=(Evidence(where=case.drafter.reference, key="mask_hidden", found="no such tensor"),),
        )


_TREES_BY_DEFAULT = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})
"""Targets for which SGLang takes 5 steps and top-k 4 where no steps are given."""


def _sglang_unsampled(case: Case) -> Iterator[str]:
    """Why SGLang refuses to draw this method's drafts (`_handle_eagle_family`, `eagle_worker_v2`)."""
    speculation, tree = case.speculation, case.speculation.tree
    if case.method not in _SGLANG_SCHEDULED or is_frozen(case):
        yield "asks for EAGLE, EAGLE3 or NEXTN"
        return
    if tree is not None and (tree.branching or 1) > 1:
        yield "asks for topk 1"
    elif speculation.levels is None and not is_adaptive(case) and case.target_view is not None:
        named = case.target.config.get("architectures")
        if isinstance(named, list) and named and named[0] in _TREES_BY_DEFAULT:
            yield f"asks for topk 1, and without --speculative-num-steps SGLang takes 4 for {named[0]}"
    if case.extra("token-map") is not None and case.method != "eagle3":
        yield "asks for a head that drafts all of the target's tokens, and --speculative-token-map leaves some out"
    if case.method == "eagle3" and case.drafter_view is not None and case.target_view is not None:
        ours, theirs = (whole(view.language_config, key) for view, key in (
            (case.target, "vocab_size"), (case.drafter, "draft_vocab_size"),
        ))  # fmt: skip
        if ours is not None and theirs is not None and theirs != ours:
            yield f"asks for a head that drafts all of the target's {ours} tokens, and this one drafts {theirs}"


def _rejection_sampling(case: Case) -> Iterator[Hit]:
    if not case.asks_rejection_sampling:
        return
    if case.engine == "sglang":
        for why in _sglang_unsampled(case):
            yield on_command(
                f"Rejection sampling, which block verification switches on, {why}.",
                "--speculative-use-rejection-sampling",
                case.method,
                reading=read.SGLANG,
            )
    if case.engine == "trtllm" and case.method in ("ngram", "suffix", "custom"):
        yield on_command(
            f"Rejection sampling is not built for {case.method}.",
            "use_rejection_sampling",
            "true",
            where="config",
            reading=read.TRTLLM,
        )


def _drafter_as_target(case: Case) -> Iterator[Hit]:
    if case.method != "none" or case.target_view is None:
        return
    config = case.target.config
    kind = config.get("speculators_model_type")
    if not isinstance(kind, str):
        return
    written = config.get("speculators_config")
    verifier = written.get("verifier") if isinstance(written, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    yield Hit(
        detail=(
            f"The model that is served is a drafter in the speculators format ({kind}): vLLM serves "
            f"{name or 'the verifier that it names'} with it, and this pair was not checked."
        ),
        evidence=(Evidence(where=case.target.reference, key="speculators_model_type", found=kind),),
        remedy=(
            f"Check the pair: draftproof check {name or 'VERIFIER'} --engine vllm --speculative-config "
            f'\'{{"method": "{_METHOD_OF.get(kind, kind)}", "model": "{case.target.reference}", '
            '"num_speculative_tokens": 3}\'.'
        ),
    )


_METHOD_OF = {"peagle": "eagle3", "dflash2": "dflash"}
"""Types of the speculators format whose method in vLLM has another name."""
_VLLM = Reading("vllm", ">=0.24,<=0.33.0", read.VLLM.source)

RULES = (
    Rule(
        code="CONFIG-01",
        title="A method that the engine does not have",
        severity=Severity.ERROR,
        about="Methods come and go between releases, and carry other names elsewhere.",
        remedy="Choose one of the engine's methods: `draftproof methods` lists them.",
        source=_SOURCE,
        judge=_no_such_method,
        covers=frozenset({"CONFIG-02", "CONFIG-03"}),
    ),
    Rule(
        code="CONFIG-02",
        title="No drafter is named",
        severity=Severity.ERROR,
        about="This method needs a second checkpoint.",
        remedy="Name the drafter; `draftproof pairs TARGET` lists known ones.",
        source=_SOURCE,
        judge=_no_drafter,
    ),
    Rule(
        code="CONFIG-03",
        title="The number of draft tokens is missing",
        severity=Severity.ERROR,
        about=(
            "vLLM takes the number from MTP and DSpark checkpoints that are named as model, and from a checkpoint in "
            "the speculators format that is served itself. Elsewhere it asks for it, beside a schedule, too."
        ),
        remedy="Add num_speculative_tokens; 3 to 5 is a start to measure from.",
        source=read.VLLM_RAN.source,
        judge=_no_depth,
        methods=_NEEDS_DEPTH,
        readings=(Reading("vllm", ">=0.24,<=0.33.0", read.VLLM_RAN.source),),
    ),
    Rule(
        code="CONFIG-04",
        title="Tensor parallelism of the drafter",
        severity=Severity.ERROR,
        about=(
            "vLLM runs a draft model or a DSpark head on one rank or on all of the target's; other heads are divided "
            "as the target is, whatever is set."
        ),
        remedy="Set draft_tensor_parallel_size to 1 or to the target's, or leave it out.",
        source=read.VLLM.source,
        judge=_draft_parallel,
        readings=(_VLLM,),
    ),
    Rule(
        code="CONFIG-05",
        title="A schedule by batch size that the engine cannot run",
        severity=Severity.ERROR,
        about="A depth per batch size exists in few engines, and there for some methods.",
        remedy="Leave the schedule out, and choose one depth for the load that you have.",
        source=_SOURCE,
        judge=_schedule,
    ),
    Rule(
        code="CONFIG-06",
        title="Adaptive depth without its preconditions",
        severity=Severity.WARNING,
        about=(
            "Adaptive features ask for certain methods, a chain, full graphs; without them they are refused or "
            "fall silent."
        ),
        remedy="Meet the precondition, or leave the adaptive setting out.",
        source=_SOURCE,
        judge=_adaptive,
    ),
    Rule(
        code="CONFIG-07",
        title="Parallel drafting without a mask token",
        severity=Severity.ERROR,
        about=(
            "All tokens are drafted in one pass; the places to fill hold a mask token that the drafter was "
            "trained with."
        ),
        remedy="Use a drafter that was trained for parallel drafting; its configuration names the token.",
        source=read.VLLM.source,
        judge=_mask_token,
        methods=frozenset({"pard", "p_eagle", "dflash"}),
        readings=(_VLLM,),
    ),
    Rule(
        code="CONFIG-08",
        title="Rejection sampling where it is not built",
        severity=Severity.ERROR,
        about=(
            "Some engines verify by exact match unless told otherwise, and have rejection sampling for a part "
            "of the methods."
        ),
        remedy="Leave the setting out; exact match is lossless, too, and accepts less at high temperature.",
        source=_SOURCE,
        judge=_rejection_sampling,
    ),
    Rule(
        code="CONFIG-09",
        title="The served model is a drafter",
        severity=Severity.INFO,
        about=(
            "Served as a model, a checkpoint in the speculators format starts its verifier and drafts for it. What "
            "runs is a pair, although the command names one checkpoint and no speculation."
        ),
        remedy="Check the pair that it stands for.",
        source=read.VLLM_BOTH.source,
        judge=_drafter_as_target,
        readings=(read.VLLM_BOTH,),
    ),
    Rule(
        code="CONFIG-10",
        title="A model runner that does not have what is asked for",
        severity=Severity.ERROR,
        about=(
            "vLLM has two model runners and chooses by itself. A variable that forces one, left over from a time "
            "when it was a trial, ends in an error with methods that the other one has."
        ),
        remedy=f"Leave {VARIABLE} out: vLLM takes the runner that has the method.",
        source=READING.source,
        judge=_wrong_runner,
        readings=(READING,),
    ),
)
