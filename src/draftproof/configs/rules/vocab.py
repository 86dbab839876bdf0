"""VOCAB: whether target and draft model mean the same by a token id. Tokens are compared, not vocab_size.

Run for methods that draft with a model of its own. Heads (EAGLE, MTP) are judged by EAGLE: they use the target's
tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from draftproof.configs.rules.case import Case, vocabulary_of
from draftproof.configs.rules.facts.vocabularies import (
    ADVISED_OVERLAP,
    DEMANDS,
    REPORTED_BY,
    VocabularyDemand,
    reported_loss,
)
from draftproof.configs.rules.rule import Hit, Rule
from draftproof.configs.speculation import MODELS
from draftproof.core.finding import Evidence, Severity, Source

if TYPE_CHECKING:
    from draftproof.checkpoints.vocabulary import Vocabulary

_FIELD = Source(
    name="vLLM issues 5203, 7252, 10913; SGLang pull request 23838; transformers issue 45307; mlc-llm issue 3212",
    read="2026-11",
)


def _spans_vocabularies(case: Case) -> bool:
    """Whether drafts cross from one vocabulary to the other by the tokens' text."""
    demand = DEMANDS.get(case.engine)
    if demand is None or demand.different == "never":
        return False
    return demand.different == "always" or case.speculation.different_vocabulary is True


def _sizes(case: Case) -> tuple[int, int]:
    return case.whole(case.target, "vocab_size", "target"), case.whole(case.drafter, "vocab_size", "drafter")


def _size_evidence(case: Case, ours: int, theirs: int) -> tuple[Evidence, ...]:
    return (
        Evidence(where=case.target.reference, key="vocab_size", found=str(ours)),
        Evidence(where=case.drafter.reference, key="vocab_size", found=str(theirs), expected=str(ours)),
    )


def _has_other_ids(case: Case) -> bool:
    return not case.has_same_tokenizer and case.fit.first_difference is not None


def _padding(case: Case) -> Iterator[Hit]:
    ours, theirs = _sizes(case)
    if ours != theirs and case.has_same_tokenizer:
        yield Hit(
            detail=(
                f"Same tokenizer; the embeddings are padded to {ours} and {theirs} rows. The tail of "
                f"{abs(ours - theirs)} rows stands for no token."
            ),
            evidence=_size_evidence(case, ours, theirs),
        )


def _equal_size(case: Case) -> Iterator[Hit]:
    demand = DEMANDS.get(case.engine)
    if demand is None or demand.size_slack is None or case.speculation.different_vocabulary:
        return
    ours, theirs = _sizes(case)
    if abs(ours - theirs) <= demand.size_slack:
        return
    allowed = f"at most {demand.size_slack} rows" if demand.size_slack else "equal sizes"
    is_doubtful = bool(demand.doubt) and case.has_same_tokenizer
    doubt = f" The two sources disagree: {demand.doubt}." if is_doubtful else ""
    yield Hit(
        detail=f"{case.title} asks for {allowed}, and vocab_size differs by {abs(ours - theirs)}.{doubt}",
        evidence=_size_evidence(case, ours, theirs),
        severity=Severity.WARNING if is_doubtful else None,
        remedy=_size_remedy(case, demand),
        reading=demand.reading,
    )


def _size_remedy(case: Case, demand: VocabularyDemand) -> str:
    if not (case.target_view and case.drafter_view and case.has_same_tokenizer):
        return "Use a drafter of the target's own family and size of vocabulary."
    option = f"Set {demand.how}, or take" if demand.how else "Take"
    return (
        f"{option} a drafter whose embedding has as many rows, or pad the smaller checkpoint's embedding and head "
        "with rows that no token uses (in the weights and vocab_size together, in a copy)."
    )


def _same_tokens(case: Case) -> Iterator[Hit]:
    if _spans_vocabularies(case):
        return
    if case.has_same_tokenizer or case.fit.first_difference is None:
        return
    fit = case.fit
    demand = DEMANDS.get(case.engine)
    if demand is not None and demand.compares_ids:
        effect = f"{case.title} refuses the pair"
    else:
        effect = "Nothing checks this, and drafts would be read as other tokens"
    yield Hit(
        detail=f"Token ids mean different things: {fit.first_difference}. {effect}.",
        evidence=(
            Evidence(
                where=case.drafter.reference,
                key="tokenizer",
                found=fit.describe(),
                expected="the target's token ids",
            ),
        ),
        remedy=_crossing_remedy(demand),
        reading=demand.reading if demand is not None else None,
    )


