"""Wrong rules for siblings: trees of drawn or point-mass nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from draftproof.ops.noise import Purpose
from draftproof.verify import oracle
from draftproof.verify.oracle import Chance, Context, Dist, Draft, Drafter, Model, Node, Rule

from .catalogue import VOCAB, Case, Setup, right_tree, wrong

Update = Callable[[Dist, Dist, int], Dist]
"""(distribution, q, token) -> what it becomes after `token` was rejected"""


def siblings(after_p: Update, after_q: Update) -> Rule:
    """Siblings of one row in draw order, with exchangeable updates of p and q after a rejection."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        p = target(context)
        q = draft[0].q if draft and draft[0].q is not None else p
        for place, node in enumerate(draft):
            accept = min(Fraction(1), p[node.token] / q[node.token]) if q[node.token] else Fraction(0)
            if chance.below((Purpose.ACCEPT, len(context), 0, place), accept):
                here = (*context, node.token)
                return (node.token, chance.pick((Purpose.RECOVER, len(here), 0, 0), target(here)))
            p, q = after_p(p, q, node.token), after_q(q, q, node.token)
        return (chance.pick((Purpose.RECOVER, len(context), 0, 0), p),)

    return rule


def to_residual(p: Dist, q: Dist, token: int) -> Dist:
    left = oracle.excess(Fraction(1), p, q)
    return oracle.normalised(left) if any(left) else p


def unchanged(distribution: Dist, q: Dist, token: int) -> Dist:
    return distribution


def removed(distribution: Dist, q: Dist, token: int) -> Dist:
    return oracle.without(distribution, token) if distribution[token] < 1 else distribution


def drawn_siblings(case: Case, rule: Rule) -> Setup:
    return Setup(case.p, oracle.drawn_tree(case.q, [2]), rule, horizon=2)


@wrong(lambda case: drawn_siblings(case, siblings(to_residual, removed)))
def q_kept_after_a_rejected_sibling(case: Case) -> Setup:
    """The second sibling is judged by the q of the first, although it could not have been the same token."""
    return drawn_siblings(case, siblings(to_residual, unchanged))


@wrong(lambda case: drawn_siblings(case, siblings(to_residual, removed)))
def p_kept_after_a_rejected_sibling(case: Case) -> Setup:
    """Every sibling gets its chance against the target's own p, the residual comes only at the end."""
    return drawn_siblings(case, siblings(unchanged, removed))


@wrong(lambda case: drawn_siblings(case, siblings(to_residual, removed)))
def drawn_siblings_removed_like_point_masses(case: Case) -> Setup:
    """The update for top-k siblings (remove and renormalise p) used for siblings drawn from q."""
    return drawn_siblings(case, siblings(removed, removed))


@wrong(right_tree)
def siblings_in_score_order(case: Case) -> Setup:
    """Best sibling first: sorted by q, the order in which they were drawn is lost."""

    def by_score(chance: Chance, context: Context) -> Draft:
        draft = oracle.drawn_tree(case.q, [2])(chance, context)
        return tuple(sorted(draft, key=lambda node: (-case.q(context)[node.token], node.token)))

    return Setup(case.p, by_score, oracle.rejection, horizon=2)


@wrong(right_tree)
def sampled_siblings_pruned(case: Case) -> Setup:
    """Draw many, keep the best by score: right for top-k trees, not for siblings that were drawn."""

    def pruned(chance: Chance, context: Context) -> Draft:
        draft = oracle.drawn_tree(case.q, [3])(chance, context)
        best = sorted(draft, key=lambda node: (-case.q(context)[node.token], node.token))[:2]
        return tuple(node for node in draft if node in best)

    return Setup(case.p, pruned, oracle.rejection, horizon=2)


@wrong(right_tree)
def weak_sibling_dropped(case: Case) -> Setup:
    """A fixed shape, but a sibling that came out unlikely is not worth a row and is left out."""

    def dropped(chance: Chance, context: Context) -> Draft:
        draft = oracle.drawn_tree(case.q, [2])(chance, context)
        return tuple(node for node in draft if case.q(context)[node.token] >= Fraction(1, 3))

    return Setup(case.p, dropped, oracle.rejection, horizon=2)


@wrong(right_tree)
def best_sibling_by_the_target(case: Case) -> Setup:
    """Of the drawn siblings only the one that the target likes best is judged, as if it alone had been
    drawn."""

    def best(chance: Chance, context: Context) -> Draft:
        draft = oracle.drawn_tree(case.q, [2])(chance, context)
        return (max(draft, key=lambda node: case.p(context)[node.token]),)

    return Setup(case.p, best, oracle.rejection, horizon=2)


