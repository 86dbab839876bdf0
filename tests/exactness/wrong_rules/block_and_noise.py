"""Wrong rules of block verification, and noise that is read twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from draftproof.ops.noise import Purpose
from draftproof.verify import oracle
from draftproof.verify.oracle import Chance, Context, Dist, Draft, Drafter, Model, Name, Node, Rule

from .catalogue import Case, Setup, right_chain, wrong

ONE = Fraction(1)

# ---- block -----------------------------------------------------------------------------------------------


def right_block(case: Case) -> Setup:
    return Setup(case.p, oracle.drawn_chain(case.q, 2), oracle.block)


def right_short_block(case: Case) -> Setup:
    """Two rounds, so a vocabulary of two tokens."""
    p, q = oracle.toy_model(case.seed, 2, zeros=False), oracle.toy_model(case.seed + 1000, 2, zeros=False)
    return Setup(p, oracle.drawn_chain(q, 2), oracle.block, horizon=4, num_rounds=2)


def block(
    weigh: Callable[[Fraction, Fraction, Fraction], Fraction] = oracle.prefix_weight,
    stop: Callable[[Fraction, Fraction], Fraction] = oracle.stop_probability,
    excess: Callable[[Fraction, Dist, Dist], Dist] = oracle.excess,
    next_row: int = 0,
    until_refused: bool = False,
) -> Rule:
    """Block verification in exchangeable parts; `next_row` shifts the row that h looks at."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        tokens = tuple(node.token for node in draft)
        p = [target((*context, *tokens[:row])) for row in range(len(draft) + 1)]
        q = [node.q for node in draft if node.q is not None]
        weight = [ONE]
        for row, token in enumerate(tokens):
            weight.append(weigh(weight[row], p[row][token], q[row][token]))
        num_accepted = 0
        for row in range(1, len(draft) + 1):
            looked_at = row + next_row
            if row < len(draft):
                accept = stop(weight[row], sum(excess(weight[row], p[looked_at], q[looked_at]), Fraction(0)))
            else:
                accept = weight[row]
            if chance.below((Purpose.ACCEPT, len(context), row - 1, 0), accept):
                num_accepted = row
            elif until_refused:
                break
        weights = p[num_accepted]
        if num_accepted < len(draft):
            left = excess(weight[num_accepted], p[num_accepted], q[num_accepted])
            weights = left if any(left) else weights
        position = len(context) + num_accepted
        return (*tokens[:num_accepted], chance.pick((Purpose.RECOVER, position, 0, 0), weights))

    return rule


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_accepts_by_prefix_weight(case: Case) -> Setup:
    """h of the last prefix (its weight) used for every prefix: simpler, and nearly the same number."""
    return right_block(case)._replace(rule=block(stop=lambda weight, mass: weight))


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_h_without_the_remaining_mass(case: Case) -> Setup:
    """s / (s + 1) for s / (s + 1 - w): the weight of the prefix is forgotten in the denominator."""
    return right_block(case)._replace(rule=block(stop=lambda weight, mass: mass / (mass + 1)))


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_weight_not_clamped(case: Case) -> Setup:
    """The product of all p / q, cut at 1 only when it is used: an early surplus pays for a later deficit."""
    rule = block(
        weigh=lambda previous, p, q: previous * p / q,
        stop=lambda weight, mass: oracle.stop_probability(min(weight, ONE), mass),
        excess=lambda weight, p, q: oracle.excess(min(weight, ONE), p, q),
    )
    return right_block(case)._replace(rule=rule)


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_residual_without_weight(case: Case) -> Setup:
    """max(p - q, 0) from token-by-token rejection, where block needs max(w p - q, 0)."""
    return right_block(case)._replace(rule=block(excess=lambda weight, p, q: oracle.excess(ONE, p, q)))


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_h_from_its_own_row(case: Case) -> Setup:
    """h of a prefix looks at the row that judged its last token instead of the row behind it."""
    return right_block(case)._replace(rule=block(next_row=-1))


@wrong(lambda case: right_block(case)._replace(rule=block()))
def block_stops_at_the_first_refusal(case: Case) -> Setup:
    """`break` out of habit: in block verification a later prefix may be accepted after an earlier was not."""
    return right_block(case)._replace(rule=block(until_refused=True))


# ---- noise -----------------------------------------------------------------------------------------------


class Renamed:
    """`Chance` whose numbers are called something else, so that two of them may become one."""

    def __init__(self, chance: Chance, rename: Callable[[Name], Name]) -> None:
        self.chance, self.rename = chance, rename

    def below(self, name: Name, threshold: Fraction) -> bool:
        return self.chance.below(self.rename(name), threshold)

    def pick(self, name: Name, weights: Sequence[Fraction]) -> int:
        return self.chance.pick(self.rename(name), weights)


