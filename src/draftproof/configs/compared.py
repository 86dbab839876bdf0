"""The page `docs/methods.md`: engines compared by method, report, limit, and by what translation loses.

Out of the rule base's tables and of the dialects themselves; called by whoever writes generated pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.rules.facts.features import FEATURES
from draftproof.configs.rules.facts.methods import METHODS, MethodFact
from draftproof.configs.rules.facts.parameters import FACTS
from draftproof.configs.rules.facts.reports import REPORTS
from draftproof.configs.rules.page import in_words
from draftproof.configs.speculation import (
    BatchRange,
    Deployment,
    LookUp,
    Method,
    ModelRef,
    Speculation,
    Tree,
)

_INTRO = """\
# Engines compared

This page is generated from the rule base and the dialects by `python -m draftproof.cli.docs`; do not edit it.

Which engine for which speculation? Four questions, in this order:

1. Does the engine have the method, in the version that you run? [At a glance](#at-a-glance), then the method's table.
2. Will it serve what your requests ask for? [Other features](#together-with-other-features) and
   [request parameters](#request-parameters-under-speculation) name what is refused, ignored, or was reported as faulty.
3. Will you see whether it pays? [What engines report](#what-engines-report) differs, and so does what the words mean.
4. What is lost on the way there? [Translation](#what-translation-loses) says it setting by setting;
   [`draftproof translate`](translate.md) says it for your configuration, `draftproof check` judges it with your models.

None of this says what is faster: that depends on your model, load and hardware, and has to be measured. What is not
listed was not found in the version read; that is no promise about other versions.
"""
_LOSSES = """\
## What translation loses

What others can say of speculation and an engine cannot, found by translating every method with all its settings.
*Impossible*: nothing is written.
"""


def methods_page() -> str:
    methods = list(dict.fromkeys(fact.method for fact in METHODS))
    engines = list(dict.fromkeys(fact.reading.engine for fact in METHODS))
    parts = [
        _INTRO,
        _section("What was read", None, ("engine", "version", "from"), _read(engines)),
        _section(
            "At a glance",
            "The versions that were read and have it; –: not found in those that were read.",
            ("method", *engines),
            _glance(methods, engines),
        ),
        *(
            _section(
                f"Method {method}",
                None,
                ("engine", "written", "versions", "drafter", "needs"),
                _written(method),
            )
            for method in methods
        ),
        _section(
            "What engines report",
            None,
            ("engine", "over all requests", "with an answer", "how to read it"),
            _reports(),
        ),
        _section(
            "Together with other features",
            None,
            ("engine", "feature", "methods", "severity", "what happens"),
            _features(),
        ),
        _section(
            "Request parameters under speculation",
            '"reported": others met faults, and in which versions is not known.',
            ("engine", "parameters", "methods", "effect", "what happens"),
            _parameters(),
        ),
        _LOSSES,
        *(
            _section(f"To {engine}", None, ("setting", "from", "why"), _lost(engine), "###")
            for engine in DIALECTS
        ),
    ]
    return "\n".join(parts)


def _section(
    title: str, before: str | None, head: tuple[str, ...], rows: Iterable[tuple[str, ...]], level: str = "##"
) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |" for row in rows]
    return "\n".join([f"{level} {title}\n", *([f"{before}\n"] if before else []), *lines, ""])


def _read(engines: list[str]) -> Iterator[tuple[str, ...]]:
    for engine in engines:
        found = dialect(engine)
        yield f"{found.title} (`{engine}`)", found.read_version, f"{found.source.name}, {found.source.read}"


def _glance(methods: list[Method], engines: list[str]) -> Iterator[tuple[str, ...]]:
    found = {(fact.method, fact.reading.engine): fact for fact in METHODS}
    for method in methods:
        yield (method, *(_since(found.get((method, engine))) for engine in engines))


def _since(fact: MethodFact | None) -> str:
    return "–" if fact is None else in_words(fact.reading).removeprefix("(").removesuffix(")")


def _written(method: Method) -> Iterator[tuple[str, ...]]:
    for fact in METHODS:
        if fact.method == method:
            gone = [f"removed: {fact.gone.versions}. {fact.instead}"] if fact.gone else []
            needs = "; ".join([*fact.needs, *gone]) or "–"
            drafter = {"none": "–", "checkpoint": "named", "either": "may be named"}[fact.drafter]
            yield fact.reading.engine, f"`{fact.written}`", in_words(fact.reading), drafter, needs


def _reports() -> Iterator[tuple[str, ...]]:
    for report in REPORTS:
        totals, answers = ", ".join(report.totals) or "–", ", ".join(report.answers) or "–"
        yield f"{report.reading.engine} {in_words(report.reading)}", totals, answers, report.words


def _features() -> Iterator[tuple[str, ...]]:
    for fact in FEATURES:
        methods = _which(fact.methods, fact.not_methods)
        engine, feature = f"{fact.reading.engine} {in_words(fact.reading)}", fact.feature.replace("_", " ")
        yield engine, feature, methods, fact.severity.value, fact.effect


def _parameters() -> Iterator[tuple[str, ...]]:
    for fact in FACTS:
        engine = f"{fact.reading.engine} {in_words(fact.reading)}"
        yield engine, ", ".join(fact.parameters), _which(fact.methods), fact.effect, fact.words


def _which(methods: frozenset[Method], not_methods: frozenset[Method] = frozenset()) -> str:
    if methods:
        return ", ".join(sorted(methods))
    return f"all but {', '.join(sorted(not_methods))}" if not_methods else "all"


def _lost(target: str) -> Iterator[tuple[str, ...]]:
    """Setting (or method), the engines that can say it, and the reason."""
    lost: dict[tuple[str, str, str], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    general = f" of {dialect(target).title} has no such setting"
    for fact in METHODS:
        for deployment in sayable(fact) if fact.reading.engine != target else ():
            rendered = dialect(target).render(deployment)
            for note in rendered.notes:
                kind, setting = note.kind.value, note.setting.removeprefix("speculation.")
                told = kind == "impossible" or (kind == "dropped" and bool(rendered.artifacts))
                if not told or note.before is None or setting == note.setting or setting.startswith("extras"):
                    continue
                setting = setting.replace("lookup.", "").partition(".")[0]
                if setting == "method":
                    setting = f"method {fact.method}"
                reason = "no such setting" if note.reason.endswith(general) else note.reason
                engines, methods = lost["" if kind == "dropped" else "*Impossible*: ", setting, reason]
                engines.add(fact.reading.engine)
                methods.add(fact.method)
    for (kind, setting, reason), (engines, methods) in sorted(
        lost.items(), key=lambda item: (item[0][1], item[0])
    ):
        of = "" if setting.startswith("method ") else f" ({', '.join(sorted(methods))})"
        yield f"{setting}{of}", ", ".join(sorted(engines)), f"{kind}{reason}"


def sayable(fact: MethodFact) -> Iterator[Deployment]:
    """What the engine of `fact` holds of a configuration that says everything: written, and read again."""
    own = dialect(fact.reading.engine)
    for asked in _everything(fact.method):
        rendered = own.render(Deployment(engine="", target=ModelRef(name="target"), speculation=asked))
        if rendered.artifacts:
            files = {artifact.name: artifact.text for artifact in rendered.artifacts}
            yield own.parse(rendered.artifacts[0].text, read=files.__getitem__).deployment


def _everything(method: Method) -> Iterator[Speculation]:
    """Several, for some settings exclude one another."""
    lookup = LookUp(
        min_ngram=2, max_ngram=4, min_hits=2, max_tree_depth=16, max_spec_factor=1.5, min_token_prob=0.2,
        max_cached_requests=100,
    )  # fmt: skip
    chain = Speculation(
        method=method, drafter=ModelRef(name="drafter"), depth=4, min_depth=1, min_confidence=0.5, lookup=lookup,
        draft_tensor_parallel=1, draft_max_model_len=2048, draft_kv_dtype="fp8", draft_weights="int4",
    )  # fmt: skip
    yield replace(chain, verification="standard", draft_sampling="greedy", adaptive=True)
    yield replace(chain, verification="block", draft_sampling="probabilistic", adaptive=False)
    yield replace(chain, verification="exact_match", different_vocabulary=True)
    yield replace(chain, depth=None, tree=Tree(depth=3, branching=3, num_nodes=7))
    yield replace(chain, schedule=(BatchRange(low=1, high=8, depth=4), BatchRange(low=9, high=None, depth=0)))