def independent_siblings(q: Model) -> Drafter:
    """Two siblings drawn independently from the same q: they may be equal, and each brings the whole q."""

    def drafter(chance: Chance, context: Context) -> Draft:
        tokens = [chance.pick((Purpose.DRAFT, len(context), 0, place), q(context)) for place in range(2)]
        return tuple(Node(token, 0, q(context), row) for row, token in enumerate(tokens))

    return drafter


def right_independent(case: Case) -> Setup:
    return Setup(case.p, independent_siblings(case.q), oracle.rejection, horizon=2)


@wrong(right_independent)
def rejected_duplicate_dropped(case: Case) -> Setup:
    """A sibling equal to one just rejected cannot be accepted, so it is skipped, and with it its residual."""

    def distinct(chance: Chance, context: Context) -> Draft:
        draft = independent_siblings(case.q)(chance, context)
        return draft[:1] if draft[0].token == draft[1].token else draft

    return Setup(case.p, distinct, oracle.rejection, horizon=2)


@wrong(right_independent)
def independent_siblings_claimed_without_replacement(case: Case) -> Setup:
    """Drawn with replacement (one call for several samples), judged as if without."""
    return Setup(case.p, independent_siblings(case.q), siblings(to_residual, removed), horizon=2)


def guess(context: Context) -> list[int]:
    """Two different siblings, then the first again."""
    first = (sum(context) + len(context)) % VOCAB
    return [first, (first + 1) % VOCAB, first]


def right_point_masses(case: Case) -> Setup:
    return Setup(case.p, oracle.point_mass_tree(guess, 1), oracle.rejection, horizon=2)


@wrong(right_point_masses)
def point_mass_not_removed(case: Case) -> Setup:
    """Each top-k sibling is accepted with its own p: a rejected one is still in the distribution."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        p = target(context)
        for place, node in enumerate(draft):
            if chance.below((Purpose.ACCEPT, len(context), 0, place), p[node.token]):
                return (node.token,)
        return (chance.pick((Purpose.RECOVER, len(context), 0, 0), p),)

    return right_point_masses(case)._replace(rule=rule)


@wrong(right_point_masses)
def point_mass_removed_without_renormalising(case: Case) -> Setup:
    """p loses the rejected sibling, but the next one is accepted with what was its share of the whole."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        p = target(context)
        for place, node in enumerate(draft):
            if chance.below((Purpose.ACCEPT, len(context), 0, place), p[node.token]):
                return (node.token,)
            p = tuple(Fraction(0) if x == node.token else mass for x, mass in enumerate(p))
        return (chance.pick((Purpose.RECOVER, len(context), 0, 0), p if any(p) else target(context)),)

    return right_point_masses(case)._replace(rule=rule)


def right_paths(case: Case) -> Setup:
    return Setup(case.p, oracle.drawn_tree(case.q, [2, 1]), oracle.rejection)


@wrong(right_paths)
def longest_of_independent_paths(case: Case) -> Setup:
    """Every path from root to leaf is verified as a chain of its own, and the longest accepted run is
    kept."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        leaves = [row + 1 for row in range(len(draft)) if all(n.parent_row != row + 1 for n in draft)]
        runs = []
        for leaf in leaves:
            rows = [row for row in range(1, leaf + 1) if row == leaf or draft[leaf - 1].parent_row == row]
            path = tuple(replace(draft[row - 1], parent_row=depth) for depth, row in enumerate(rows))
            runs.append(oracle.rejection(chance, context, path, target))
        return max(runs, key=len)

    return right_paths(case)._replace(rule=rule)


@wrong(right_paths)
def bonus_from_the_last_node(case: Case) -> Setup:
    """The bonus row is taken from the end of the flat tree instead of from the accepted leaf."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        run = oracle.rejection(chance, context, draft, target)
        if len(run) < 3:
            return run
        last = (*context, *oracle.path_of(draft, len(draft)))
        return (*run[:2], chance.pick((Purpose.TARGET, len(last), 0, 0), target(last)))

    return right_paths(case)._replace(rule=rule)


@wrong(right_paths)
def tree_mask_of_the_neighbour(case: Case) -> Setup:
    """A causal mask over the flat tree: whatever its parent, a node's p is computed behind the first
    sibling."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        def masked(here: Context) -> Dist:
            return target((*context, draft[0].token) if len(here) == len(context) + 1 else here)

        return oracle.rejection(chance, context, draft, masked)

    return right_paths(case)._replace(rule=rule)