def renamed(setup: Setup, rename: Callable[[Name], Name]) -> Setup:
    """The same setup, all of its noise renamed."""

    def drafter(chance: Chance, context: Context) -> Draft:
        return setup.drafter(Renamed(chance, rename), context)

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        return setup.rule(Renamed(chance, rename), context, draft, target)

    return setup._replace(drafter=drafter, rule=rule)


def by_output_position(purpose: Purpose) -> Callable[[Name], Name]:
    """Numbers of a chain named by the position that they are about, no longer by round and depth."""
    return lambda name: (purpose, name[1] + name[2], 0, 0) if name[0] == purpose else name


@wrong(right_short_block)
def block_acceptance_noise_by_output_position(case: Case) -> Setup:
    """One number per position looks tidy; but block reads those behind the accepted prefix, then again."""
    return renamed(right_short_block(case), by_output_position(Purpose.ACCEPT))


@wrong(right_short_block)
def block_draft_noise_by_output_position(case: Case) -> Setup:
    """The drafter draws a position again with the same noise, though block's verdict looked at the first
    try."""
    return renamed(right_short_block(case), by_output_position(Purpose.DRAFT))


def right_rounds(case: Case) -> Setup:
    return right_short_block(case)._replace(rule=oracle.rejection, horizon=3)


@wrong(right_rounds)
def noise_keyed_by_node(case: Case) -> Setup:
    """Noise named by the node's number in its tree: every round of a seeded request reads the same
    numbers."""
    return renamed(right_rounds(case), lambda name: (name[0], 0, name[2], name[3]))


@wrong(right_chain)
def one_acceptance_number_for_the_round(case: Case) -> Setup:
    """One uniform number per request, broadcast over its positions."""
    return renamed(right_chain(case), lambda name: (name[0], 0, 0, 0) if name[0] == Purpose.ACCEPT else name)


@wrong(right_chain)
def recovery_reads_draft_noise(case: Case) -> Setup:
    """Drafter and verifier share a seed and a counter: the correction is drawn with the draft's own noise."""

    def rename(name: Name) -> Name:
        return (Purpose.DRAFT, 0, name[1], 0) if name[0] == Purpose.RECOVER else name

    return renamed(right_chain(case), rename)


@wrong(right_chain)
def recovery_reads_acceptance_noise(case: Case) -> Setup:
    """The number that rejected the token also draws the correction: it is known to be large."""

    def rename(name: Name) -> Name:
        return (Purpose.ACCEPT, 0, name[1], 0) if name[0] == Purpose.RECOVER else name

    return renamed(right_chain(case), rename)


@wrong(right_chain)
def acceptance_reads_draft_noise(case: Case) -> Setup:
    """The number that drew the token also accepts it."""

    def rename(name: Name) -> Name:
        return (Purpose.DRAFT, 0, name[2], 0) if name[0] == Purpose.ACCEPT else name

    return renamed(right_chain(case), rename)


@wrong(right_chain)
def coupled_draft_judged_by_rejection(case: Case) -> Setup:
    """The drafter draws with the target's noise for coupled verification, and the correction reads it
    again."""

    def coupled_with_q(chance: Chance, context: Context) -> Draft:
        draft = oracle.coupled_chain(case.q, 2)(chance, context)
        before = [(*context, *oracle.path_of(draft, node.parent_row)) for node in draft]
        return tuple(Node(node.token, row, case.q(before[row]), row) for row, node in enumerate(draft))

    def rename(name: Name) -> Name:
        return (Purpose.TARGET, *name[1:]) if name[0] == Purpose.RECOVER else name

    return renamed(Setup(case.p, coupled_with_q, oracle.rejection), rename)


def right_coupled(case: Case) -> Setup:
    p, q = oracle.toy_model(case.seed, 2, zeros=False), oracle.toy_model(case.seed + 1000, 2, zeros=False)
    return Setup(p, oracle.coupled_chain(q, 2), oracle.matching, num_rounds=2)


@wrong(right_coupled)
def target_noise_by_row_of_the_round(case: Case) -> Setup:
    """Rows of a pass are numbered from 0, and that number went into the key instead of the output
    position."""

    def rule(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
        by_row = Renamed(chance, lambda name: (name[0], name[1] - len(context), 0, 0))
        return oracle.matching(by_row, context, draft, target)

    drafter: Drafter = oracle.drawn_chain(right_coupled(case).target, 1)
    return right_coupled(case)._replace(drafter=drafter, rule=rule)
