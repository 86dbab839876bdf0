"""What the depth controller keeps: of each request its sources of drafts, of methods what they gave over all requests.

A request has one source of drafts, or several that are asked in order (a cascade). Each has its own acceptance, its own
cost and its own depth, which holds for the rounds in which those before it have no draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from draftproof.engine.acceptance import ChainRecord, MethodRecord, PricedRecord

FIRST_WAIT = 8
"""Rounds from a failed trial of a source to its next: doubled each time."""
MAX_METHODS = 64
"""Methods (sources of configurations) whose costs are kept while no request uses them."""
KEPT_LEFT = 0.8
"""What each token that those before it gained leaves of `RequestSource.num_left`: a text that begins to copy is soon
taken for such a text, whatever came before."""
TOKENS_READ, ROUNDS_DRAFTED = 128.0, 32.0
"""What drafters are taken to read, and for how many rounds that serves, before they did."""
READING_DECAY = 0.9
"""Weight that what was read before keeps at each reading."""
MAX_RECORDS = 1024
"""Records of methods by load and range of context."""


@dataclass(slots=True)
class RequestSource:
    """One source of one request.

    offered      what it may draft in the round that runs
    decided      what was decided last, trials apart
    outlook      expected ratio to plain decoding (of the best alternative, if none drafts), whether any request drafts
    advantage    time that drafting saves per round, relative to other costs, as it was decided
    lag          tokens that it would have to read before a draft
    num_left     rounds in which those before it had no draft; they count for less the more those gained since
    priced_for   the decision during which it got the prices of a trial, and whether prompt rows rode along
    charged      what its trial of this round was charged
    """

    method: int
    depth: int
    follows_prices: bool
    record: ChainRecord | PricedRecord
    offered: int = 0
    decided: int = 0
    prices: list[float] | None = None
    is_trial: bool = False
    rounds_off: int = 0
    wait: int = FIRST_WAIT
    outlook: tuple[float, bool] | None = None
    advantage: float = 0.0
    lag: int = 0
    num_left: float = 0.0
    priced_for: tuple[int, bool] | None = None
    charged: float = 0.0


@dataclass(slots=True)
class DraftingRequest:
    """A request that drafts. `batch`: of how many requests the last decision was."""

    sources: tuple[RequestSource, ...]
    is_adaptive: bool
    context: int = 0
    batch: int = 0

    def reason(self) -> str | None:
        """In words what was decided last; None where nothing was to be decided."""
        depths, ratios = [], []
        for source in self.sources:
            if source.outlook is None:
                return None
            ratio, any_drafts = source.outlook
            upto = "up to " if source.follows_prices and source.decided else ""
            others = " while others draft" if any_drafts and not source.decided else ""
            depths.append(f"{upto}{source.decided}{others}")
            ratios.append(f"{ratio:.2f}")
        depth, expected = ", then ".join(depths), ", then ".join(ratios)
        return f"settled at depth {depth}: expected {expected}× plain at batch {self.batch}"


@dataclass(slots=True)
class Reading:
    """How much text a method's drafter had to read, and for how many rounds it drafted."""

    num_tokens: float = TOKENS_READ
    num_rounds: float = ROUNDS_DRAFTED

    def add(self, num_tokens: int) -> None:
        self.num_tokens = READING_DECAY * self.num_tokens + num_tokens
        self.num_rounds *= READING_DECAY


class Methods:
    """Numbers and records of methods. A method is anything hashable that names a source of a configuration."""

    def __init__(self, forget_costs: Callable[[int], None]) -> None:
        self._forget_costs = forget_costs
        self._numbers: dict[Hashable, int] = {}
        self._records: dict[tuple[int, int, int], MethodRecord] = {}
        self._next_number = 0
        self.reading: defaultdict[int, Reading] = defaultdict(Reading)

    def number(self, method: Hashable, in_use: Callable[[], set[int]]) -> int:
        """A method's number, which is quicker to look up; of methods that were not seen for long, a new one.

        `in_use` tells the numbers that requests have.
        """
        number = self._numbers.pop(method, None)
        if number is None:
            if len(self._numbers) >= MAX_METHODS:
                self._forget_one(in_use())
            number = self._next_number
            self._next_number += 1
        self._numbers[method] = number  # the newest last
        return number

    def record(self, number: int, context: int, load: int) -> MethodRecord:
        """The record of a method at a context; a longer context starts from what the next shorter has.

        `load` keeps records apart where that changes what is drafted.
        """
        span = (context // 512).bit_length()
        key = (number, load, span)
        record = self._records.pop(key, None)
        if record is None:
            if len(self._records) >= MAX_RECORDS:
                del self._records[next(iter(self._records))]
            shorter = [known for known in self._records if known[:2] == key[:2] and known[2] < span]
            record = MethodRecord(self._records[max(shorter)] if shorter else None)
        self._records[key] = record  # the newest last
        return record

    def _forget_one(self, in_use: set[int]) -> None:
        """The one that was used longest ago, of those that no request has."""
        for method, number in self._numbers.items():
            if number not in in_use:
                del self._numbers[method]
                self._records = {key: record for key, record in self._records.items() if key[0] != number}
                self.reading.pop(number, None)
                self._forget_costs(number)
                return
