"""Layer 2 of `docs/exactness.md`: the tensor code equals the oracle in float64.

First the conditional quantities to 1e-12, which are the very functions that `verify` calls. Then whole
verdicts: the oracle's programs read the same keyed noise as `verify` and must come to the same path and
token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.ops.noise import Purpose, draw, stream, uniform
from draftproof.verify import NoiseKey, Rule, TargetRows, oracle, rejection, verify
from draftproof.verify import block as tensor_block
from draftproof.verify.coupled import sample
from draftproof.verify.oracle import Context, Dist, Draft, Drafter, Model, Name, Node
from draftproof.verify.tree import RequestDraft, Siblings

TOLERANCE = 1e-12
SEEDS = st.integers(min_value=0, max_value=2**32)


@st.composite
def distributions(draw_value: st.DrawFn, num: int = 2) -> list[Dist]:
    """`num` distributions over one vocabulary of 1 to 12 tokens, many with zeros and with equal entries."""
    vocab = draw_value(st.integers(1, 12))
    weights = st.lists(st.integers(0, 20), min_size=vocab, max_size=vocab).filter(any)
    return [oracle.normalised([Fraction(w) for w in draw_value(weights)]) for _ in range(num)]


def tensor(distribution: Sequence[Fraction]) -> Tensor:
    return torch.tensor([float(mass) for mass in distribution], dtype=torch.float64)


def close(ours: Tensor | float, exact: Sequence[Fraction] | Fraction) -> None:
    assert not isinstance(ours, Tensor) or ours.dtype == torch.float64
    expected = tensor(exact if isinstance(exact, Sequence) else [exact])
    found = torch.as_tensor(ours, dtype=torch.float64).reshape(-1)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=TOLERANCE)


@settings(max_examples=100, deadline=None)
@given(dists=distributions(), data=st.data())
def test_acceptance_and_residuals(dists: list[Dist], data: st.DataObject) -> None:
    p, q = dists
    token = data.draw(st.sampled_from([x for x, mass in enumerate(q) if mass > 0]))
    close(
        rejection.acceptance_probability(float(p[token]), float(q[token])),
        oracle.acceptance_probability(p[token], q[token]),
    )
    if p[token] < 1:
        close(rejection.without(tensor(p), token), oracle.without(p, token))
    if p != q:
        close(rejection.residual(tensor(p), tensor(q)), oracle.residual(p, q))


@settings(max_examples=100, deadline=None)
@given(dists=distributions(num=3), weight=st.fractions(0, 1, max_denominator=1000), data=st.data())
def test_block_weights_and_stop_probabilities(
    dists: list[Dist], weight: Fraction, data: st.DataObject
) -> None:
    p, q, other = dists
    token = data.draw(st.sampled_from([x for x, mass in enumerate(other) if mass > 0]))
    close(
        tensor_block.prefix_weight(float(weight), float(p[token]), float(other[token])),
        oracle.prefix_weight(weight, p[token], other[token]),
    )
    left = oracle.excess(weight, p, q)
    close(tensor_block.excess(float(weight), tensor(p), tensor(q)), left)
    one_hot = oracle.point_mass(token, len(p))
    close(
        tensor_block.excess_of_point_mass(float(weight), tensor(p), token), oracle.excess(weight, p, one_hot)
    )
    mass = sum(left, Fraction(0))
    assume(mass > 0 or weight < 1)  # 0 / 0: any value is right
    close(tensor_block.stop_probability(float(weight), float(mass)), oracle.stop_probability(weight, mass))


@settings(max_examples=100, deadline=None)
@given(dists=distributions(num=3), data=st.data())
def test_siblings_judged_one_after_the_other(dists: list[Dist], data: st.DataObject) -> None:
    """Point masses and two distributions mixed: every acceptance given the rejections before, and what is
    left."""
    p, *qs = dists
    vocab = len(p)
    left = list(qs)
    tokens: list[int] = []
    q_rows: list[int | None] = []
    accepts: list[Fraction] = []
    residuals: list[Dist] = []
    for _ in range(data.draw(st.integers(1, 4))):
        q_row = data.draw(st.sampled_from([None, 0, 1]))
        q = oracle.point_mass(data.draw(st.integers(0, vocab - 1)), vocab) if q_row is None else left[q_row]
        token = data.draw(st.sampled_from([x for x, mass in enumerate(q) if mass > 0]))
        tokens.append(token)
        q_rows.append(q_row)
        accepts.append(oracle.acceptance_probability(p[token], q[token]))
        if accepts[-1] == 1 or (q_row is not None and q[token] == 1):
            break
        p = oracle.residual(p, q)
        residuals.append(p)
        if q_row is not None:
            left[q_row] = oracle.without(q, token)
    draft = RequestDraft(
        tokens, [0] * len(tokens), q_rows, torch.stack([tensor(q) for q in qs]), [tensor(dists[0])]
    )
    siblings = Siblings(draft, draft.p[0])
    for node, accept in enumerate(accepts):
        close(siblings.acceptance(node), accept)
        if node < len(residuals):
            siblings.reject(node)
            close(siblings.p, residuals[node])


# ---- whole verdicts under the same noise -----------------------------------------------------------------


class Keyed:
    """`oracle.Chance` on the noise of `ops.noise`: the oracle decides with the numbers that `verify`
    reads."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def below(self, name: Name, threshold: Fraction) -> bool:
        purpose, position, stream_draw, index = name
        return uniform(stream(self.seed, position, purpose, stream_draw), index) < float(threshold)

    def pick(self, name: Name, weights: Sequence[Fraction]) -> int:
        """Siblings drawn without replacement read one stream: the next best of what is left."""
        purpose, position, stream_draw, _ = name
        return int(draw(tensor(weights)[None], [stream(self.seed, position, purpose, stream_draw)]))


