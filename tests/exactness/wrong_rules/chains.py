"""Wrong rules for a chain of drafted tokens: acceptance, correction, bonus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from draftproof.ops.noise import Purpose
from draftproof.verify import oracle
from draftproof.verify.oracle import Chance, Context, Dist, Draft, Model, Rule

from .catalogue import VOCAB, Build, Case, Setup, right_chain, wrong

# ---- a chain rule in three exchangeable parts ------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """p of every row of a chain and q of every node (a point mass one-hot)."""

    p: list[Dist]
    q: list[Dist]


Accept = Callable[[Rows, int, int], Fraction]
Weights = Callable[[Rows, int], Dist]


def accept_by_ratio(rows: Rows, row: int, token: int) -> Fraction:
    return oracle.acceptance_probability(rows.p[row][token], rows.q[row][token])


def residual(rows: Rows, row: int) -> Dist:
    return oracle.residual(rows.p[row], rows.q[row])


def own_row(rows: Rows, row: int) -> Dist:
    return rows.p[row]


def chain(
    accept: Accept = accept_by_ratio, correct: Weights = residual, bonus: Weights = own_row, emit_bad: int = 0
) -> Rule:
    """Token by token: `accept`, at the first rejection a token from `correct`, at the end one from
    `bonus`."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        run = tuple(node.token for node in draft)
        p = [target((*context, *run[:row])) for row in range(len(run) + 1)]
        rows = Rows(p, [n.q if n.q is not None else oracle.point_mass(n.token, VOCAB) for n in draft])
        for row, token in enumerate(run):
            if not chance.below((Purpose.ACCEPT, len(context), row, 0), accept(rows, row, token)):
                run, weights = run[: row + emit_bad], correct(rows, row)
                break
        else:
            weights = bonus(rows, len(draft))
        return (*run, chance.pick((Purpose.RECOVER, len(context) + len(run), 0, 0), weights))

    return rule


def with_rule(rule: Rule) -> Build:
    return lambda case: Setup(case.p, oracle.drawn_chain(case.q, 2), rule)


# ---- acceptance ------------------------------------------------------------------------------------------


@wrong(right_chain)
def ratio_upside_down(case: Case) -> Setup:
    """Papers disagree on which model is called p: swap the letters and q/p looks as good as p/q."""

    def accept(rows: Rows, row: int, token: int) -> Fraction:
        p, q = rows.p[row][token], rows.q[row][token]
        return min(Fraction(1), q / p) if p else Fraction(0)

    return with_rule(chain(accept))(case)


@wrong(right_chain)
def accept_only_where_p_exceeds_q(case: Case) -> Setup:
    """ "The target likes it at least as much" reads like the rule, and saves a random number."""
    return with_rule(chain(lambda rows, row, x: Fraction(rows.p[row][x] >= rows.q[row][x])))(case)


@wrong(right_chain)
def lenient_acceptance(case: Case) -> Setup:
    """A lenience factor (p / q doubled) raises the acceptance rate and the text still looks fine."""
    return with_rule(chain(lambda rows, row, x: min(Fraction(1), 2 * rows.p[row][x] / rows.q[row][x])))(case)


@wrong(right_chain)
def typical_acceptance(case: Case) -> Setup:
    """Accept whatever the target finds plausible enough: faster, and a different distribution."""
    return with_rule(chain(lambda rows, row, x: Fraction(rows.p[row][x] > Fraction(1, 4))))(case)


@wrong(right_chain)
def greedy_acceptance_of_a_sampled_request(case: Case) -> Setup:
    """The greedy test (draft equals the argmax) was written first and stayed when temperature came."""

    def accept(rows: Rows, row: int, token: int) -> Fraction:
        return Fraction(token == rows.p[row].index(max(rows.p[row])))

    return with_rule(chain(accept, correct=own_row))(case)


# ---- correction and bonus --------------------------------------------------------------------------------


@wrong(right_chain)
def resample_from_p(case: Case) -> Setup:
    """After a rejection "just sample from the target": counts twice what acceptance already gave."""
    return with_rule(chain(correct=own_row))(case)


@wrong(right_chain)
def residual_of_q_minus_p(case: Case) -> Setup:
    """The swapped letters again, in the second formula."""

    def correct(rows: Rows, row: int) -> Dist:
        return oracle.residual(rows.q[row], rows.p[row])

    return with_rule(chain(correct=correct))(case)


@wrong(right_chain)
def residual_not_renormalised(case: Case) -> Setup:
    """Inverse CDF over max(p - q, 0) without dividing by its sum: what is missing falls to the last token."""

    def correct(rows: Rows, row: int) -> Dist:
        left = oracle.excess(Fraction(1), rows.p[row], rows.q[row])
        return (*left[:-1], 1 - sum(left[:-1], Fraction(0)))

    return with_rule(chain(correct=correct))(case)


@wrong(right_chain)
def residual_without_clamping(case: Case) -> Setup:
    """|p - q| instead of max(p - q, 0): "the difference of the distributions"."""

    def correct(rows: Rows, row: int) -> Dist:
        return oracle.normalised([abs(a - b) for a, b in zip(rows.p[row], rows.q[row], strict=True)])

    return with_rule(chain(correct=correct))(case)


@wrong(right_chain)
def correction_from_the_row_after(case: Case) -> Setup:
    """Off by one: the logits *at* the rejected token instead of those that judged it."""

    def correct(rows: Rows, row: int) -> Dist:
        left = oracle.excess(Fraction(1), rows.p[row + 1], rows.q[row])
        return oracle.normalised(left) if any(left) else rows.p[row + 1]

    return with_rule(chain(correct=correct))(case)


@wrong(right_chain)
def bonus_from_the_wrong_row(case: Case) -> Setup:
    """Off by one at the other end: K drafts have K + 1 rows, and the last one is forgotten."""
    return with_rule(chain(bonus=lambda rows, row: rows.p[row - 1]))(case)


@wrong(right_chain)
def rejected_token_emitted(case: Case) -> Setup:
    """The accepted count includes the rejection: the drafted token goes out, the correction behind it."""
    return with_rule(chain(emit_bad=1))(case)


# ---- coupled -------------------------------------------------------------------------------------------


@wrong(right_chain)
def matched_then_drawn_again(case: Case) -> Setup:
    """Coupled verification with fresh noise: the token that was compared is not the token that is emitted."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        run: Context = ()
        for row, node in enumerate(draft):
            compared = chance.pick((Purpose.TARGET, len(context), row, 0), target((*context, *run)))
            if compared != node.token:
                break
            run = (*run, node.token)
        return (*run, chance.pick((Purpose.RECOVER, len(context), 0, 0), target((*context, *run))))

    return Setup(case.p, oracle.drawn_chain(case.q, 2), rule)
