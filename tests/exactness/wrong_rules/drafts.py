"""Wrong rules around the draft: tokens dropped by value, a q that is not what was drawn from, another p."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from draftproof.ops.noise import Purpose
from draftproof.verify import oracle
from draftproof.verify.oracle import Chance, Context, Dist, Draft, Drafter, Model, Node

from .catalogue import VOCAB, Case, Setup, claiming, right_chain, top, wrong
from .chains import Rows, chain, residual

# ---- tokens dropped because of their own value -----------------------------------------------------------


def cut(drafter: Drafter, bad: Callable[[Context, Node], bool]) -> Drafter:
    """The chain up to the first token that `bad(context, node)` names, which is dropped with all behind
    it."""

    def cut_drafter(chance: Chance, context: Context) -> Draft:
        draft = drafter(chance, context)
        for index, node in enumerate(draft):
            if bad((*context, *oracle.path_of(draft, index)), node):
                return draft[:index]
        return draft

    return cut_drafter


@wrong(right_chain)
def forbidden_token_cut(case: Case) -> Setup:
    """A grammar forbids the drafted token: cutting the draft there looks like saving work."""
    drafter = cut(oracle.drawn_chain(case.q, 2), lambda context, node: case.p(context)[node.token] == 0)
    return Setup(case.p, drafter, oracle.rejection)


@wrong(right_chain)
def unsure_token_cut(case: Case) -> Setup:
    """A confidence threshold that looks at the drawn token itself; looking only at those before it is
    fine."""

    def unsure(context: Context, node: Node) -> bool:
        return node.q is not None and node.q[node.token] < Fraction(1, 3)

    return Setup(case.p, cut(oracle.drawn_chain(case.q, 2), unsure), oracle.rejection)


@wrong(right_chain)
def draft_cut_where_the_target_disagrees(case: Case) -> Setup:
    """The rows are there already: verify only as far as the draft is the target's favourite."""

    def disagrees(context: Context, node: Node) -> bool:
        return case.p(context)[node.token] < max(case.p(context))

    return Setup(case.p, cut(oracle.drawn_chain(case.q, 2), disagrees), oracle.rejection)


@wrong(right_chain)
def better_of_two_drafts(case: Case) -> Setup:
    """Draw two drafts, verify the one that the target likes better: the chosen one is no longer drawn from
    q."""
    one = oracle.drawn_chain(case.q, 1)

    def better(chance: Chance, context: Context) -> Draft:
        first = one(chance, context)
        token = chance.pick((Purpose.DRAFT, len(context), 9, 0), case.q(context))
        other = Node(token, 0, case.q(context))
        return max(first, (other,), key=lambda draft: case.p(context)[draft[0].token])

    return Setup(case.p, better, oracle.rejection)


# ---- q is not what was drawn from ------------------------------------------------------------------------


@wrong(right_chain)
def q_at_another_temperature(case: Case) -> Setup:
    """The drafter samples at its own temperature, the q handed over is the plain softmax."""

    def sharper(context: Context) -> Dist:
        return oracle.normalised([mass**2 for mass in case.q(context)])

    drafter = claiming(oracle.drawn_chain(sharper, 2), lambda draft, node, context: case.q(context))
    return Setup(case.p, drafter, oracle.rejection)


@wrong(right_chain)
def q_before_its_filter(case: Case) -> Setup:
    """Top-k is applied in the sampling call, the probabilities were saved before it."""
    drafter = oracle.drawn_chain(lambda context: top(case.q(context), 2), 2)
    return Setup(case.p, claiming(drafter, lambda draft, node, context: case.q(context)), oracle.rejection)