def as_batch(drafts: Sequence[Draft], vocab: int, q_dtype: torch.dtype = torch.float64) -> DraftBatch:
    """The drafts of several requests as proposers hand them over."""
    q_index: dict[tuple[int, int, int], int] = {}
    q_probs: list[Tensor] = []
    q_rows: list[int] = []
    nodes = [(request, node) for request, draft in enumerate(drafts) for node in draft]
    for request, node in nodes:
        if node.q is None:
            q_rows.append(0)
            continue
        key = (request, node.parent_row, node.q_row)
        if key not in q_index:
            q_index[key] = len(q_probs)
            q_probs.append(tensor(node.q).to(q_dtype))
        q_rows.append(q_index[key])
    offsets = [0]
    for draft in drafts:
        offsets.append(offsets[-1] + len(draft))
    return DraftBatch(
        tokens=torch.tensor([node.token for _, node in nodes], dtype=torch.int64),
        parent_rows=torch.tensor([node.parent_row for _, node in nodes], dtype=torch.int64),
        node_offsets=torch.tensor(offsets),
        is_point_mass=torch.tensor([node.q is None for _, node in nodes], dtype=torch.bool),
        q_rows=torch.tensor(q_rows, dtype=torch.int64),
        q=torch.stack(q_probs) if q_probs else torch.zeros((0, vocab), dtype=q_dtype),
    )


def target_rows(
    drafts: Sequence[Draft], targets: Sequence[Model], contexts: Sequence[Context], seeds: Sequence[int]
) -> TargetRows:
    """p and the coupled token of every row; `probs` holds the rows in reverse, so that `prob_rows`
    matters."""
    rows: list[Tensor] = []
    keys: list[NoiseKey] = []
    for draft, target, context, seed in zip(drafts, targets, contexts, seeds, strict=True):
        for row in range(len(draft) + 1):
            here = (*context, *oracle.path_of(draft, row))
            rows.append(tensor(target(here)))
            keys.append(NoiseKey(seed, len(here)))
    probs = torch.stack(rows)
    return TargetRows(sample(probs, keys), torch.arange(len(rows)).flip(0), probs.flip(0))


RULES: dict[Rule, oracle.Rule] = {
    Rule.MATCH: oracle.matching,
    Rule.REJECTION: oracle.rejection,
    Rule.BLOCK: oracle.block,
}


def guess(context: Context) -> list[int]:
    return [sum(context) % 3, (sum(context) + 1) % 3, sum(context) % 3]


def mixed(q: Model) -> Drafter:
    """A drawn chain whose second token is a point mass."""

    def drafter(chance: oracle.Chance, context: Context) -> Draft:
        first, second, third = oracle.drawn_chain(q, 3)(chance, context)
        return first, Node(second.token, 1), third

    return drafter


