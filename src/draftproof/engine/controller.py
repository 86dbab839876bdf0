"""Depth per round, decided by measured time: how many tokens each request may draft now, none included.

The engine asks `plan` before it drafts and tells `observe` what the round cost and what became of the drafts. The
controller never reads a clock, so that tests drive it with a virtual one. A depth depends on earlier tokens, history
and time only, never on a draft that was made, so that no text depends on it. Where a request has several sources of
drafts, each is decided for the rounds in which those before it have none. Users: `docs/depth.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from draftproof.core.cost import RoundCost
from draftproof.core.objective import Objective
from draftproof.engine.acceptance import ChainRecord, MethodRecord, PricedRecord
from draftproof.engine.allocation import Aim, Asking, Found, Round
from draftproof.engine.costs import CostModel
from draftproof.engine.sources import FIRST_WAIT, KEPT_LEFT, DraftingRequest, Methods, RequestSource
from draftproof.proposers.base import Offer, Source

LEAST_ADVANTAGE = 1.02
"""Expected ratio to plain decoding below which nothing is drafted."""
HYSTERESIS = 1.01
"""Expected ratio to the present depths below which they stay."""
HOLD, HOLD_PLAIN = 4, 16
"""Rounds that a decision holds while the same requests decode and nothing new is learnt, and one that nobody drafts:
deciding costs time, too."""
SAME_LOAD = 0.75
"""Share of the requests for which it was decided that nobody drafts that must be left for that to hold."""
NEWS_SHARE = 0.25
"""Share of a batch of whose drafts something must be learnt for a new decision at once."""
PROBE_SHARE = 0.013
"""Share of the time of decoding that may go into trying out whether drafting pays again."""
EARNED_SHARE, MOST_EARNED_SHARE = 0.02, 0.009
"""Share of what drafting has saved that may go there, too, and how much of the time of decoding that is at most: where
drafts were taken once they will be again."""
MOST_CREDIT_ROUNDS = 4.0
"""Time for trying out that can be saved up, of either kind, in plain rounds."""
LONGEST_WAIT = 64
"""Rounds from a failed trial of a source to its next, at most."""
LONGEST_WAIT_ALONE = 13
"""The longest wait per request that decodes: trials of many requests add up, one alone can afford more of them."""
FIRST_DEPTH = 4
"""Tokens that one request drafts at most while it is unknown what its method costs."""
PROBE_DEPTH = 1
"""Tokens that a trial drafts."""
LOOK_UP_CHARGE = 1.3
"""What a trial of a drafter that follows prices is charged, in its own time: some of its tokens are drafted in vain."""
USUAL_WEIGHT, MOST_COORDINATION = 0.1, 4.0
"""Weight of a round in what coordination usually takes, and how many times that a round with a trial is taken to need
at most: what it needs more is charged to the trial, and what is beyond is a pause of the machine."""
TRIAL_PRICE = 0.4
"""Least price of a token in a trial, in tokens, for a drafter that follows prices: it drafts only what it is rather
sure of, so that a trial costs little but the look-up."""
PLAIN_EVERY = 256
"""Rounds without a plain one after which one is measured."""
LEAST_MISSED, MOST_MISSED = 0.5, 2.0
"""Share of what reading the text costs a source that must have been missed for want of it before it is done, for who
knows how long the request goes on as it does: the less, the more rounds such readings served before."""
USUAL_ADVANTAGE = 0.3
"""What a round that a drafter drafts saves where it does, in rounds."""


class Decoding(NamedTuple):
    """One request that decodes in this round.

    limit   most tokens that it can draft now, 0 if it does not draft
    lags    tokens that each of its sources would have to read before it drafts; empty: none of them any
    """

    req_id: str
    limit: int
    context: int
    lags: Sequence[int] = ()


class Plan(NamedTuple):
    """Per request of the round, in order: how many tokens it may draft, and what they cost in tokens.

    prices   as `SequenceView.prices`; None where they were not measured or the request wants none
    offers   as `SequenceView.offers`: of requests with several sources, for each of which depths were decided
    """

    budgets: list[int]
    prices: list[list[float] | None]
    offers: list[Sequence[Offer]]


class Outcome(NamedTuple):
    """What became of one request's draft: tokens drafted, and of them accepted.

    source   the last source that was asked, which is the one that drafted if any did
    """

    req_id: str
    drafted: int
    accepted: int
    source: int = 0


class _Asked(NamedTuple):
    """A source whose depth is to be decided. `entry`: the place of its request in the batch."""

    entry: int
    item: Decoding
    request: DraftingRequest
    source: RequestSource

    @property
    def limit(self) -> int:
        return min(self.item.limit, self.source.depth)


@dataclass(slots=True)
class DepthController:
    """One per engine. `slo_tpot_s` asks for most tokens among requests that keep that time per token."""

    objective: Objective = "latency"
    slo_tpot_s: float | None = None
    costs: CostModel = field(default_factory=CostModel)
    _requests: dict[str, DraftingRequest] = field(default_factory=dict)
    _methods: Methods = field(init=False)
    _credit: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    """For sources that follow prices, and for others: to try the latter may cost as much as a thousand look-ups."""
    _earned: float = 0.0
    """Of what drafting has saved, what may go into trials and has not been credited yet."""
    _rounds_since_plain: int = 0
    _rounds_held: int = 0
    """Rounds that the present decision holds already."""
    _num_decisions: int = 0
    _usual_coordination: float | None = None
    """What a round takes beside its pass and its drafts where nothing is decided or tried."""
    _news: float = 0.0
    """Share of the batch of which something was learnt since; what is learnt of costs concerns all."""
    _is_plain: bool = False
    """Whether it lets nobody draft."""
    _load: tuple[bool, list[str]] = (False, [])
    """What it was made for: whether prompt rows ride along, and the requests."""

    def __post_init__(self) -> None:
        self._methods = Methods(self.costs.forget_method)

    def add(
        self, req_id: str, method: Hashable, depth: int, *, sources: Sequence[Source], is_adaptive: bool
    ) -> None:
        """A request that drafts, with the most it may draft per round. One that is not adaptive drafts that."""
        self._requests[req_id] = DraftingRequest(
            tuple(
                RequestSource(
                    self._number((method, place)),
                    min(depth, source.depth),
                    source.follows_prices,
                    PricedRecord() if source.follows_prices or not is_adaptive else ChainRecord(),
                )
                for place, source in enumerate(sources)
            ),
            is_adaptive,
        )

    def reason(self, req_id: str) -> str | None:
        """In words what was decided for a request last; None where nothing was to be decided."""
        request = self._requests.get(req_id)
        return None if request is None else request.reason()

    def end(self, req_id: str) -> None:
        """Forgets a request, if it is known; the engine ends it after the last round that it took part in."""
        self._requests.pop(req_id, None)

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    # ---- before a round ----------------------------------------------------------------------------------

    def plan(self, decoding: Sequence[Decoding], num_prefill_rows: int = 0) -> Plan:
        """What each request may draft in the round that comes."""
        plan = Plan([0] * len(decoding), [None] * len(decoding), [()] * len(decoding))
        levels: list[list[_Asked]] = []
        """Sources by how many are asked before them."""
        for index, item in enumerate(decoding):
            request = self._requests.get(item.req_id)
            if request is None:
                continue
            request.context = item.context
            for level, source in enumerate(request.sources):
                source.offered, source.is_trial, source.charged = 0, False, 0.0
                if item.lags:
                    source.lag = item.lags[level]
                if item.limit > 0 and request.is_adaptive:
                    if level == len(levels):
                        levels.append([])
                    levels[level].append(_Asked(index, item, request, source))
                elif item.limit > 0:
                    source.offered = min(item.limit, source.depth)
                    plan.budgets[index] = max(plan.budgets[index], source.offered)
        if not levels or not self.costs.knows_speed:
            return plan
        load = (num_prefill_rows > 0, [item.req_id for item in decoding])
        is_plain_due = self._rounds_since_plain >= PLAIN_EVERY and num_prefill_rows == 0
        hold = HOLD_PLAIN if self._is_plain else HOLD
        if self._rounds_held >= hold or self._news >= NEWS_SHARE or not self._stands(load):
            self._load = load
            self._decide(decoding, levels, num_prefill_rows, may_try=not is_plain_due)
            self._rounds_held, self._news = 0, 0.0
            self._num_decisions += 1
        else:
            for asked in _all(levels):
                asked.source.offered = self._allowed(asked)
            # A round without a trial comes first: it tells what trials cost.
            if self._is_plain and not is_plain_due and max(self._credit.values()) > 0.0:
                self._try_alone(decoding, levels, num_prefill_rows)
        self._rounds_held += 1
        for _, _, _, source in _all(levels):
            source.rounds_off = source.rounds_off + 1 if source.is_trial or not source.offered else 0
            if is_plain_due:
                source.offered = 0
                self._rounds_since_plain = 0  # also beside requests of fixed depth, which draft on
        for index, _, request, source in levels[0]:
            if len(request.sources) == 1:
                plan.budgets[index], plan.prices[index] = source.offered, source.prices
            else:
                plan.budgets[index] = max(source.offered for source in request.sources)
                plan.offers[index] = [Offer(each.offered, each.prices or ()) for each in request.sources]
        return plan

    def _allowed(self, asked: _Asked) -> int:
        """What of a decision holds in this round: a source that has to read first waits until it seems to pay."""
        source = asked.source
        if source.lag and source.decided:
            cost, known = self.costs.reading(source.method, source.lag), self._methods.reading[source.method]
            usual = source.lag * known.num_rounds / known.num_tokens * USUAL_ADVANTAGE
            share = min(MOST_MISSED, max(LEAST_MISSED, cost / usual))
            if source.num_left * source.advantage < share * cost:
                return 0
        return min(source.decided, asked.limit)

    def _stands(self, load: tuple[bool, list[str]]) -> bool:
        """Whether the present decision is one for this load, too: that nobody drafts holds also where some have ended,
        and where prompt rows have come, beside which no row is cheaper."""
        if load == self._load:
            return True
        (is_mixed, ids), (was_mixed, known) = load, self._load
        few_ended = len(ids) >= SAME_LOAD * len(known)
        return self._is_plain and is_mixed >= was_mixed and few_ended and set(ids) <= set(known)

    def _decide(
        self,
        decoding: Sequence[Decoding],
        levels: Sequence[Sequence[_Asked]],
        num_prefill_rows: int,
        may_try: bool,
    ) -> None:
        rounds = []
        self._is_plain = True
        for level in levels:
            round_ = self._round(decoding, level, num_prefill_rows)
            found = self._settle(round_, level)
            ratio = _speed(round_, found)
            advantage = round_.outlook({}).cost * (1.0 - 1.0 / ratio) / max(1, len(found.depths))
            for asked in level:
                source = asked.source
                source.decided = min(found.depths.get(asked.entry, 0), asked.limit)
                source.outlook, source.advantage = (ratio, bool(found.depths)), max(0.0, advantage)
                source.offered = self._allowed(asked)
                asked.request.batch = len(decoding)
            self._is_plain &= not found.depths
            rounds.append(self._as_expected(round_, decoding))
        due = self._due(levels) if may_try else None
        if due is not None:
            self._try_out(rounds[due.request.sources.index(due.source)], due)
        # The last first: what comes instead of a draft belongs to its price.
        for round_, level in zip(reversed(rounds), reversed(levels), strict=True):
            self._price(round_, level)

    def _try_alone(
        self, decoding: Sequence[Decoding], levels: Sequence[Sequence[_Asked]], num_prefill_rows: int
    ) -> None:
        """A trial while a decision holds that nobody drafts: without thinking about all others again, and in the next
        one of a drafter that follows prices without thinking about those either."""
        due = self._due(levels)
        if due is None:
            return
        now = self._num_decisions, num_prefill_rows > 0
        if due.source.priced_for == now:
            self._try_out(None, due)
            return
        round_ = self._as_expected(self._round(decoding, [due], num_prefill_rows), decoding)
        self._try_out(round_, due)
        self._price(round_, [due])
        due.source.priced_for = now if due.source.follows_prices else None

    def _round(self, decoding: Sequence[Decoding], level: Sequence[_Asked], num_prefill_rows: int) -> Round:
        """Of all requests, those of the `level` given that the sources before have no draft for them."""
        batch = len(decoding)
        emitted = [1.0] * batch
        rows = float(batch)
        deciding = {asked.entry for asked in level}
        for index, item in enumerate(decoding):
            request = self._requests.get(item.req_id)
            if request is not None and index not in deciding:  # its depth is fixed, or decided already
                gain, own = self._expected(request)
                emitted[index] += gain
                rows += own
        asking = []
        most_rows = int(rows)
        tried: set[int] = set()
        for asked in level:
            method, depth = asked.source.method, asked.limit
            if not self.costs.knows_drafting(method):
                # What a method costs is found out with one request.
                is_first = asked.source is asked.request.sources[0]
                first = FIRST_DEPTH if is_first else PROBE_DEPTH
                depth = min(depth, first) if method not in tried else 0
                tried.add(method)
            most_rows += depth
            steps = asked.source.record.steps(self._method(asked.request, asked.source), depth)
            asking.append(Asking(asked.entry, method, steps))
        context = sum(item.context for item in decoding) / batch
        most_rows = max(int(rows) + 1, min(most_rows, self.costs.most_rows))
        passes = self.costs.passes(batch, context, most_rows)[: most_rows + 1]
        prefill_row = self.costs.prefill_row if num_prefill_rows else 0.0
        bound = self.slo_tpot_s / self.costs.scale if self.slo_tpot_s is not None else None
        return Round(
            emitted=emitted,
            passes=passes,
            rows=rows,
            least_row=prefill_row,
            drafting=self.costs.drafting,
            aim=Aim(self.objective == "latency" and bound is None, bound),
            asking=asking,
        )

    def _expected(self, request: DraftingRequest) -> tuple[float, float]:
        """Tokens and rows of a round that what a request is offered is expected to add."""
        gain = rows = 0.0
        left = 1.0
        for source in request.sources:
            if source.offered:
                for step in source.record.steps(self._method(request, source), source.offered):
                    gain += left * step.gain
                    rows += left * step.rows
                left *= 1.0 - source.record.share_drafted
        return gain, rows

    def _as_expected(self, round_: Round, decoding: Sequence[Decoding]) -> Round:
        """The round at what its rows are expected to cost: whether to draft is decided in favour of what is not known
        well, but not how much, for that is decided anew in every round and would be too much in all of them."""
        context = sum(item.context for item in decoding) / len(decoding)
        most_rows = len(round_.passes) - 1
        passes = self.costs.expected_passes(len(decoding), context, most_rows)[: most_rows + 1]
        return replace(round_, passes=passes)

    def _settle(self, round_: Round, level: Sequence[_Asked]) -> Found:
        """The best depths, or those of the round before if they are about as good."""
        found = round_.best()
        if found.score < LEAST_ADVANTAGE * found.plain:
            found.depths, found.score = {}, found.plain
        before = {
            asked.entry: min(asked.source.decided, asked.limit) for asked in level if asked.source.decided
        }
        if before and before != found.depths:
            score = round_.outlook(before).score
            if score * HYSTERESIS > found.score and score > found.plain:
                found.depths, found.score = before, score
        return found

    def _due(self, levels: Sequence[Sequence[_Asked]]) -> _Asked | None:
        """The source that has waited longest for a trial, where time for one was saved or its last one succeeded; one
        that follows prices only where no other has, for its turn comes in almost every round."""
        waited = [
            asked
            for asked in _all(levels)
            if not asked.source.decided
            and asked.source.rounds_off >= self._wait(asked.source)
            and (self._can_pay(asked.source) or not asked.source.wait)
        ]
        chains = [asked for asked in waited if not asked.source.follows_prices]
        return max(
            chains or waited, key=lambda asked: asked.source.rounds_off - asked.source.wait, default=None
        )

    def _can_pay(self, source: RequestSource) -> bool:
        """Whether time for a trial was saved. What it must read first is not to be owed for long."""
        reading = self.costs.reading(source.method, source.lag)
        return self._credit[source.follows_prices] > min(reading, MOST_CREDIT_ROUNDS) / 2

    def _wait(self, source: RequestSource) -> int:
        """Rounds to its next trial. Nobody need wait to find out what a method costs."""
        if not self.costs.knows_drafting(source.method):
            return 1
        if source.follows_prices:
            return 0  # to ask is cheap: what was saved decides alone
        return min(source.wait, LONGEST_WAIT_ALONE * len(self._load[1]))

    def _try_out(self, round_: Round | None, due: _Asked) -> None:
        """Lets a request draft a little, for time that was saved. One that follows prices needs no round for it."""
        source = due.source
        is_chain = isinstance(source.record, ChainRecord)
        assert round_ is not None or not is_chain
        depth = min(due.limit, PROBE_DEPTH) if is_chain else due.limit
        source.offered, source.is_trial = depth, True
        cost = round_.cost(round_.rows + depth) - round_.cost(round_.rows) if is_chain and round_ else 0.0
        cost += self.costs.drafting(source.method, 1, depth) - self.costs.drafting(source.method, 0, 0)
        cost += self.costs.reading(source.method, source.lag)
        source.charged = max(0.0, cost) * (1.0 if is_chain else LOOK_UP_CHARGE)
        self._credit[source.follows_prices] -= source.charged

    def _price(self, round_: Round, level: Sequence[_Asked]) -> None:
        """Tells each source that follows prices what its rows cost, in tokens of the batch's present speed."""
        priced = [asked for asked in level if asked.source.offered and asked.source.follows_prices]
        if not priced:
            return
        depths = {asked.entry: asked.source.decided for asked in level if asked.source.decided}
        outlook = round_.outlook(depths)
        inverse = sum(1.0 / each for each in outlook.emitted)
        for asked in priced:
            index, source = asked.entry, asked.source
            steps = next(ask.steps for ask in round_.asking if ask.index == index)
            own = sum(step.rows for step in steps) if source.decided else 0.0
            worth = outlook.emitted[index] ** 2 * inverse if round_.aim.latency else sum(outlook.emitted)
            rate = worth / outlook.cost
            start = outlook.rows - own
            most = max(0, min(source.offered, int(len(round_.passes) - 1 - start)))
            base = round_.cost(start)
            prices = [rate * (round_.cost(start + tokens) - base) for tokens in range(most + 1)]
            if source.is_trial:
                prices = [max(price, TRIAL_PRICE * at) for at, price in enumerate(prices)]
            prices[0] = -self._instead(asked, round_, start, rate)
            source.prices = prices

    def _instead(self, asked: _Asked, round_: Round, start: float, rate: float) -> float:
        """What the sources behind one are expected to gain over their price in a round in which it drafts nothing."""
        sources = asked.request.sources
        for source in sources[sources.index(asked.source) + 1 :]:
            if source.offered:
                steps = source.record.steps(self._method(asked.request, source), source.offered)
                cost = round_.cost(start + sum(step.rows for step in steps)) - round_.cost(start)
                cost += self.costs.drafting(source.method, 1, source.offered)
                cost += self.costs.reading(source.method, source.lag)
                return max(0.0, sum(step.gain for step in steps) - rate * cost)
        return 0.0

    # ---- after a round ----------------------------------------------------------------------------------

    def observe(
        self,
        cost: RoundCost,
        drafting_s: Mapping[tuple[Any, int], float],
        outcomes: Sequence[Outcome],
        reading: Mapping[tuple[Any, int], tuple[int, float]] | None = None,
    ) -> None:
        """What the round that was planned last cost, what of it was spent in proposers, and its drafts.

        drafting_s  seconds by method and source
        reading     tokens of text that drafters read, and seconds that this took besides, by method and source
        """
        pass_s = cost.verify_s + cost.prefill_s + cost.coordination_s
        self.costs.observe_pass(cost.batch, cost.context, cost.num_decode_rows, cost.num_prefill_rows, pass_s)
        num_news = 0
        asked: dict[int, tuple[int, int]] = {}
        for outcome in outcomes:
            request = self._requests.get(outcome.req_id)
            if request is None:
                continue
            is_news = False
            for place, source in enumerate(request.sources):
                number, depth = asked.get(source.method, (0, 0))
                if source.offered and place <= outcome.source:
                    number, depth = number + 1, max(depth, source.offered)
                    self._methods.reading[source.method].num_rounds += outcome.drafted > 0
                    is_news |= self._learn(request, source, outcome, place)
                elif source.offered:
                    self._credit[source.follows_prices] += source.charged
                if place <= outcome.source or not outcome.drafted:
                    source.num_left += 1
                else:
                    source.num_left *= KEPT_LEFT**outcome.accepted
                asked[source.method] = number, depth
            num_news += is_news
        for (method, place), (num_tokens, seconds) in (reading or {}).items():
            number = self._number((method, place))
            self.costs.observe_reading(number, num_tokens, seconds)
            self._methods.reading[number].add(num_tokens)
        spent_s = {self._number(key): seconds for key, seconds in drafting_s.items()}
        for number, (num_asked, depth) in asked.items():
            self.costs.observe_drafting(number, num_asked, depth, spent_s.get(number, 0.0))
        self._news += num_news / max(1, cost.batch) + self.costs.has_news
        if self.costs.knows_speed and cost.batch:
            round_cost = (pass_s - cost.prefill_s + cost.draft_s) / self.costs.scale
            self._save_for_trials(cost, round_cost, outcomes)
            self._charge_coordination(cost.coordination_s / self.costs.scale, cost, outcomes)
        if cost.batch:
            self._rounds_since_plain = (
                0 if cost.num_decode_rows == cost.batch else self._rounds_since_plain + 1
            )

    def _save_for_trials(self, cost: RoundCost, round_cost: float, outcomes: Sequence[Outcome]) -> None:
        """By drafting for prices nothing is earned: its trials need no more. What one drafted in vain is charged
        now, for nobody knew how much it would draft."""
        num_accepted = num_wasted = 0
        for outcome in outcomes:
            request = self._requests.get(outcome.req_id)
            source = None if request is None else request.sources[outcome.source]
            if source is not None and not source.follows_prices:
                num_accepted += outcome.accepted
            elif source is not None and source.is_trial:
                num_wasted += outcome.drafted - outcome.accepted
        most = MOST_CREDIT_ROUNDS * round_cost
        kinds = {source.follows_prices for request in self._requests.values() for source in request.sources}
        credit = dict.fromkeys(kinds, PROBE_SHARE * round_cost / max(1, len(kinds)))
        if cost.num_decode_rows > cost.batch:
            passes = self.costs.expected_passes(cost.batch, cost.context, cost.num_decode_rows)
            plain, drafted = passes[cost.batch], cost.num_decode_rows - cost.batch
            if num_wasted:
                credit[True] -= num_wasted * (passes[cost.num_decode_rows] - plain) / drafted
            saved = plain * (1 + num_accepted / cost.batch) - round_cost
            self._earned = max(0.0, min(self._earned + EARNED_SHARE * saved, most))
        else:
            earned = min(self._earned, MOST_EARNED_SHARE * round_cost)
            self._earned -= earned
            if False in credit:
                credit[False] += earned
        for kind, saved in credit.items():
            self._credit[kind] = min(self._credit[kind] + saved, most)

    def _charge_coordination(self, spent: float, cost: RoundCost, outcomes: Sequence[Outcome]) -> None:
        """What a look-up that was tried took beside its own time, as far as rounds without a decision tell."""
        requests = [self._requests.get(outcome.req_id) for outcome in outcomes]
        offered = [source for request in requests if request for source in request.sources if source.offered]
        usual = self._usual_coordination
        if cost.num_prefill_rows or (usual is not None and self._rounds_held < 2):
            return
        if not offered:
            self._usual_coordination = spent if usual is None else usual + USUAL_WEIGHT * (spent - usual)
        elif usual is not None and any(source.is_trial and source.follows_prices for source in offered):
            usual = self._usual_coordination = min(usual, spent)
            self._credit[True] -= min(spent, MOST_COORDINATION * usual) - usual

    def _learn(self, request: DraftingRequest, source: RequestSource, outcome: Outcome, place: int) -> bool:
        """Of a source that was asked. True where what came should be thought about at once."""
        drafted, accepted = (outcome.drafted, outcome.accepted) if place == outcome.source else (0, 0)
        if source.is_trial and source.follows_prices and not drafted:
            return False
        is_surprised = source.record.learn(
            self._method(request, source), source.offered, drafted, accepted, source.rounds_off
        )
        if not source.is_trial:
            source.wait = FIRST_WAIT
        elif 0 < drafted == accepted:
            source.wait = 0  # it may go on at once
            self._news = 1.0
        else:
            source.rounds_off = 0
            source.wait = min(max(FIRST_WAIT, 2 * source.wait), LONGEST_WAIT)
        return accepted > 0 if source.is_trial else is_surprised

    def _number(self, method: tuple[Hashable, int]) -> int:
        return self._methods.number(method, self._in_use)

    def _in_use(self) -> set[int]:
        return {source.method for request in self._requests.values() for source in request.sources}

    def _method(self, request: DraftingRequest, source: RequestSource) -> MethodRecord:
        """The record of a source's method. What a drafter that follows prices drafts depends on them, so its record is
        kept by load as well."""
        load = len(self._load[1]).bit_length() if source.follows_prices else 0
        return self._methods.record(source.method, request.context, load)


def _all(levels: Sequence[Sequence[_Asked]]) -> Iterator[_Asked]:
    return (asked for level in levels for asked in level)


def _speed(round_: Round, found: Found) -> float:
    """Expected speed relative to plain decoding: of what was found, or of the best that was turned down."""
    if round_.aim.most_per_token is None:
        return (found.score if found.depths else found.alternative or found.plain) / found.plain
    # Scores weigh a bound; what is told is tokens per time.
    plain, chosen = round_.outlook({}), round_.outlook(found.depths)
    return sum(chosen.emitted) / chosen.cost / (sum(plain.emitted) / plain.cost)
