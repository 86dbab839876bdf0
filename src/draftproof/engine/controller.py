"""Depth per round, decided by measured time: how many tokens each request may draft now, none included.

The engine asks `plan` before it drafts and tells `observe` what the round cost and what became of the drafts. The
controller never reads a clock, so that tests drive it with a virtual one. A depth depends on earlier tokens, history
and time only, never on a draft that was made, so that no text depends on it. Users: `docs/depth.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from draftproof.core.cost import RoundCost
from draftproof.core.objective import Objective
from draftproof.engine.acceptance import ChainRecord, MethodRecord, PricedRecord, Step
from draftproof.engine.allocation import Aim, Asking, Found, Round
from draftproof.engine.costs import CostModel

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
FIRST_WAIT, LONGEST_WAIT = 8, 64
"""Rounds from a failed trial of a request to its next: doubled each time."""
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
MAX_METHODS = 64
"""Methods (configurations) whose costs are kept while no request uses them."""
MAX_RECORDS = 1024
"""Records of methods by load and range of context."""


class Decoding(NamedTuple):
    """One request that decodes in this round. `limit`: most tokens that it can draft now, 0 if it does not draft."""

    req_id: str
    limit: int
    context: int


class Plan(NamedTuple):
    """Per request of the round, in order: how many tokens it may draft, and what they cost in tokens.

    prices   as `SequenceView.prices`; None where they were not measured or the request wants none
    """

    budgets: list[int]
    prices: list[list[float] | None]


class Outcome(NamedTuple):
    """What became of one request's draft: tokens drafted, and of them accepted."""

    req_id: str
    drafted: int
    accepted: int


@dataclass(slots=True)
class _Request:
    method: int
    depth: int
    is_adaptive: bool
    follows_prices: bool
    record: ChainRecord | PricedRecord
    context: int = 0
    offered: int = 0
    """What it was allowed in the round that runs."""
    decided: int = 0
    """What was decided last, trials apart."""
    prices: list[float] | None = None
    is_trial: bool = False
    rounds_off: int = 0
    wait: int = FIRST_WAIT
    outlook: tuple[float, bool, int] | None = None
    """Expected ratio to plain decoding (of the best alternative, if none drafts), whether any drafts, the batch."""
    priced_for: tuple[int, bool] | None = None
    """The decision during which it got the prices of a trial, and whether prompt rows rode along."""


