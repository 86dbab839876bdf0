"""No rule cries wolf: known-good pairs, on the engines that their sources name, with the configuration that is used.

Allowed is what says that a pair is not proven, where the checkpoints declare nothing; and where a rule finds what the
catalogue itself lists as this pair's trouble, it is right.
"""

import functools
from collections.abc import Callable, Iterator

import pytest

from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.configs.pairs import Pair, load_catalogue
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.core.finding import Finding, Severity
from support.known_pairs import known_pairs, write_model

ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "openvino", "transformers", "fireworks")

RIGHT = {
    # The documentation's own first example, which the version that was read refuses: vocab_size 152064 and 151936.
    ("sglang", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"): {"VOCAB-02"},
}
"""Alarms that are right, engine, target and drafter: the catalogue lists them as the pair's trouble."""
View = Callable[[str], CheckpointView]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    folder = tmp_path_factory.mktemp("known")
    return functools.cache(lambda name: open_view(str(write_model(name, folder))))


def _cases() -> Iterator[object]:
    for known in known_pairs():
        found = load_catalogue().find(known.target, known.drafter)
        pair = next(pair for pair in found if pair.method == known.method)
        for engine in [engine for engine in pair.engines if engine in ENGINES] or ["vllm"]:
            yield pytest.param(pair, engine, id=f"{engine}:{known}")


def _deployment(pair: Pair, engine: str) -> Deployment:
    drafter = None if pair.drafter is None else ModelRef(name=pair.drafter)
    depth = pair.depth or (1 if pair.method == "mtp" else 3)
    return Deployment(
        engine=engine,
        target=ModelRef(name=pair.target),
        speculation=Speculation(method=pair.method, drafter=drafter, depth=depth),
    )


def _alarms(findings: tuple[Finding, ...]) -> list[Finding]:
    return [
        finding
        for finding in findings
        if finding.severity is not Severity.INFO and not finding.code.startswith("PAIR-")
    ]


@pytest.mark.parametrize(("pair", "engine"), list(_cases()))
def test_a_known_good_pair_raises_no_alarm(pair: Pair, engine: str, view: View) -> None:
    case = Case(
        deployment=_deployment(pair, engine),
        target_view=view(pair.target),
        drafter_view=None if pair.drafter is None else view(pair.drafter),
    )
    judgement = judge(case, rules_of())
    assert judgement.checked
    right = RIGHT.get((engine, pair.target, pair.drafter or ""), set())
    assert {finding.code for finding in _alarms(judgement.findings)} == right
    assert pair.trouble or not right