def _crossing_remedy(demand: VocabularyDemand | None) -> str:
    if demand is not None and demand.how:
        return f"Use a drafter with the target's tokenizer, or set {demand.how} and expect less acceptance."
    return "Use a drafter with the target's tokenizer."


def _overlap(case: Case) -> Iterator[Hit]:
    if not _spans_vocabularies(case):
        return
    if case.has_same_tokenizer:
        return
    fit = case.fit
    least = DEMANDS[case.engine].least_overlap
    words = fit.describe()
    bound = "enough" if fit.overlap >= ADVISED_OVERLAP else f"below the advised {ADVISED_OVERLAP:.0%}"
    yield Hit(
        detail=(
            f"{words[0].upper()}{words[1:]}: {fit.overlap:.1%} of the smaller one ({bound}); "
            f"{reported_loss(fit.overlap)}."
            + (f" First difference: {fit.first_difference}." if fit.first_difference else "")
        ),
        evidence=(
            Evidence(
                where=case.drafter.reference,
                key="tokenizer",
                found=words,
                expected=f"at least {least:.0%} of the smaller vocabulary shared",
            ),
        ),
        severity=Severity.WARNING if fit.overlap >= least else Severity.ERROR,
    )


_SPECIAL_KEYS = ("eos_token_id", "bos_token_id")


def _special_ids(case: Case) -> Iterator[Hit]:
    if _spans_vocabularies(case) or _has_other_ids(case):
        return
    for key in _SPECIAL_KEYS:
        ours, theirs = _ids(case.target.language_config.get(key)), _ids(case.drafter.language_config.get(key))
        if ours and theirs and not ours & theirs:
            names = vocabulary_of(case.target, "target")
            yield Hit(
                detail=(
                    f"{key} differs: {_spelled(ours, names)} in the target, "
                    f"{_spelled(theirs, names)} in the drafter."
                ),
                evidence=(
                    Evidence(where=case.target.reference, key=key, found=_listed(ours)),
                    Evidence(
                        where=case.drafter.reference, key=key, found=_listed(theirs), expected=_listed(ours)
                    ),
                ),
            )


def _ids(value: object) -> frozenset[int]:
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int) and not isinstance(item, bool))


