"""Drafting with heads that read the target's hidden states: built into its checkpoint (MTP), or published for it.

Called by `advising`. Knows checkpoints and the catalogue; engines are judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from draftproof.checkpoints.geometry import Geometry
from draftproof.configs.pairs import Pair
from draftproof.configs.speculation import Method, ModelRef, Speculation
from draftproof.core.finding import Source
from draftproof.planning.advice.ask import Ask
from draftproof.planning.advice.facts import Facts, MtpFacts, mtp_weights
from draftproof.planning.advice.step import Claim, Size, Standing, Step
from draftproof.planning.advice.thresholds import pays_if

_HEADS: tuple[Method, ...] = ("eagle3", "p_eagle", "dflash", "dspark", "eagle")
"""In the order in which they are proposed where nothing else tells them apart: published comparisons on the same
targets, see the catalogue."""
_START: Mapping[Method, int] = {"dflash": 7, "dspark": 7}
"""Draft tokens to start from where the sources name none: block drafters draft a whole block in one pass."""
_DEFAULT_START = 3
MAX_HEADS = 3

_DROPPED = Source(
    name="ms-swift issue 9802, auto-round PR 1526, GPTQModel issue 2643 (heads lost in conversion)",
    read="2026-11",
)
_LONG = Source(
    name="vLLM issue 47602", read="2026-11", url="https://github.com/vllm-project/vllm/issues/47602"
)
_GUIDE = Source(
    name="vLLM documentation, MTP",
    read="2026-11",
    url="https://docs.vllm.ai/en/stable/features/speculative_decoding/mtp/",
)


def propose_mtp(ask: Ask, facts: Facts) -> Iterator[Step]:
    """The built-in layers: only where their tensors are there is this a step to try."""
    documented = [pair for pair in facts.match.pairs if pair.method == "mtp" and pair.drafter is None]
    depth = next((pair.depth for pair in documented if pair.depth), 1)
    speculation = Speculation(method="mtp", depth=depth)
    title = "Its own prediction layers (MTP)"
    evidence = [_documented(pair) for pair in documented]
    if facts.mtp is None:
        if documented:
            against = [Claim(f"Whether its files still have their tensors was not checked: {ask.unread}.")]
            named = {engine for pair in documented for engine in pair.engines}
            if ask.engine not in named:
                against.append(
                    Claim(f"Its sources name {', '.join(sorted(named))}; {ask.engine} is not among them.")
                )
            yield Step(
                kind="mtp",
                title=title,
                standing=Standing.TRY if ask.engine in named else Standing.POSSIBLE,
                speculation=speculation,
                evidence=tuple(evidence),
                against=tuple(against),
                risks=_mtp_risks(depth),
            )
        return
    present, claims = _presence(facts.mtp)
    if present is None and not documented:
        return
    standing = {True: Standing.TRY, None: Standing.POSSIBLE, False: Standing.RULED_OUT}[present]
    weights = mtp_weights(facts)
    stored = weights.stored_bytes if weights else None
    sizes = () if stored is None else (Size("prediction layers", stored, "headers"),)
    cost = _mtp_cost(facts.geometry) if facts.geometry else None
    threshold = pays_if(depth, cost, facts.has_experts) if cost is not None else None
    yield Step(
        kind="mtp",
        title=title,
        standing=standing,
        speculation=speculation,
        evidence=(*claims, *evidence) if present is not False else tuple(evidence),
        against=tuple(claims) if present is False else (),
        risks=_mtp_risks(depth) if present is not False else (),
        sizes=sizes if present else (),
        pays_if=threshold if present else None,
    )


def missing_mtp(facts: Facts) -> Iterator[Claim]:
    """Layers that the configuration declares and the files lack: to be mended before anything is started."""
    mtp = facts.mtp
    if mtp is not None and mtp.declared is not None and mtp.present is False:
        key, count = mtp.declared
        yield Claim(
            f"config.json declares {count} prediction layer{'s' * (count > 1)} ({key}), and no tensor of them is in "
            "the files: a conversion dropped them. Take a checkpoint that has them, or graft them from the original; "
            "after fine-tuning they accept less.",
            _DROPPED,
        )


def _presence(mtp: MtpFacts) -> tuple[bool | None, list[Claim]]:
    declared = mtp.declared
    said = (
        "the configuration declares none"
        if declared is None
        else f"config.json: {declared[0]} = {declared[1]}"
    )
    if mtp.present is None:
        if declared is None:
            return None, [Claim("Neither config.json nor tensor names say whether there are any.")]
        return None, [Claim(f"{said}; the names of the tensors are not at hand.")]
    if mtp.present:
        return True, [Claim(f"Its tensors are in the files, such as {mtp.example} ({said}).")]
    return False, [Claim(f"{said}, and no such tensor is in the files.")]


def _mtp_cost(shape: Geometry) -> float | None:
    """One draft token's pass as a share of the target's: a layer, the joining matrix and the output matrix. None where
    the files hold no layers to compare with."""
    output = shape.vocab_size * shape.hidden_size
    body = shape.parameters.active - shape.parameters.embedding - shape.parameters.output
    if body <= 0:
        return None
    return (body / shape.num_layers + 2 * shape.hidden_size**2 + output) / (body + output)


def _mtp_risks(depth: int) -> tuple[Claim, ...]:
    if depth == 1:
        return (
            Claim(
                "More than one token per round asks the same layer again and accepts less each time.", _GUIDE
            ),
        )
    return (
        Claim(
            "With long contexts later positions were seen to accept far less: measure at your lengths.", _LONG
        ),
    )


def propose_heads(ask: Ask, facts: Facts) -> Iterator[Step]:
    """Published heads of this very target, those for the asked engine first."""
    pairs = [
        pair for pair in facts.match.pairs if pair.method in _HEADS or (pair.method == "mtp" and pair.drafter)
    ]
    for pair in sorted(pairs, key=lambda pair: _rank(pair, ask.engine))[:MAX_HEADS]:
        yield _head(ask, facts, pair)


def others(ask: Ask, facts: Facts) -> Sequence[Pair]:
    """Published heads beyond those that are proposed."""
    pairs = [pair for pair in facts.match.pairs if pair.method in _HEADS]
    return sorted(pairs, key=lambda pair: _rank(pair, ask.engine))[MAX_HEADS:]


def _rank(pair: Pair, engine: str) -> tuple[bool, int, bool, int, int]:
    """Served by the engine; the less known trouble the better; acceptance reported at a known depth; the method's
    order; more sources."""
    order = _HEADS.index(pair.method) if pair.method in _HEADS else 0
    reported = any(report.depth for report in pair.acceptance)
    return engine not in pair.engines, len(pair.trouble), not reported, order, -len(pair.sources)


def _head(ask: Ask, facts: Facts, pair: Pair) -> Step:
    assert pair.drafter is not None
    standing, against = Standing.TRY, []
    if ask.engine not in pair.engines:
        standing = Standing.POSSIBLE
        named = ", ".join(pair.engines) or "no engine"
        against.append(Claim(f"Its sources name {named}; {ask.engine} is not among them."))
    if facts.is_claimed_by_files and facts.match.claim is not None:
        standing = Standing.POSSIBLE
        against.append(
            Claim(
                f"That this is {facts.match.model} is what the checkpoint's files state ({facts.match.claim.where}); a "
                "fine-tuned model states the same, and heads of another model accept less."
            )
        )
    depth = pair.depth or _START.get(pair.method, _DEFAULT_START)
    if pair.depth is None:
        against.append(
            Claim(f"The sources name no number of draft tokens: {depth} is a start to measure from.")
        )
    reports = [
        Claim(
            f"Reported, not measured here: {report.length} tokens per round"
            f"{f' at {report.depth} draft tokens' if report.depth else ''} by {report.by} ({report.condition}).",
            report.source,
        )
        for report in pair.acceptance
    ]
    return Step(
        kind="head",
        title=f"A published head: {pair.drafter}",
        standing=standing,
        speculation=Speculation(method=pair.method, drafter=ModelRef(name=pair.drafter), depth=depth),
        evidence=(_documented(pair), *reports),
        against=tuple(against),
        risks=tuple(Claim(trouble.text, trouble.source) for trouble in pair.trouble),
    )


def _documented(pair: Pair) -> Claim:
    engines = f" for {', '.join(pair.engines)}" if pair.engines else ""
    what = f"{pair.method} with {pair.drafter}" if pair.drafter else f"built-in {pair.method}"
    return Claim(f"Documented for {pair.target}: {what}{engines}.", pair.sources[0])
