"""The demo's measurement: three built-in workloads, plain against speculative, interleaved and paired.

Called by `draftproof demo`. Decides what runs in which order and adds it up; rendering is in `demo_report`.

Why the order is as it is: every block (one prompt, or as many as run at the same time) runs once in each arm, one
right after the other, and the arm that goes first alternates, so that a machine that slows down or speeds up
hurts both alike. The block is the unit of the interval: requests that share passes are one observation, not
several. Where several run together, every prompt is in two blocks, each time with other neighbours, because two
blocks alone say next to nothing. Every measured request has a scope of its own: the suffix pool remembers earlier
outputs of a scope, and a prompt that was measured before would be drafted from its own earlier answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, Protocol

from draftproof.core.breakeven import BreakEven
from draftproof.core.intent import Cascade, NGram, NoSpeculation, Predicted, SpeculationIntent, Suffix
from draftproof.core.params import SamplingParams
from draftproof.core.stats import RatioEstimate, paired_ratio
from draftproof.measure.compare import DecodeTotals, RequestRecord, SteppingEngine, run_block
from draftproof.measure.workloads import Prompt, Workload

ArmName = Literal["plain", "speculative"]
ARMS: tuple[ArmName, ArmName] = ("plain", "speculative")

MIN_TOKENS = 24
"""Answers shorter than this would measure the start of an answer only."""


class DemoEngine(SteppingEngine, Protocol):
    def make_request(
        self,
        prompt: str,
        params: SamplingParams,
        *,
        intent: SpeculationIntent,
        prediction: str = "",
        scope: str = "",
    ) -> Any: ...

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What to measure. On a slow machine answers are shorter than `max_tokens`, to meet `budget_s`."""

    num_prompts: int = 8
    max_tokens: int = 96
    concurrency: tuple[int, ...] = (1, 4)
    budget_s: float = 240.0


QUICK = DemoSettings(num_prompts=4, max_tokens=48, budget_s=90.0)