@wrong(right_chain)
def q_filtered_after_drawing(case: Case) -> Setup:
    """The other way round: drawn from all of q, and the filter that p gets is put on q afterwards as well."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        def accept(rows: Rows, row: int, token: int) -> Fraction:
            q = rows.q[row][token]
            return oracle.acceptance_probability(rows.p[row][token], q) if q else Fraction(1)

        return chain(
            accept, lambda rows, row: residual(rows, row) if rows.p[row] != rows.q[row] else rows.p[row]
        )(chance, context, draft, target)

    drafter = claiming(oracle.drawn_chain(case.q, 2), lambda draft, node, context: top(case.q(context), 2))
    return Setup(case.p, drafter, rule)


@wrong(right_chain)
def argmax_draft_claimed_as_drawn(case: Case) -> Setup:
    """Greedy drafts are accepted more often; with the softmax as q they are claimed to be samples."""

    def guess(context: Context) -> list[int]:
        return [case.q(context).index(max(case.q(context)))]

    drafter = claiming(oracle.point_mass_tree(guess, 2), lambda draft, node, context: case.q(context))
    return Setup(case.p, drafter, oracle.rejection)


@wrong(right_chain)
def q_of_the_row_before(case: Case) -> Setup:
    """q rows are stored with an offset of one against the tokens drawn from them."""

    def claim(draft: Draft, index: int, context: Context) -> Dist:
        q = draft[max(index - 1, 0)].q
        assert q is not None
        return q if q[draft[index].token] else oracle.point_mass(draft[index].token, VOCAB)

    return Setup(case.p, claiming(oracle.drawn_chain(case.q, 2), claim), oracle.rejection)


def right_smaller_vocabulary(case: Case) -> Setup:
    return Setup(case.p, oracle.drawn_chain(smaller(case), 2), oracle.rejection)


def smaller(case: Case) -> Model:
    """The drafter's third token is not one of the target's."""
    ids: Mapping[int, int] = {0: 2, 1: 0}
    reachable = oracle.toy_model(case.seed + 1000, VOCAB, zeros=False)
    return oracle.through_map(reachable, ids, VOCAB)


@wrong(right_smaller_vocabulary)
def draft_vocabulary_not_renormalised(case: Case) -> Setup:
    """Tokens that the target does not have are masked before drawing, q keeps the probabilities from
    before."""
    raw = oracle.toy_model(case.seed + 1000, VOCAB, zeros=False)

    def claim(draft: Draft, index: int, context: Context) -> Dist:
        return raw(context)[1], Fraction(0), raw(context)[0]

    return Setup(case.p, claiming(oracle.drawn_chain(smaller(case), 2), claim), oracle.rejection)


# ---- p is not what plain decoding samples from -----------------------------------------------------------


def right_filtered(case: Case) -> Setup:
    return Setup(lambda context: top(case.p(context), 2), oracle.drawn_chain(case.q, 2), oracle.rejection)


@wrong(right_filtered)
def acceptance_before_the_filter(case: Case) -> Setup:
    """The request's top-k acts where tokens are sampled (correction, bonus) but not where drafts are
    judged."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        def correct(rows: Rows, row: int) -> Dist:
            left = oracle.excess(Fraction(1), top(rows.p[row], 2), rows.q[row])
            return oracle.normalised(left) if any(left) else top(rows.p[row], 2)

        judged = chain(correct=correct, bonus=lambda rows, row: top(rows.p[row], 2))
        return judged(chance, context, draft, case.p)

    return Setup(lambda context: top(case.p(context), 2), oracle.drawn_chain(case.q, 2), rule)


def penalised(case: Case, context: Context, counted: Context) -> Dist:
    """What stands in `context` decides p; tokens counted in `counted` are made less likely."""
    weights = case.p(context[-1:])
    return oracle.normalised([mass / (1 + 3 * counted.count(x)) for x, mass in enumerate(weights)])


def right_penalised(case: Case) -> Setup:
    target: Model = lambda context: penalised(case, context, context)  # noqa: E731
    return Setup(target, oracle.drawn_chain(case.q, 2), oracle.rejection)


@wrong(right_penalised)
def penalties_without_the_draft_prefix(case: Case) -> Setup:
    """Penalty counts are kept per request and updated on commit: the drafted tokens before a row are
    missing."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        return oracle.rejection(chance, context, draft, lambda here: penalised(case, here, context))

    return Setup(lambda context: penalised(case, context, context), oracle.drawn_chain(case.q, 2), rule)
