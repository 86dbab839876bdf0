"""How a wrong rule is written down and checked; the modules beside this one fill the catalogue.

A wrong rule is a function that returns the setup with the mistake in it. Its docstring says why people
write it. `@wrong(...)` names the right setup, which must pass the very same check on the very same models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from draftproof.verify import oracle
from draftproof.verify.oracle import Chance, Context, Dist, Draft, Drafter, Model, Node, Rule

VOCAB = 3


class Setup(NamedTuple):
    """What is checked: the arguments of `oracle.deviation`."""

    target: Model
    drafter: Drafter
    rule: Rule
    horizon: int = 3
    num_rounds: int = 1


@dataclass(frozen=True)
class Case:
    """A target p and a drafter's model q; every other case has impossible tokens."""

    seed: int

    @property
    def p(self) -> Model:
        return oracle.toy_model(self.seed, VOCAB, zeros=self.seed % 2 == 0)

    @property
    def q(self) -> Model:
        return oracle.toy_model(self.seed + 1000, VOCAB, zeros=self.seed % 2 == 0)


CASES = [Case(seed) for seed in range(4)]
Build = Callable[[Case], Setup]
CATALOGUE: dict[str, tuple[Build, Build]] = {}
"""name -> (wrong, right)"""


def wrong(right: Build) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        CATALOGUE[build.__name__] = (build, right)
        return build

    return register


def right_chain(case: Case) -> Setup:
    return Setup(case.p, oracle.drawn_chain(case.q, 2), oracle.rejection)


def right_tree(case: Case) -> Setup:
    """Two siblings drawn without replacement."""
    return Setup(case.p, oracle.drawn_tree(case.q, [2]), oracle.rejection, horizon=2)


def top(distribution: Dist, k: int) -> Dist:
    """Top-k filter; among equals the lower id stays."""
    kept = sorted(range(len(distribution)), key=lambda x: (-distribution[x], x))[:k]
    return oracle.normalised([mass if x in kept else 0 * mass for x, mass in enumerate(distribution)])


def claiming(drafter: Drafter, claim: Callable[[Draft, int, Context], Dist]) -> Drafter:
    """The same draft with another q written next to it: `claim(draft, node, context before the node)`."""

    def claiming_drafter(chance: Chance, context: Context) -> Draft:
        draft = drafter(chance, context)
        before = [(*context, *oracle.path_of(draft, node.parent_row)) for node in draft]
        return tuple(
            Node(node.token, node.parent_row, claim(draft, index, before[index]), node.q_row)
            for index, node in enumerate(draft)
        )

    return claiming_drafter