def _listed(ids: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def _spelled(ids: frozenset[int], vocabulary: Vocabulary) -> str:
    known = [
        token
        for token_id in sorted(ids)
        if 0 <= token_id < len(vocabulary.tokens) and (token := vocabulary.tokens[token_id]) is not None
    ]
    return ", ".join(token.decode(errors="backslashreplace") for token in known) or _listed(ids)


def _added_tokens(case: Case) -> Iterator[Hit]:
    if _spans_vocabularies(case) or _has_other_ids(case) or case.has_equal_tokenizer_files:
        return
    ours, theirs = vocabulary_of(case.target, "target"), vocabulary_of(case.drafter, "drafter")
    unknown = [
        token
        for token_id, token in enumerate(ours.tokens)
        if token is not None and (token_id >= len(theirs.tokens) or theirs.tokens[token_id] is None)
    ]
    if unknown:
        shown = ", ".join(token.decode(errors="backslashreplace") for token in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        yield Hit(
            detail=f"The drafter has no token for {shown}{more}: it can never draft them.",
            evidence=(
                Evidence(
                    where=case.drafter.reference, key="tokenizer", found=f"{len(unknown)} tokens missing"
                ),
            ),
        )


def _template(case: Case) -> Iterator[Hit]:
    ours, theirs = case.target.chat_template, case.drafter.chat_template
    if ours and theirs and ours.split() != theirs.split():
        yield Hit(
            detail=(
                "The chat templates differ: the drafter sees the target's format, which may not be the one that it "
                "was trained on."
            ),
            evidence=(
                Evidence(
                    where=case.drafter.reference, key="chat_template", found="another text than the target's"
                ),
            ),
        )


def _unknown_token(case: Case) -> Iterator[Hit]:
    if case.engine != "vllm" or not case.speculation.different_vocabulary:
        return
    for view, whose in ((case.target, "target"), (case.drafter, "drafter")):
        if not view.tokenizer_config:
            continue
        if view.tokenizer_config.get("unk_token") is None:
            yield Hit(
                detail=(
                    f"The {whose}'s tokenizer has no unknown token: tokens without counterpart were read as "
                    "token 0."
                ),
                evidence=(Evidence(where=view.reference, key="tokenizer_config.unk_token", found="none"),),
                reading=DEMANDS["vllm"].reading,
            )


RULES = (
    Rule(
        code="VOCAB-01",
        title="Same tokenizer, padded to another size",
        severity=Severity.INFO,
        about=(
            "Embeddings are padded to a multiple that suits the hardware, so vocab_size differs within one family "
            "although the tokenizers are the same. Ids beyond the tokenizer's length stand for no token: masked, "
            "they do no harm."
        ),
        remedy="Nothing, unless the engine asks for equal sizes (VOCAB-02).",
        source=_FIELD,
        judge=_padding,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-02",
        title="The engine asks for equal vocab_size",
        severity=Severity.ERROR,
        about=(
            "Some engines compare vocab_size of both configurations and refuse to start where it differs, even if "
            "the tokenizers are the same and only the padding is not."
        ),
        remedy="Use a drafter whose embedding has as many rows as the target's.",
        source=_FIELD,
        judge=_equal_size,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-03",
        title="Token ids mean different tokens",
        severity=Severity.ERROR,
        about=(
            "An engine that passes ids from drafter to target takes each for the same token. With another "
            "tokenizer the drafts are other texts than the drafter meant; acceptance falls to chance."
        ),
        remedy="Use a drafter with the target's tokenizer.",
        source=Source(
            name="SGLang 0.5.23 source; LM Studio bug tracker 481, 1519, 1597, 1761, 1914", read="2026-11"
        ),
        judge=_same_tokens,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-04",
        title="Different vocabularies: the drafter can draft only what both have",
        severity=Severity.ERROR,
        about=(
            "Between different vocabularies only tokens that both have can be drafted, and the text has to be "
            "tokenised again where they differ. Acceptance falls faster than the overlap does."
        ),
        remedy="Prefer a drafter with the target's tokenizer, or look-up (ngram, suffix), which needs none. "
        "Measure acceptance on your own requests before you rely on this pair.",
        source=REPORTED_BY,
        judge=_overlap,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-05",
        title="Special tokens differ",
        severity=Severity.WARNING,
        about=(
            "Where drafter and target end or begin a text with different tokens, the drafter drafts past the end "
            "of answers, or was tuned for another format (base against instruct)."
        ),
        remedy="Use the drafter's variant that was tuned like the target (both instruct, or both base).",
        source=Source(name="LM Studio bug tracker 1597, 1914", read="2026-11"),
        judge=_special_ids,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-06",
        title="The target has tokens that the drafter lacks",
        severity=Severity.WARNING,
        about=(
            "Tokens that were added to the target (tool calls, thinking, image markers) and that the drafter does "
            "not know are never drafted. Texts full of them see less acceptance."
        ),
        remedy="Use a drafter with the same added tokens where your requests use tools or thinking.",
        source=Source(name="comparison of tokenizer files", read="2026-11"),
        judge=_added_tokens,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-07",
        title="Chat templates differ",
        severity=Severity.INFO,
        about=(
            "The engine renders the target's template for both models. A drafter that was trained with another "
            "template, or with thinking switched otherwise, agrees less: one switch moved reported speed from 25 "
            "to 60 tokens per second."
        ),
        remedy="Measure acceptance with your own template and thinking mode.",
        source=Source(name="z-lab/dflash issues 7, 60, 133", read="2026-11"),
        judge=_template,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="VOCAB-08",
        title="A tokenizer without an unknown token, across vocabularies",
        severity=Severity.WARNING,
        about=(
            "When token strings are intersected, a token without counterpart is looked up as the unknown token. "
            "Where there is none, token 0 was taken in silence, and acceptance fell."
        ),
        remedy="Compare acceptance with a drafter of the same vocabulary, or leave use_heterogeneous_vocab off.",
        source=REPORTED_BY,
        judge=_unknown_token,
        methods=MODELS | {"auto"},
    ),
)