@dataclass(slots=True)
class DepthController:
    """One per engine. `slo_tpot_s` asks for most tokens among requests that keep that time per token."""

    objective: Objective = "latency"
    slo_tpot_s: float | None = None
    costs: CostModel = field(default_factory=CostModel)
    _requests: dict[str, _Request] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _methods: dict[tuple[int, int, int], MethodRecord] = field(default_factory=dict)
    _next_number: int = 0
    _credit: float = 0.0
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

    def add(
        self, req_id: str, method: Hashable, depth: int, *, follows_prices: bool, is_adaptive: bool
    ) -> None:
        """A request that drafts, with the most it may draft per round. One that is not adaptive drafts that."""
        record = PricedRecord() if follows_prices or not is_adaptive else ChainRecord()
        self._requests[req_id] = _Request(self._number(method), depth, is_adaptive, follows_prices, record)

    def reason(self, req_id: str) -> str | None:
        """In words what was decided for a request last; None where nothing was to be decided."""
        request = self._requests.get(req_id)
        if request is None or request.outlook is None:
            return None
        ratio, any_drafts, batch = request.outlook
        upto = "up to " if request.follows_prices and request.decided else ""
        others = " while others draft" if any_drafts and not request.decided else ""
        return (
            f"settled at depth {upto}{request.decided}{others}: expected {ratio:.2f}× plain at batch {batch}"
        )

    def end(self, req_id: str) -> None:
        """Forgets a request, if it is known; the engine ends it after the last round that it took part in."""
        self._requests.pop(req_id, None)

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    # ---- before a round ----------------------------------------------------------------------------------

    def plan(self, decoding: Sequence[Decoding], num_prefill_rows: int = 0) -> Plan:
        """What each request may draft in the round that comes."""
        plan = Plan([0] * len(decoding), [None] * len(decoding))
        drafting = []
        for index, item in enumerate(decoding):
            request = self._requests.get(item.req_id)
            if request is None:
                continue
            request.offered, request.is_trial, request.context = 0, False, item.context
            if item.limit > 0 and request.is_adaptive:
                drafting.append((index, item, request))
            elif item.limit > 0:
                request.offered = plan.budgets[index] = min(item.limit, request.depth)
        if not drafting or not self.costs.knows_speed:
            return plan
        load = (num_prefill_rows > 0, [item.req_id for item in decoding])
        is_plain_due = self._rounds_since_plain >= PLAIN_EVERY and num_prefill_rows == 0
        hold = HOLD_PLAIN if self._is_plain else HOLD
        if self._rounds_held >= hold or self._news >= NEWS_SHARE or not self._stands(load):
            self._load = load
            self._decide(decoding, drafting, num_prefill_rows, may_try=not is_plain_due)
            self._rounds_held, self._news = 0, 0.0
            self._num_decisions += 1
        else:
            for _, item, request in drafting:
                request.offered = min(request.decided, item.limit)
            # A round without a trial comes first: it tells what trials cost.
            if self._is_plain and not is_plain_due and self._credit > 0.0:
                self._try_alone(decoding, drafting, num_prefill_rows)
        self._rounds_held += 1
        for index, _, request in drafting:
            request.rounds_off = request.rounds_off + 1 if request.decided == 0 else 0
            if is_plain_due:
                request.offered = 0
                self._rounds_since_plain = 0  # also beside requests of fixed depth, which draft on
            plan.budgets[index] = request.offered
            plan.prices[index] = request.prices
        return plan

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
        drafting: list[tuple[int, Decoding, _Request]],
        num_prefill_rows: int,
        may_try: bool,
    ) -> None:
        round_ = self._round(decoding, drafting, num_prefill_rows)
        found = self._settle(round_, drafting)
        ratio = _speed(round_, found)
        for index, item, request in drafting:
            request.offered = request.decided = min(found.depths.get(index, 0), item.limit)
            request.outlook = ratio, bool(found.depths), len(decoding)
        self._is_plain = not found.depths
        due = self._due(drafting) if may_try else None
        if due is not None:
            self._try_out(self._as_expected(round_, decoding), *due)
        self._price(self._as_expected(round_, decoding), found.depths, drafting)

    def _try_alone(
        self,
        decoding: Sequence[Decoding],
        drafting: list[tuple[int, Decoding, _Request]],
        num_prefill_rows: int,
    ) -> None:
        """A trial while a decision holds that nobody drafts: without thinking about all others again, and in the next
        one of a drafter that follows prices without thinking about those either."""
        due = self._due(drafting)
        if due is None:
            return
        request = due[2]
        now = self._num_decisions, num_prefill_rows > 0
        if request.priced_for == now:
            self._try_out(None, *due)
            return
        round_ = self._as_expected(self._round(decoding, [due], num_prefill_rows), decoding)
        self._try_out(round_, *due)
        self._price(round_, {}, [due])
        request.priced_for = now if request.follows_prices else None

    def _round(
        self,
        decoding: Sequence[Decoding],
        drafting: list[tuple[int, Decoding, _Request]],
        num_prefill_rows: int,
    ) -> Round:
        batch = len(decoding)
        emitted = [1.0] * batch
        rows = float(batch)
        for index, item in enumerate(decoding):
            request = self._requests.get(item.req_id)
            if request is not None and request.offered:  # its depth is fixed
                for step in request.record.steps(self._method(request), request.offered):
                    emitted[index] += step.gain
                    rows += step.rows
        asking = []
        most_rows = int(rows)
        tried: set[int] = set()
        for index, item, request in drafting:
            depth = min(item.limit, request.depth)
            if not self.costs.knows_drafting(request.method):
                # What a method costs is found out with one request.
                depth = min(depth, FIRST_DEPTH) if request.method not in tried else 0
                tried.add(request.method)
            most_rows += depth
            steps = request.record.steps(self._method(request), depth)
            asking.append(Asking(index, request.method, steps))
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

    def _as_expected(self, round_: Round, decoding: Sequence[Decoding]) -> Round:
        """The round at what its rows are expected to cost: whether to draft is decided in favour of what is not known
        well, but not how much, for that is decided anew in every round and would be too much in all of them."""
        context = sum(item.context for item in decoding) / len(decoding)
        most_rows = len(round_.passes) - 1
        passes = self.costs.expected_passes(len(decoding), context, most_rows)[: most_rows + 1]
        return replace(round_, passes=passes)

    def _settle(self, round_: Round, drafting: list[tuple[int, Decoding, _Request]]) -> Found:
        """The best depths, or those of the round before if they are about as good."""
        found = round_.best()
        if found.score < LEAST_ADVANTAGE * found.plain:
            found.depths, found.score = {}, found.plain
        before = {
            index: min(request.decided, item.limit) for index, item, request in drafting if request.decided
        }
        if before and before != found.depths:
            score = round_.outlook(before).score
            if score * HYSTERESIS > found.score and score > found.plain:
                found.depths, found.score = before, score
        return found

    def _due(self, drafting: list[tuple[int, Decoding, _Request]]) -> tuple[int, Decoding, _Request] | None:
        """The request that has waited longest for a trial, where time for one was saved or its last one succeeded."""
        waited = [
            each
            for each in drafting
            if not each[2].decided
            and each[2].rounds_off >= self._wait(each[2])
            and (self._credit > 0.0 or not each[2].wait)
        ]
        return max(waited, key=lambda each: each[2].rounds_off - each[2].wait, default=None)

    def _wait(self, request: _Request) -> int:
        """Rounds to its next trial. Nobody need wait to find out what a method costs."""
        if not self.costs.knows_drafting(request.method):
            return 1
        if request.follows_prices:
            return 0  # to ask is cheap: what was saved decides alone
        return min(request.wait, LONGEST_WAIT_ALONE * len(self._load[1]))

    def _try_out(self, round_: Round | None, _: int, item: Decoding, request: _Request) -> None:
        """Lets a request draft a little, for time that was saved. One that follows prices needs no round for it."""
        is_chain = isinstance(request.record, ChainRecord)
        assert round_ is not None or not is_chain
        depth = min(item.limit, PROBE_DEPTH if is_chain else request.depth)
        request.offered, request.is_trial = depth, True
        cost = round_.cost(round_.rows + depth) - round_.cost(round_.rows) if is_chain and round_ else 0.0
        cost += self.costs.drafting(request.method, 1, depth) - self.costs.drafting(request.method, 0, 0)
        self._credit -= max(0.0, cost) * (1.0 if is_chain else LOOK_UP_CHARGE)

    def _price(
        self, round_: Round, depths: dict[int, int], drafting: list[tuple[int, Decoding, _Request]]
    ) -> None:
        """Tells each request that follows prices what its rows cost, in tokens of the batch's present speed."""
        priced = [
            (index, request) for index, _, request in drafting if request.offered and request.follows_prices
        ]
        if not priced:
            return
        outlook = round_.outlook(depths)
        emitted = outlook.emitted
        inverse = sum(1.0 / each for each in emitted)
        for index, request in priced:
            own = sum(step.rows for step in _steps_of(round_, index)) if index in depths else 0.0
            worth = emitted[index] ** 2 * inverse if round_.aim.latency else sum(emitted)
            start = outlook.rows - own
            most = max(0, min(request.offered, int(len(round_.passes) - 1 - start)))
            base = round_.cost(start)
            request.prices = [
                worth * (round_.cost(start + tokens) - base) / outlook.cost for tokens in range(most + 1)
            ]
            if request.is_trial:
                request.prices = [max(price, TRIAL_PRICE * at) for at, price in enumerate(request.prices)]

    # ---- after a round ----------------------------------------------------------------------------------

    def observe(self, cost: RoundCost, drafting_s: Mapping[Any, float], outcomes: Sequence[Outcome]) -> None:
        """What the round that was planned last cost, by method what of it was spent in proposers, and its drafts."""
        pass_s = cost.verify_s + cost.prefill_s + cost.coordination_s
        self.costs.observe_pass(cost.batch, cost.context, cost.num_decode_rows, cost.num_prefill_rows, pass_s)
        num_news = 0
        asked: dict[int, tuple[int, int]] = {}
        for outcome in outcomes:
            request = self._requests.get(outcome.req_id)
            if request is None:
                continue
            number, depth = asked.get(request.method, (0, 0))
            asked[request.method] = number + (request.offered > 0), max(depth, request.offered)
            num_news += self._learn(request, outcome)
        spent_s = {self._number(method): seconds for method, seconds in drafting_s.items()}
        for method, (number, depth) in asked.items():
            self.costs.observe_drafting(method, number, depth, spent_s.get(method, 0.0))
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
            if request is not None and not request.follows_prices:
                num_accepted += outcome.accepted
            elif request is not None and request.is_trial:
                num_wasted += outcome.drafted - outcome.accepted
        most = MOST_CREDIT_ROUNDS * round_cost
        credit = PROBE_SHARE * round_cost
        if cost.num_decode_rows > cost.batch:
            passes = self.costs.expected_passes(cost.batch, cost.context, cost.num_decode_rows)
            plain, drafted = passes[cost.batch], cost.num_decode_rows - cost.batch
            credit -= num_wasted * (passes[cost.num_decode_rows] - plain) / drafted
            saved = plain * (1 + num_accepted / cost.batch) - round_cost
            self._earned = max(0.0, min(self._earned + EARNED_SHARE * saved, most))
        else:
            earned = min(self._earned, MOST_EARNED_SHARE * round_cost)
            self._earned -= earned
            credit += earned
        self._credit = min(self._credit + credit, most)

    def _charge_coordination(self, spent: float, cost: RoundCost, outcomes: Sequence[Outcome]) -> None:
        """What a look-up that was tried took beside its own time, as far as rounds without a decision tell."""
        requests = [self._requests.get(outcome.req_id) for outcome in outcomes]
        offered = [request for request in requests if request is not None and request.offered]
        usual = self._usual_coordination
        if cost.num_prefill_rows or (usual is not None and self._rounds_held < 2):
            return
        if not offered:
            self._usual_coordination = spent if usual is None else usual + USUAL_WEIGHT * (spent - usual)
        elif usual is not None and any(request.is_trial and request.follows_prices for request in offered):
            usual = self._usual_coordination = min(usual, spent)
            self._credit -= min(spent, MOST_COORDINATION * usual) - usual

    def _learn(self, request: _Request, outcome: Outcome) -> bool:
        """True where what came should be thought about at once."""
        if not request.offered or (request.is_trial and request.follows_prices and not outcome.drafted):
            return False
        is_surprised = request.record.learn(
            self._method(request), request.offered, outcome.drafted, outcome.accepted, request.rounds_off
        )
        if not request.is_trial:
            request.wait = FIRST_WAIT
        elif 0 < outcome.drafted == outcome.accepted:
            request.wait = 0  # it may go on at once
            self._news = 1.0
        else:
            request.rounds_off = 0
            request.wait = min(max(FIRST_WAIT, 2 * request.wait), LONGEST_WAIT)
        return outcome.accepted > 0 if request.is_trial else is_surprised

    def _number(self, method: Hashable) -> int:
        """A method's number, which is quicker to look up; of methods that were not seen for long, a new one."""
        number = self._numbers.pop(method, None)
        if number is None:
            if len(self._numbers) >= MAX_METHODS:
                self._forget_a_method()
            number = self._next_number
            self._next_number += 1
        self._numbers[method] = number  # the newest last
        return number

    def _forget_a_method(self) -> None:
        """The one that was used longest ago, of those that no request has."""
        in_use = {request.method for request in self._requests.values()}
        for method, number in self._numbers.items():
            if number not in in_use:
                del self._numbers[method]
                self._methods = {key: record for key, record in self._methods.items() if key[0] != number}
                self.costs.forget_method(number)
                return

    def _method(self, request: _Request) -> MethodRecord:
        """The record of a request's method at its context; a longer context starts from what the next shorter has.

        What a drafter that follows prices drafts depends on them, so its record is kept by load as well.
        """
        span = (request.context // 512).bit_length()
        load = len(self._load[1]).bit_length() if request.follows_prices else 0
        key = (request.method, load, span)
        record = self._methods.pop(key, None)
        if record is None:
            if len(self._methods) >= MAX_RECORDS:
                del self._methods[next(iter(self._methods))]
            shorter = [known for known in self._methods if known[:2] == key[:2] and known[2] < span]
            like = self._methods[max(shorter)] if shorter else None
            record = MethodRecord(like)
        self._methods[key] = record  # the newest last
        return record


def _steps_of(round_: Round, index: int) -> Sequence[Step]:
    return next(ask.steps for ask in round_.asking if ask.index == index)


def _speed(round_: Round, found: Found) -> float:
    """Expected speed relative to plain decoding: of what was found, or of the best that was turned down."""
    if round_.aim.most_per_token is None:
        return (found.score if found.depths else found.alternative or found.plain) / found.plain
    # Scores weigh a bound; what is told is tokens per time.
    plain, chosen = round_.outlook({}), round_.outlook(found.depths)
    return sum(chosen.emitted) / chosen.cost / (sum(plain.emitted) / plain.cost)
