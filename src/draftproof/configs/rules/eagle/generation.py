"""Which kind of drafter it is, against the method that it is run by: by architecture and by shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from draftproof.checkpoints.heads import KIND_NAMES, Kind
from draftproof.configs.engines.vllm.facts import ARCHITECTURES, PATH_WORDS
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.eagle.shared import EAGLE, SHAPES, kind_of
from draftproof.configs.rules.rule import Hit, Reading, Rule
from draftproof.configs.speculation import Method
from draftproof.core.finding import Evidence, Severity, Source

_SGLANG = Source(
    name="SGLang 0.5.23 source and pull request 21272",
    read="2026-11",
    url="https://github.com/sgl-project/sglang/pull/21272",
)
_TRTLLM = Source(
    name="TensorRT-LLM, main branch of mid-2026, and issue 11125",
    read="2026-11",
    url="https://github.com/NVIDIA/TensorRT-LLM/issues/11125",
)
_AS_RUN: Mapping[Method, Kind] = {"eagle": "eagle", "eagle3": "eagle3", "p_eagle": "eagle3"}


def _generation_asked(case: Case) -> Kind:
    """TensorRT-LLM takes Eagle for another spelling of Eagle3."""
    return "eagle3" if case.engine == "trtllm" else _AS_RUN[case.method]


def _seen(case: Case, expected: str) -> tuple[Evidence, ...]:
    drafting = case.drafting
    seen = [
        Evidence(where=tensor.info.where, key=tensor.name, found=str(list(tensor.info.shape)))
        for tensor in (drafting.fc, drafting.attention)
        if tensor is not None
    ]
    if drafting.named_by is not None:
        seen.append(Evidence(where="config.json", key=drafting.named_by[0], found=drafting.named_by[1]))
    return (*seen, Evidence(where=case.drafter.reference, found=KIND_NAMES[drafting.kind], expected=expected))


def _third_as_first(case: Case) -> Iterator[Hit]:
    if _generation_asked(case) != "eagle" or kind_of(case) != "eagle3":
        return
    effect = {
        "sglang": "SGLang skips the head's `fc` in silence, and the accept length is exactly 1.00",
    }.get(case.engine, "the head gets one hidden state where it needs several")
    yield Hit(
        detail=f"The drafter is {case.drafting.words}, and the method is EAGLE-1/2: {effect}.",
        evidence=_seen(case, KIND_NAMES["eagle"]),
        remedy=_THIRD_SPELLING.get(case.engine, "Name EAGLE-3 as the method."),
        reading=Reading("sglang", ">=0.4.6,<=0.5.23", _SGLANG) if case.engine == "sglang" else None,
    )


_THIRD_SPELLING = {
    "sglang": "Write --speculative-algorithm EAGLE3.",
    "vllm": 'Write "method": "eagle3".',
}


def _first_as_third(case: Case) -> Iterator[Hit]:
    if _generation_asked(case) != "eagle3" or kind_of(case) != "eagle":
        return
    if case.engine == "trtllm":
        yield Hit(
            detail=(
                f"The drafter is {case.drafting.words}; TensorRT-LLM's PyTorch backend runs Eagle as Eagle3, and "
                "EAGLE-1/2 heads give gibberish or next to no acceptance."
            ),
            evidence=_seen(case, KIND_NAMES["eagle3"]),
            remedy="Use an EAGLE-3 head of this target, or an engine that runs EAGLE-1/2 heads (vLLM, SGLang).",
            reading=Reading("trtllm", ">=1.0,<1.4", _TRTLLM),
        )
        return
    yield Hit(
        detail=f"The drafter is {case.drafting.words}, and EAGLE-3 feeds it several hidden states.",
        evidence=_seen(case, KIND_NAMES["eagle3"]),
        remedy="Name EAGLE (not EAGLE-3) as the method, or use an EAGLE-3 head of this target.",
    )


_KIND_OF: Mapping[Method, Kind] = {
    "draft_model": "model", "pard": "model", "auto": "model", "mtp": "mtp", "medusa": "medusa",
    "mlp_speculator": "mlp_speculator", "dflash": "dflash", "dspark": "dspark",
}  # fmt: skip
_SPELLED: Mapping[Kind, str] = {"eagle": "EAGLE", "eagle3": "EAGLE-3", "mtp": "MTP", "dflash": "DFlash"}


def _head_as_model(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    kind = kind_of(case)
    if kind == _KIND_OF[case.method] or (kind == "model" and case.method not in ("medusa", "mlp_speculator")):
        return
    reads = "" if kind == "model" else ", which drafts from the target's hidden states"
    yield Hit(
        detail=f"The drafter is {case.drafting.words}{reads}; the method is {case.method}.",
        evidence=_seen(case, KIND_NAMES[_KIND_OF[case.method]]),
        remedy=_head_remedy(case, kind),
    )


def _head_remedy(case: Case, kind: Kind) -> str:
    if case.engine == "draftproof":
        return "This engine drafts with a model of its own: use a small one of the target's family, or look-up (auto)."
    if kind == "model":
        return "Use a drafter of the method's kind, or draft_model as the method."
    return f"Name {_SPELLED.get(kind, kind)} as the method, or use {KIND_NAMES[_KIND_OF[case.method]]}."


def _model_as_head(case: Case) -> Iterator[Hit]:
    if kind_of(case) not in ("eagle", "eagle3"):
        yield Hit(
            detail=f"The method is {case.method}, and the drafter is {case.drafting.words}.",
            evidence=_seen(case, "an EAGLE head"),
            remedy="Name draft_model (STANDALONE, Draft_Target) as the method for a model of its own, or use a head."
            if case.drafting.kind == "model"
            else "Name the method that the drafter was made for.",
        )


def _contradiction(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    drafting = case.drafting
    case.tensors(case.drafter, "drafter")
    named, shaped = drafting.named, drafting.shaped
    if (
        named not in ("eagle", "eagle3")
        or drafting.fc is None
        or drafting.attention is None
        or shaped == named
    ):
        return
    assert drafting.named_by is not None
    rows = drafting.fc.info.shape[0]
    takes = "2 × hidden" if named == "eagle3" else "hidden"
    yield Hit(
        detail=(
            f"By its name it is {KIND_NAMES[named]}, by its tensors "
            f"{KIND_NAMES[shaped] if shaped else 'neither generation'}."
        ),
        evidence=(
            Evidence(where="config.json", key=drafting.named_by[0], found=drafting.named_by[1]),
            Evidence(
                where=drafting.attention.info.where,
                key=drafting.attention.name,
                found=str(list(drafting.attention.info.shape)),
                expected=f"[…, {2 * rows if named == 'eagle3' else rows}]: {takes}",
            ),
        ),
    )


_VLLM = Reading(
    "vllm",
    ">=0.32,<=0.33.0",
    Source(name="vLLM 0.33.0 source; tried with a CPU build of 0.32.0", read="2026-11"),
)


def _guess(case: Case) -> Iterator[Hit]:
    drafter = case.speculation.drafter
    if drafter is None or not case.is_inferred("speculation.method"):
        return
    kind, named = kind_of(case), case.drafter.config.get("architectures")
    known = (
        [ARCHITECTURES[name] for name in named if name in ARCHITECTURES] if isinstance(named, list) else []
    )
    words = [method for word, method in PATH_WORDS if word in drafter.name.lower()]
    guessed = next(iter([*words, *known]), "draft_model")
    right = {"eagle": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}.get(
        kind, "draft_model"
    )
    if guessed == right or kind == "mtp":
        return
    yield Hit(
        detail=(
            f"No method is given, and vLLM guesses {guessed} from the path {drafter.name!r}; the drafter is "
            f"{case.drafting.words}."
        ),
        evidence=_seen(case, f'"method": "{right}"'),
        remedy=f'Write "method": "{right}".',
    )


RULES = (
    Rule(
        code="EAGLE-01",
        title="An EAGLE-3 head is run as EAGLE-1/2",
        severity=Severity.ERROR,
        about=(
            "EAGLE-1/2 hands the head one hidden state, EAGLE-3 needs several (usually three). Nothing switches by "
            "itself. The server starts, drafts, and accepts nothing; the only sign is an accept length of exactly "
            "1.00."
        ),
        remedy="Name EAGLE-3 as the method.",
        source=_SGLANG,
        judge=_third_as_first,
        methods=frozenset({"eagle"}),
    ),
    Rule(
        code="EAGLE-02",
        title="An EAGLE-1/2 head is run as EAGLE-3",
        severity=Severity.ERROR,
        about=(
            "An EAGLE-1/2 head joins the embedding and one hidden state (fc takes 2 × hidden). Run as EAGLE-3, its "
            "fc does not fit. TensorRT-LLM takes `Eagle` for an alias of `Eagle3`, so old heads fail there under "
            "either name."
        ),
        remedy="Name EAGLE-1/2 as the method, or use an EAGLE-3 head of this target.",
        source=_TRTLLM,
        judge=_first_as_third,
        methods=EAGLE,
    ),
    Rule(
        code="EAGLE-03",
        title="The drafter is of another kind than the method",
        severity=Severity.ERROR,
        about=(
            "A head drafts from the target's hidden states and cannot run as a model of its own; a head of one "
            "method does not fit another (a configuration that says MTP for an EAGLE head was published as an "
            "example)."
        ),
        remedy="Name the method that the drafter was made for.",
        source=Source(name="Dynamo pull request 1828; vLLM 0.33.0 source", read="2026-11"),
        judge=_head_as_model,
        methods=frozenset(_KIND_OF),
    ),
    Rule(
        code="EAGLE-04",
        title="A drafter that is no EAGLE head is run as one",
        severity=Severity.ERROR,
        about="EAGLE methods feed hidden states into the drafter's fc. A model of its own has none.",
        remedy="Name draft_model as the method, or use an EAGLE head of this target.",
        source=SHAPES,
        judge=_model_as_head,
        methods=EAGLE,
    ),
    Rule(
        code="EAGLE-06",
        title="Architecture and tensor shapes name different generations",
        severity=Severity.ERROR,
        about=(
            "Engines choose the code by the architecture's name and then fill it with the tensors. Where these are "
            "of another generation, loading fails or skips what does not fit."
        ),
        remedy="Get configuration and weights from the same source, or correct architectures in config.json.",
        source=SHAPES,
        judge=_contradiction,
        methods=EAGLE | frozenset(_KIND_OF),
    ),
    Rule(
        code="EAGLE-14",
        title="Without a method, vLLM guesses one from the path",
        severity=Severity.ERROR,
        about=(
            "Without method, vLLM looks for words in the drafter's path, and knows some architectures of DSpark. "
            "Another head is loaded as a model of its own and fails on the first request."
        ),
        remedy="Name the method.",
        source=_VLLM.source,
        judge=_guess,
        covers=frozenset({"EAGLE-01", "EAGLE-02", "EAGLE-03", "EAGLE-04"}),
        readings=(_VLLM,),
    ),
)