DRAFTERS: dict[str, Callable[[Model], Drafter]] = {
    "nothing": lambda q: oracle.drawn_chain(q, 0),
    "chain": lambda q: oracle.drawn_chain(q, 4),
    "point-mass chain": lambda q: oracle.point_mass_tree(lambda context: guess(context)[:1], 5),
    "mixed chain": mixed,
    "tree": lambda q: oracle.drawn_tree(q, [2, 2]),
    "wide tree": lambda q: oracle.drawn_tree(q, [4, 1]),
    "point-mass tree": lambda q: oracle.point_mass_tree(guess, 2),
}


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    requests=st.lists(
        st.tuples(st.sampled_from(list(Rule)), st.sampled_from(list(DRAFTERS)), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
)
def test_verdicts_are_those_of_the_oracle_under_the_same_noise(
    seed: int, requests: list[tuple[Rule, str, int]]
) -> None:
    vocab = 4
    requests = [request for request in requests if request[0] is not Rule.BLOCK or "tree" not in request[1]]
    assume(requests)
    drafts, targets, contexts, expected = [], [], [], []
    for index, (rule, kind, position) in enumerate(requests):
        target = oracle.toy_model(seed + index, vocab)
        drafter = DRAFTERS[kind](oracle.toy_model(seed - index - 1, vocab))
        context = tuple((seed + depth) % vocab for depth in range(position))
        chance = Keyed(seed + index)
        draft = drafter(chance, context)
        drafts.append(draft)
        targets.append(target)
        contexts.append(context)
        expected.append(RULES[rule](chance, context, draft, target))
    seeds = [seed + index for index in range(len(requests))]
    verdicts = verify(
        as_batch(drafts, vocab),
        target_rows(drafts, targets, contexts, seeds),
        [rule for rule, _, _ in requests],
        [NoiseKey(s, len(context)) for s, context in zip(seeds, contexts, strict=True)],
    )
    assert [verdict.run for verdict in verdicts] == expected
    for verdict, draft in zip(verdicts, drafts, strict=True):
        assert [oracle.path_of(draft, row) for row in verdict.path] == [
            verdict.tokens[: depth + 1] for depth in range(len(verdict.path))
        ]


# ---- whole texts, statistically --------------------------------------------------------------------------

FALSE_ALARM_RATE = 1e-6
"""Chance that a right implementation fails one of the tests below. Seeds are fixed, so they pass or fail
for good; the rate is what a change of the noise or of the seeds is exposed to."""


def chi_square_p_value(counts: dict[Context, int], expected: dict[Context, Fraction]) -> float:
    """Pearson's goodness of fit; cells with fewer than five expected counts are put together."""
    total = sum(counts.values())
    assert set(counts) <= set(expected), "an impossible text"
    cells: list[tuple[float, float]] = []
    small = [0.0, 0.0]
    for text, probability in expected.items():
        observed, mean = float(counts.get(text, 0)), total * float(probability)
        if mean < 5:
            small[0] += observed
            small[1] += mean
        else:
            cells.append((observed, mean))
    if small[1] > 0:
        cells.append((small[0], small[1]))
    statistic = sum((observed - mean) ** 2 / mean for observed, mean in cells)
    half = torch.tensor([(len(cells) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule.MATCH, "point-mass chain"),
        (Rule.MATCH, "tree"),
        (Rule.REJECTION, "chain"),
        (Rule.REJECTION, "point-mass tree"),
        (Rule.REJECTION, "tree"),
        (Rule.BLOCK, "chain"),
        (Rule.BLOCK, "mixed chain"),
    ],
)
def test_texts_of_several_rounds_are_distributed_as_the_targets_own(rule: Rule, kind: str) -> None:
    vocab, horizon, num_texts = 3, 3, 1500
    target, q = oracle.toy_model(11, vocab, zeros=False), oracle.toy_model(12, vocab, zeros=False)
    drafter = DRAFTERS["chain" if kind == "mixed chain" else kind](q)
    if kind == "mixed chain":  # a point mass may not depend on the noise of the draft's own draws

        def drafter(chance: oracle.Chance, context: Context) -> Draft:
            first = oracle.drawn_chain(q, 1)(chance, context)[0]
            second = guess((*context, first.token))[0]
            here = (*context, first.token, second)
            third = chance.pick((Purpose.DRAFT, len(context), 2, 0), q(here))
            return first, Node(second, 1), Node(third, 2, q(here), 2)

    texts: list[Context] = [()] * num_texts
    while True:
        going = [seed for seed, text in enumerate(texts) if len(text) < horizon]
        if not going:
            break
        contexts = [texts[seed] for seed in going]
        drafts = [drafter(Keyed(seed), text) for seed, text in zip(going, contexts, strict=True)]
        verdicts = verify(
            as_batch(drafts, vocab, torch.float32),
            target_rows(drafts, [target] * len(going), contexts, going),
            [rule] * len(going),
            [NoiseKey(seed, len(text)) for seed, text in zip(going, contexts, strict=True)],
        )
        for seed, verdict in zip(going, verdicts, strict=True):
            texts[seed] = (*texts[seed], *verdict.run)
    counts: dict[Context, int] = {}
    for text in texts:
        counts[text[:horizon]] = counts.get(text[:horizon], 0) + 1
    assert chi_square_p_value(counts, oracle.extended({(): Fraction(1)}, target, horizon)) > FALSE_ALARM_RATE
