"""Drafting with a model: a smaller one of the same vocabulary, or the target's own weights at fewer bits.

Called by `advising`. A drafter is weighed against the parameters that the target uses per token, not against all.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.pairs import Pair
from draftproof.configs.speculation import ModelRef, Speculation
from draftproof.core.finding import Source
from draftproof.planning.advice.ask import Ask
from draftproof.planning.advice.facts import Facts
from draftproof.planning.advice.step import Claim, Size, Standing, Step
from draftproof.planning.advice.thresholds import needed_acceptance, pays_if

MAX_DRAFT_MODELS = 2
_DEPTH = 4
_HARD = 0.85
"""Needed acceptance beyond which a draft model is not proposed as a first try; published ones rarely reach it."""

_MIXTURES = Source(
    name="mlx-lm issue 1132 (a 9B drafter for 17B active parameters: 35 tokens/s fell to 23)", read="2026-11"
)
_SAME_FAMILY = "A name of the same family is not enough: `draftproof check` compares both token maps."


def propose_draft_models(ask: Ask, facts: Facts) -> Iterator[Step]:
    """Documented pairs first, else smaller models of the catalogue with as large a vocabulary, which are unproven."""
    documented = [
        pair for pair in facts.match.pairs if pair.method in ("draft_model", "pard") and pair.drafter
    ]
    documented.sort(key=lambda pair: (ask.engine not in pair.engines, len(pair.trouble)))
    for pair in documented[:MAX_DRAFT_MODELS]:
        yield _step(ask, facts, pair.drafter or "", pair)
    if not documented:
        for name in _smaller(facts)[:1]:
            yield _step(ask, facts, name, None)


def _smaller(facts: Facts) -> list[str]:
    """Models of the target's architecture and vocabulary size that serve as drafters elsewhere, smallest first."""
    active = facts.active_parameters
    shape, model = facts.geometry, facts.model
    vocab = shape.vocab_size if shape else model.vocab_size if model else None
    architecture = facts.architecture
    serving = {pair.drafter for pair in facts.catalogue.pairs if pair.method == "draft_model"}
    found = []
    for known in facts.catalogue.models.values():
        used = known.used_billions
        if (
            known.name in serving and used and active and used * 1e9 < active / 4
            and known.vocab_size == vocab and vocab is not None
            and architecture is not None and architecture == known.architecture and known.name != facts.match.model
        ):  # fmt: skip
            found.append((used, known.name))
    return [name for _, name in sorted(found)]


def _step(ask: Ask, facts: Facts, drafter: str, pair: Pair | None) -> Step:
    known = facts.catalogue.models.get(drafter)
    used = known.used_billions if known else None
    depth = pair.depth if pair and pair.depth else _DEPTH
    standing, evidence, against = Standing.TRY, [], []
    if pair is None:
        standing = Standing.POSSIBLE
        against.append(Claim(f"Nobody is known to document this pair. {_SAME_FAMILY}"))
    else:
        engines = f" for {', '.join(pair.engines)}" if pair.engines else ""
        evidence.append(Claim(f"Documented for {pair.target}{engines}.", pair.sources[0]))
        if ask.engine not in pair.engines:
            standing = Standing.POSSIBLE
            against.append(
                Claim(f"{ask.engine} is not among the engines that its sources name. {_SAME_FAMILY}")
            )
    refusals = [item for item in (pair.trouble if pair else ()) if ask.engine in item.refused_by]
    if refusals:
        standing = Standing.POSSIBLE
        against += [Claim(item.text, item.source) for item in refusals]
    active = facts.active_parameters
    threshold = None
    if used and active:
        cost = used * 1e9 / active
        evidence.append(
            Claim(
                f"{used:g} billion parameters against {active / 1e9:.3g} billion that the target uses per token."
            )
        )
        passes = 1 if pair is not None and pair.method == "pard" else depth
        threshold = pays_if(depth, cost, facts.has_experts, passes)
        needed = needed_acceptance(depth, cost, passes)
        if needed is None:
            standing = Standing.RULED_OUT
            against.append(
                Claim("Its passes cost so much that even certain drafts would not pay.", _MIXTURES)
            )
        elif needed > _HARD:
            standing = standing.at_most(Standing.POSSIBLE)
            against.append(
                Claim(f"It is large for this target: it pays only above {needed:.2f} accepted.", _MIXTURES)
            )
    sizes = (
        () if not used else (Size("draft model at 16 bits", round(used * 2e9), "published parameter count"),)
    )
    return Step(
        kind="draft_model",
        title=f"A draft model: {drafter}",
        standing=standing,
        speculation=Speculation(
            method=pair.method if pair else "draft_model", drafter=ModelRef(name=drafter), depth=depth
        ),
        evidence=tuple(evidence),
        against=tuple(against),
        risks=_other_trouble(ask, pair),
        sizes=sizes,
        pays_if=threshold,
    )


def _other_trouble(ask: Ask, pair: Pair | None) -> tuple[Claim, ...]:
    """Known trouble that does not keep this engine from starting; what keeps others from it says nothing here."""
    trouble = () if pair is None else pair.trouble
    return tuple(Claim(item.text, item.source) for item in trouble if not item.refused_by)


def propose_self(ask: Ask, facts: Facts) -> Iterator[Step]:
    """The target's own weights at four bits in the target's cache: our engine alone has it."""
    shape = facts.geometry
    stored = shape.weights.stored_bytes if shape else None
    if ask.engine != "draftproof" or shape is None or not stored:
        return
    bits = 8 * stored / max(1, shape.parameters.total)
    cost = 4.5 / bits
    title = "Its own weights at four bits as drafter"
    speculation = Speculation(method="self", depth=3, draft_weights="int4")
    evidence = (
        Claim(
            f"The weights have {bits:.1f} bits per parameter; at four bits and scales a draft pass reads {cost:.0%}."
        ),
    )
    threshold = pays_if(3, cost, facts.has_experts)
    if threshold is None:
        against = (
            Claim("The weights are that small already: a draft pass would cost as much as the target's."),
        )
        yield Step(kind="self", title=title, standing=Standing.RULED_OUT, evidence=evidence, against=against)
        return
    extra = round(shape.parameters.total * 4.5 / 8)
    yield Step(
        kind="self",
        title=title,
        standing=Standing.POSSIBLE,
        speculation=speculation,
        evidence=evidence,
        against=(
            Claim("How often the rounded weights agree with themselves was not measured for this model."),
        ),
        sizes=(Size("rounded copy of the weights", extra, "parameters × 4.5 bits"),),
        pays_if=threshold,
    )