@dataclass(slots=True)
class Cell:
    """One workload at one load: both arms' totals, and the records of every request in pairs."""

    workload: str
    title: str
    candidate: SpeculationIntent
    concurrency: int
    plain: list[RequestRecord] = field(default_factory=list)
    speculative: list[RequestRecord] = field(default_factory=list)
    blocks: dict[ArmName, list[DecodeTotals]] = field(default_factory=lambda: {arm: [] for arm in ARMS})

    @property
    def pairs(self) -> list[tuple[RequestRecord, RequestRecord]]:
        return list(zip(self.plain, self.speculative, strict=True))

    def drop_unpaired(self) -> None:
        """Forgets a block that ran in one arm only."""
        num_blocks = min(len(self.blocks[arm]) for arm in ARMS)
        num_records = min(len(self.plain), len(self.speculative))
        for arm in ARMS:
            del self.blocks[arm][num_blocks:]
        del self.plain[num_records:], self.speculative[num_records:]

    @property
    def num_identical(self) -> int:
        return sum(plain.token_ids == speculative.token_ids for plain, speculative in self.pairs)

    @property
    def num_prompts(self) -> int:
        return len({record.prompt for record in self.plain})

    @property
    def totals(self) -> dict[ArmName, DecodeTotals]:
        """Sums over all blocks of an arm."""
        return {arm: DecodeTotals.sum(self.blocks[arm]) for arm in ARMS}

    @property
    def speedup(self) -> RatioEstimate | None:
        """Plain ÷ speculative decode time per token, paired over blocks; None without a second token."""
        blocks = zip(*(self.blocks[arm] for arm in ARMS), strict=True)
        times = [(plain.s_per_token, spec.s_per_token) for plain, spec in blocks]
        usable = [(plain, spec) for plain, spec in times if plain and spec]
        if not usable:
            return None
        return paired_ratio([plain for plain, _ in usable], [spec for _, spec in usable])

    @property
    def breakeven(self) -> BreakEven | None:
        """Mean speculative round against a plain token, both over all requests of the load."""
        plain, spec = (self.totals[arm] for arm in ARMS)
        if not plain.emitted or not spec.emitted:
            return None
        return BreakEven(
            draft_s=spec.draft_s / spec.rounds,
            verify_s=spec.verify_s / spec.rounds,
            coordination_s=spec.coordination_s / spec.rounds,
            emitted_per_round=spec.emitted / spec.rounds,
            baseline_s_per_token=plain.wall_s / plain.emitted,
        )

    def tokens_per_s(self, arm: ArmName) -> float | None:
        """Decoded tokens of all requests of the load per second of wall time."""
        totals = self.totals[arm]
        return totals.emitted / totals.wall_s if totals.wall_s else None

    @property
    def acceptance_rate(self) -> float | None:
        proposed = sum(record.stats.proposed for record in self.speculative)
        return sum(record.stats.accepted for record in self.speculative) / proposed if proposed else None

    @property
    def acceptance_length(self) -> float | None:
        """Emitted tokens per verify round of a request."""
        rounds = sum(record.stats.rounds for record in self.speculative)
        return sum(record.stats.emitted for record in self.speculative) / rounds if rounds else None

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of drafts that were accepted at each depth, of those that reached it."""
        depth = max((len(record.stats.proposed_per_position) for record in self.speculative), default=0)

        def at(counts: Sequence[int], position: int) -> int:
            return counts[position] if position < len(counts) else 0

        shares = []
        for position in range(depth):
            proposed = sum(at(record.stats.proposed_per_position, position) for record in self.speculative)
            accepted = sum(at(record.stats.accepted_per_position, position) for record in self.speculative)
            shares.append(accepted / proposed)
        return shares

    @property
    def verdict(self) -> str:
        """`pays`, `does_not_pay` or `within_noise`, from the interval alone; `not_measured` without one."""
        return self.speedup.verdict if self.speedup is not None else "not_measured"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """`is_whole` is False when the run was interrupted: then the cells hold what was measured in both arms."""

    cells: list[Cell]
    settings: DemoSettings
    max_tokens: int
    elapsed_s: float
    is_whole: bool = True

    @property
    def loads_agree(self) -> tuple[int, int]:
        """Plain answers that were the same at every load, of those that ran at more than one."""
        answers: dict[tuple[str, str], list[list[int]]] = {}
        for cell in self.cells:
            for record in cell.plain:
                answers.setdefault((cell.workload, record.prompt), []).append(record.token_ids)
        several = [texts for texts in answers.values() if len(texts) > 1]
        return sum(all(text == texts[0] for text in texts) for texts in several), len(several)

    @property
    def all_identical(self) -> bool:
        agreeing, several = self.loads_agree
        return agreeing == several and all(cell.num_identical == len(cell.pairs) for cell in self.cells)


def candidate_for(prompt: Prompt) -> SpeculationIntent:
    """predicted where the task gives an expected text → suffix → n-gram."""
    parts = (Predicted(), Suffix(), NGram()) if prompt.prediction is not None else (Suffix(), NGram())
    return Cascade(proposers=parts)


class Demo:
    """One run over all workloads. `progress(done, total, what)` is called before every block and at the end.

    `clock` gives seconds; the time of one `step()` of the engine is the difference of two calls.
    """

    def __init__(
        self,
        engine: DemoEngine,
        workloads: Sequence[Workload],
        settings: DemoSettings,
        progress: Callable[[int, int, str], None] = lambda done, total, what: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine = engine
        self._workloads = workloads
        self._settings = settings
        self._progress = progress
        self._clock = clock
        self._scopes = count()
        self._order = count()

    def run(self) -> DemoResult:
        """Measures everything. Ctrl-C ends it early, with what was measured in both arms if there is any."""
        start = self._clock()
        self._progress(0, 1, "warming up")
        max_tokens = self._fit_to_budget(*self._warm_up())
        blocks = [
            (cell, group, arms)
            for workload in self._workloads
            for cell in self._cells(workload)
            for group, arms in self._groups(workload, cell.concurrency)
        ]
        is_whole = True
        try:
            for done, (cell, group, arms) in enumerate(blocks):
                for arm in arms:
                    title = f"{cell.title}, {cell.concurrency} at a time, {arm}"
                    self._progress(2 * done + arms.index(arm), 2 * len(blocks), title)
                    self._measure(cell, group, arm, max_tokens)
        except KeyboardInterrupt:
            is_whole = False
            for cell, _, _ in blocks:
                cell.drop_unpaired()
        self._progress(1, 1, "done" if is_whole else "interrupted")
        cells = [cell for cell in {id(cell): cell for cell, _, _ in blocks}.values() if cell.plain]
        if not cells:
            raise KeyboardInterrupt
        return DemoResult(cells, self._settings, max_tokens, self._clock() - start, is_whole)

    def _cells(self, workload: Workload) -> Iterator[Cell]:
        for concurrency in self._settings.concurrency:
            candidate = candidate_for(workload.prompts[0])
            yield Cell(workload.name, workload.title, candidate, concurrency)

    def _groups(self, workload: Workload, size: int) -> Iterator[tuple[Sequence[Prompt], Sequence[ArmName]]]:
        """Prompts in blocks that run together, each with the order of its arms."""
        prompts = workload.prompts[: self._settings.num_prompts]
        num_blocks = -(-len(prompts) // size)
        blocks = [prompts[first : first + size] for first in range(0, len(prompts), size)]
        if size > 1 and num_blocks > 1:
            blocks += [prompts[first::num_blocks] for first in range(num_blocks)]
        for number, block in enumerate(blocks):
            yield block, ARMS if number % 2 == 0 else ARMS[::-1]

    def _measure(self, cell: Cell, group: Sequence[Prompt], arm: ArmName, max_tokens: int) -> None:
        requests = [self._request(prompt, arm, max_tokens) for prompt in group]
        records = [
            RequestRecord(
                prompt=prompt.name,
                language=prompt.language,
                arm=arm,
                concurrency=cell.concurrency,
                order=next(self._order),
                num_prompt_tokens=len(request.prompt_token_ids),
            )
            for prompt, request in zip(group, requests, strict=True)
        ]
        cell.blocks[arm].append(run_block(self._engine, requests, records, self._clock))
        (cell.plain if arm == "plain" else cell.speculative).extend(records)

    def _request(self, prompt: Prompt, arm: ArmName, max_tokens: int) -> Any:
        intent = candidate_for(prompt) if arm == "speculative" else NoSpeculation()
        return self._engine.make_request(
            self._engine.render_chat([{"role": "user", "content": prompt.text}]),
            SamplingParams(temperature=0.0, max_tokens=max_tokens),
            intent=intent,
            prediction=(prompt.prediction or "") if arm == "speculative" else "",
            scope=f"demo-{next(self._scopes)}",
        )

    def _warm_up(self) -> tuple[float, float]:
        """Runs one prompt in both arms; returns seconds per prompt token and per decoded token."""
        prompt = self._workloads[-1].prompts[0]
        prefill, decode = [], []
        for arm in ARMS:
            request = self._request(prompt, arm, 16)
            record = RequestRecord(prompt.name, prompt.language, arm, 1, 0)
            start = self._clock()
            totals = run_block(self._engine, [request], [record], self._clock)
            prefill.append((self._clock() - start - totals.wall_s) / len(request.prompt_token_ids))
            decode.append(totals.wall_s / max(1, totals.emitted))
        # The first run also pays for what is made once; the later, cheaper one is what will be met.
        return min(prefill), decode[0]

    def _fit_to_budget(self, prefill_s_per_token: float, decode_s_per_token: float) -> int:
        """Tokens per answer that keep the run within the budget if speculation gains nothing."""
        settings = self._settings
        prompts = [
            prompt for workload in self._workloads for prompt in workload.prompts[: settings.num_prompts]
        ]
        requests = [self._request(prompt, "plain", 1) for prompt in prompts]
        prompt_s = sum(len(request.prompt_token_ids) for request in requests) * prefill_s_per_token
        # Every prompt runs in two arms; where several run together, in two blocks and at half the price or less.
        answers = 2 * len(prompts) * len(settings.concurrency)
        left_s = settings.budget_s - 2 * sum(1 + (size > 1) for size in settings.concurrency) * prompt_s
        wanted_s = settings.max_tokens * answers * decode_s_per_token
        if wanted_s <= left_s:
            return settings.max_tokens
        return max(MIN_TOKENS, int(settings.max_tokens * left_s / wanted_s))
