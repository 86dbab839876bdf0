"""Drafting from text that is there already: look-up in prompt and answer, and the client's prediction.

Called by `advising`. What a workload copies is measured by `copying`; here it is put into words.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.speculation import LookUp, Method, Speculation
from draftproof.core.finding import Source
from draftproof.core.intent import Predicted
from draftproof.planning.advice.ask import Ask, Workload
from draftproof.planning.advice.copying import Copying, LookUpSettings
from draftproof.planning.advice.step import Claim, Standing, Step

COPIES = 0.2
"""Share of copied pieces from which look-up is a step to try; our judgement, not a measurement."""
HARDLY = 0.03

_METHODS: dict[str, Method] = {"draftproof": "suffix"}
"""Engine → the look-up to start with; n-gram look-up in all others."""
_BEST_AT = "editing, extraction, retrieval, agent loops, and code that repeats itself"

_VLLM_DOCS = Source(
    name="vLLM documentation, speculative decoding",
    read="2026-11",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)
_HIGH_LOAD = Source(name="vLLM issues 19254, 27379", read="2026-11")
_PREDICTION: dict[str, tuple[str, Source]] = {
    "vllm": (
        "vLLM's server takes no `prediction`; two requests for it were closed unmerged.",
        Source(name="vLLM 0.33.0 source; PR 23450, PR 24568", read="2026-11"),
    ),
    "sglang": (
        "SGLang's OpenAI server has no `prediction`.",
        Source(name="SGLang 0.5.23 source", read="2026-11"),
    ),
}


def settings_of(engine: str) -> LookUpSettings:
    """Of the look-up that is proposed for an engine, so that what is replayed is what the command does."""
    return LookUpSettings() if engine in _METHODS else LookUpSettings(min_ngram=2, max_ngram=5, depth=4)


def propose_look_up(ask: Ask) -> Iterator[Step]:
    method, proposed = _METHODS.get(ask.engine, "ngram"), settings_of(ask.engine)
    lookup = (
        None if method == "suffix" else LookUp(min_ngram=proposed.min_ngram, max_ngram=proposed.max_ngram)
    )
    copied = ask.workload.copied if ask.workload else None
    standing, against = _standing(ask.workload, copied)
    evidence = [Claim("No weights and no cache of its own: it adds nothing to peak memory.", _VLLM_DOCS)]
    threshold = None
    if copied is not None and copied.num_requests and ask.workload is not None:
        evidence.insert(0, Claim(_measured(ask.workload, copied)))
        threshold = _threshold(copied)
    risks = []
    if (ask.concurrency or 0) >= 16:
        risks.append(
            Claim(
                "At many requests at once verification is no longer cheap; look-up was seen to lose there.",
                _HIGH_LOAD,
            )
        )
    yield Step(
        kind="look_up",
        title="Look-up: draft from the prompt and the answer so far",
        standing=standing,
        speculation=Speculation(method=method, depth=proposed.depth, lookup=lookup),
        evidence=tuple(evidence),
        against=tuple(against),
        risks=tuple(risks),
        pays_if=threshold,
    )


def _standing(workload: Workload | None, copied: Copying | None) -> tuple[Standing, list[Claim]]:
    if copied is None or not copied.num_requests:
        told = "No workload was named" if workload is None else f"{workload.name} records no answers"
        return Standing.POSSIBLE, [
            Claim(
                f"{told}, so how much your answers copy was not measured. It pays for {_BEST_AT}, hardly for open chat."
            )
        ]
    if copied.copied_share >= COPIES:
        return Standing.TRY, []
    if copied.copied_share < HARDLY:
        return Standing.RULED_OUT, [
            Claim("These answers hardly copy from their prompts: drafts would be rare or wrong.")
        ]
    return Standing.POSSIBLE, [Claim("These answers copy a little: the gain is small at best.")]


def _measured(workload: Workload, copied: Copying) -> str:
    settings, count = copied.settings, f"{copied.num_replayed} of {copied.num_requests}"
    if copied.num_replayed == copied.num_requests:
        count = f"all {copied.num_requests}"
    texts = "recorded answers" if workload.stand_in is None else f"texts ({workload.stand_in})"
    return (
        f"Measured on {workload.name}: {count} {texts} were replayed, {copied.num_pieces} pieces of text (words, "
        f"numbers, signs, spaces; not tokens). Look-up of {settings.min_ngram} to {settings.max_ngram} pieces, "
        f"{settings.depth} proposed, would have supplied {copied.copied_share:.0%} of them, "
        f"{copied.emitted_per_round:.1f} per round."
    )


def _threshold(copied: Copying) -> str:
    return (
        f"Pays if a pass over up to {copied.settings.depth + 1} rows takes less than {copied.emitted_per_round:.2f} "
        "times a plain pass at your batch and context. The passes were not measured."
    )


def propose_prediction(ask: Ask) -> Iterator[Step]:
    """The client's own guess of the answer, where the engine takes one."""
    workload = ask.workload
    has_some = workload is not None and workload.num_predictions > 0
    title = "The client's prediction of the answer"
    refusal = _PREDICTION.get(ask.engine)
    if ask.engine != "draftproof":
        if has_some or ask.role == "app":
            text, source = refusal or (f"No `prediction` is known of {ask.engine}.", None)
            yield Step(
                kind="prediction", title=title, standing=Standing.RULED_OUT, against=(Claim(text, source),)
            )
        return
    evidence, standing = [], Standing.POSSIBLE
    against = [
        Claim(
            "It needs requests whose answer is known beforehand in large parts, such as a file being edited."
        )
    ]
    predicted = workload.predicted if workload else None
    if workload is not None and predicted is not None and predicted.num_requests:
        evidence.append(
            Claim(
                f"Measured on {workload.name}: of {predicted.num_replayed} answers with a prediction, "
                f"{predicted.copied_share:.0%} of the pieces were in it, in runs found again by look-up."
            )
        )
        standing = Standing.TRY if predicted.copied_share >= COPIES else Standing.RULED_OUT
        against = [] if standing is Standing.TRY else [Claim("The predictions hardly match the answers.")]
    elif has_some and workload is not None:
        evidence.append(
            Claim(
                f"{workload.num_predictions} of {workload.num_requests} requests of {workload.name} carry one."
            )
        )
        against = [Claim("No answers are recorded beside them: how well they match was not measured.")]
    yield Step(
        kind="prediction",
        title=title,
        standing=standing,
        speculation=Speculation(method="predicted", depth=Predicted().num_speculative_tokens),
        evidence=tuple(evidence),
        against=tuple(against),
    )
