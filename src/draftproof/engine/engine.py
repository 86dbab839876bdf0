"""The engine: schedule → propose → forward → verify → commit, once per `step()`.

Used as a library and by the commands. It knows proposers, models and rules only through their interfaces; plain
decoding is the same loop with empty drafts.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from draftproof.core.cost import RoundCost
from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, SpeculationIntent, parse_intent
from draftproof.core.interrupts import uninterrupted
from draftproof.core.params import SamplingParams
from draftproof.engine.accounting import RoundTimes, round_cost, share_cost
from draftproof.engine.admission import check_request, check_types, fit, read_token_ids, rule_for
from draftproof.engine.config import EngineConfig
from draftproof.engine.controller import Decoding, DepthController, Outcome
from draftproof.engine.drafting import Drafting
from draftproof.engine.judging import Judgement, judge
from draftproof.engine.memory import available_memory_bytes, plan_memory
from draftproof.engine.request import EngineStats, Request, RequestOutput, RoundDraft, StreamEvent
from draftproof.engine.runner import PassResult, build_pass, one_pool_of_threads
from draftproof.engine.scheduler import Scheduled, Scheduler
from draftproof.engine.selftest import SelfTest, check_bits
from draftproof.engine.sequence import Sequence as RunningSequence
from draftproof.kv.budget import ByteBudget
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.kv.pool import BlockPool
from draftproof.proposers.base import Offer, Proposer, SequenceView
from draftproof.proposers.registry import create_proposer
from draftproof.proposers.resources import Resources

if TYPE_CHECKING:
    from draftproof.models.loading import LoadedModel

logger = logging.getLogger("draftproof.engine")

MAX_ROUND_COSTS = 100_000
"""Rounds whose cost an engine keeps until someone takes them."""

CreateProposer = Callable[[SpeculationIntent], Proposer]


class Engine:
    """Runs requests on one model. One call at a time of `add_request`, `step` and `abort` (else DP309).

    Ctrl-C in one of these is raised when it is done: the engine serves on, and no token is lost.
    """

    def __init__(
        self, loaded: LoadedModel, config: EngineConfig, create_proposer: CreateProposer | None = None
    ) -> None:
        """`create_proposer` None: the registry's. Raises what it raises for `config.speculation`."""
        self.config = config
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        model = loaded.model
        self.max_len = _max_len(config, model.config.context_length)
        self.memory = plan_memory(config, model, self.max_len)
        self.budget = ByteBudget(self.memory.caches)
        self._cache: KVCache = model.new_cache(self.memory.num_blocks)
        self._pool = BlockPool(self.memory.num_blocks, self.memory.block, self.budget, self._cache.discard)
        self.resources = self._make_resources()
        create = create_proposer or self._create_proposer
        self._drafting = Drafting(create, model.config.vocab_size, config.max_pools)
        self._controller = DepthController(config.objective, config.slo.tpot_s if config.slo else None)
        self._scheduler = Scheduler(config, self._pool, self.max_len, self._drafting)
        self._ids = count()
        self._turn = threading.RLock()
        self._in_round = False
        self._abandoned: list[str] = []  # requests whose stream ended within a call
        self._listeners: dict[str, deque[StreamEvent]] = {}
        self._unread: list[StreamEvent] = []  # of steps that raised an interruption instead of returning them
        self._round_costs: deque[RoundCost] = deque(maxlen=MAX_ROUND_COSTS)
        self.selftest: SelfTest = check_bits(model)
        if not self.selftest.promise:
            logger.warning("bit-identity is not promised: %s", self.selftest.reason)
        _, unfit = self._drafting.prepare(config.speculation, config.on_unfit == "refuse")
        if unfit is not None:
            logger.warning("%s", _said(unfit))

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        dtype: str = "auto",
        weights: str = "native",
        kernels: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
        config: EngineConfig | None = None,
    ) -> Engine:
        """Loads a directory, a GGUF file or a name of `models list`. Raises DP4xx for what cannot be loaded."""
        from draftproof.models.loading import load_model

        if threads is not None:
            if not isinstance(threads, int) or not 1 <= threads <= 256:
                raise DraftproofError(
                    "DP001", "threads", threads, "a number from 1 to 256", "Leave it out: one per core."
                )
            torch.set_num_threads(threads)
        config = config if config is not None else EngineConfig()
        if not isinstance(config, EngineConfig):
            raise DraftproofError(
                "DP001",
                "config",
                f"a {type(config).__name__}",
                "an EngineConfig",
                "Pass EngineConfig(memory=…, …), which `from draftproof import EngineConfig` gives.",
            )
        loaded = load_model(
            model,
            dtype=dtype,
            weights=weights,
            kernels=kernels,
            device=device,
            max_model_len=config.max_model_len,
            memory=config.memory,
        )
        return cls(loaded, config)

    # ---- requests -------------------------------------------------------------------------------------

    def make_request(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        intent: SpeculationIntent | Mapping[str, object] | str | None = None,
        prediction: str | Sequence[int] = (),
        scope: str = "",
        priority: int = 0,
        req_id: str | None = None,
        add_special: bool = False,
    ) -> Request:
        """A request from token ids or from text. `intent` may be given as `parse_intent` takes it.

        Text is encoded as it is: render a chat with `render_chat` first. `add_special` lets the tokenizer add what
        it puts around raw text (a BOS token, for some models); a rendered chat has it already.

        Raises DP303 for what is neither text nor token ids, DP1xx for an intent that cannot be read, DP201 and DP308
        for parameters and other fields of another type.
        """
        prompt_ids = self.tokenizer.encode(prompt, add_special) if isinstance(prompt, str) else prompt
        expected_ids = self.tokenizer.encode(prediction) if isinstance(prediction, str) else prediction
        if isinstance(intent, str | Mapping):
            intent = parse_intent(intent)
        request = Request(
            req_id=req_id if req_id is not None else f"req-{next(self._ids)}",
            prompt_token_ids=read_token_ids("prompt", prompt_ids),
            params=params if params is not None else SamplingParams(),
            intent=intent,
            prediction=read_token_ids("prediction", expected_ids),
            scope=scope,
            priority=priority,
        )
        check_types(request)
        return request

    def render_chat(self, messages: Sequence[dict[str, Any]], **template_args: Any) -> str:
        """The model's chat template over `messages`, with the opening of the answer. Raises DP304."""
        return self.loaded.template.render(messages, **template_args)

    def add_request(self, request: Request) -> None:
        """Queues a request. Raises a DraftproofError for one that can never run; nothing is queued then."""
        with self._alone():
            self._add(request, None)

    def _add(self, request: Request, listener: deque[StreamEvent] | None) -> None:
        check_request(request, self.loaded.model.config, self.max_len)
        if self._scheduler.get(request.req_id) is not None:
            raise DraftproofError(
                "DP306",
                "req_id",
                request.req_id,
                "an id that no request in the engine has",
                "Choose another id.",
            )
        intent, reason = fit(request, self.config)
        intent, unfit = self._drafting.prepare(intent, self.config.on_unfit == "refuse")
        sequence = RunningSequence(
            request=request,
            seed=request.params.seed if request.params.seed is not None else secrets.randbits(63),
            depth=getattr(intent, "num_speculative_tokens", 0),
            max_total=self._max_total(request),
            decode=self.tokenizer.decode,
            eos_token_ids=frozenset(self.loaded.model.config.eos_token_ids),
        )
        sequence.decision_reason = reason if unfit is None else _said(unfit)
        sequence.rule = rule_for(intent, request.params)
        self._scheduler.check(sequence)
        with uninterrupted():
            self._add_drafting(sequence, intent)
            self._scheduler.add(sequence)
            if listener is not None:
                self._listeners[request.req_id] = listener

    def abort(self, req_id: str) -> RequestOutput | None:
        """Ends a request now; None when it is not known (it may have ended already)."""
        with self._alone():
            return self._abort(req_id)

    def _abort(self, req_id: str) -> RequestOutput | None:
        sequence = self._scheduler.get(req_id)
        if sequence is None:
            self._controller.end(req_id)  # it may have ended in a `step` that was interrupted (Ctrl-C)
            return None
        with uninterrupted():
            if sequence.finish_reason is None:
                sequence.abort()
            event = self._end(sequence)
            self._controller.end(req_id)
            self._tell([event])
        return event.finished

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._unread)

    # ---- the loop -------------------------------------------------------------------------------------

    def step(self) -> list[StreamEvent]:
        """One round over everything that is scheduled; returns what the requests emitted.

        Where an interruption (Ctrl-C) is raised instead, the round is done whole, and the next call returns what
        this one would have, with its own.
        """
        told: list[StreamEvent] = []
        unheard: list[StreamEvent] = []
        try:
            with uninterrupted(), self._alone(), one_pool_of_threads(self.loaded.model):
                self._in_round = True
                try:
                    events = self._round()
                finally:
                    self._in_round = False
                while self._abandoned:
                    self._abort(self._abandoned.pop())
                told, unheard, self._unread = self._unread + events, self._unread + self._tell(events), []
        except BaseException:  # whatever comes on the way out: nobody has heard of this round
            self._unread[:0] = unheard
            raise
        return told

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Raises DP309 where another thread is in a call that changes the engine, or this one in a round, as what runs
        by itself may be (a signal's handler, the end of a stream that is collected): both would go wrong."""
        if self._in_round or not self._turn.acquire(blocking=False):
            raise DraftproofError(
                "DP309",
                "engine",
                "a call while another is in progress",
                "one call at a time",
                "Let one thread drive the engine and hand requests over to it, or hold a lock around each call.",
            )
        try:
            yield
        finally:
            self._turn.release()

    def _round(self) -> list[StreamEvent]:
        started_s = time.perf_counter()
        self._drafting.take_spent()
        scheduled = self._scheduler.schedule()
        if not scheduled:
            return self._fail_stuck()
        for item in scheduled:
            if item.sequence.started_s is None:
                item.sequence.started_s = started_s
                self._drafting.begin(item.sequence.request.req_id)
        scheduled, prices, offers = self._decide_depths(scheduled)
        sampling = [item for item in scheduled if item.samples]
        sequences = [item.sequence for item in sampling]

        draft = self._drafting.propose(
            [sequence.request.req_id for sequence in sequences],
            [item.budget for item in sampling],
            [sequence.block_ids for sequence in sequences],
            prices,
            offers,
        )
        batch, row_offsets = build_pass(scheduled, draft)
        pass_started_s = time.perf_counter()
        logits = self.loaded.model.forward(batch, self._cache)
        judgements = judge(PassResult(logits, row_offsets), sequences, draft)
        pass_s = time.perf_counter() - pass_started_s

        for item in scheduled:
            item.sequence.num_computed += item.num_rows
            if not item.decodes:
                self._drafting.observe(item.sequence.request.req_id)
        events = [self._commit_or_fail(s, judged) for s, judged in zip(sequences, judgements, strict=True)]
        self._let_proposers_follow(sequences, judgements)
        self._scheduler.settle(scheduled)
        spent = self._drafting.take_spent()
        times = RoundTimes(time.perf_counter() - started_s, spent.total_s, pass_s)
        cost = round_cost(scheduled, judgements, events, times)
        share_cost(cost, scheduled, judgements)
        self._round_costs.append(cost)
        outcomes = [
            Outcome(
                item.sequence.request.req_id,
                judged.num_proposed,
                len(judged.verdict.path),
                self._drafting.source(item.sequence.request.req_id),
            )
            for item, judged in zip(sampling, judgements, strict=True)
            if item.decodes
        ]
        self._controller.observe(cost, spent.drafting_s, outcomes, spent.reading)
        for event in events:
            if event.finished is not None:
                self._controller.end(event.req_id)
        return events

    def stream(self, requests: Sequence[Request]) -> Iterator[StreamEvent]:
        """Runs `requests` beside whatever else runs; yields their events until all have ended.

        Events reach their stream whoever calls `step` or `abort`. A caller that stops listening early aborts what
        is left.
        """
        events: deque[StreamEvent] = deque()
        left: set[str] = set()
        try:
            for request in requests:
                with self._alone():
                    self._add(request, events)
                left.add(request.req_id)
            while left:
                if not events:
                    assert self.has_work, "a request ended without an event"
                    self.step()
                while events:
                    event = events.popleft()
                    if event.finished is not None:
                        left.discard(event.req_id)
                    yield event
        finally:
            with uninterrupted():
                for req_id in [known for known, queue in list(self._listeners.items()) if queue is events]:
                    self._listeners.pop(req_id, None)
                    try:
                        self.abort(req_id)
                    except DraftproofError:  # a call is in progress: at the end of a round
                        self._abandoned.append(req_id)

    def _tell(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        """Hands events to the streams of their requests; returns those of requests that have none."""
        unheard: list[StreamEvent] = []
        for event in events:
            listener = self._listeners.get(event.req_id)
            (unheard if listener is None else listener).append(event)
            if event.finished is not None:
                self._listeners.pop(event.req_id, None)
        return unheard

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | None = None,
        *,
        intent: SpeculationIntent | Mapping[str, object] | str | None = None,
        predictions: Sequence[str | Sequence[int]] | None = None,
    ) -> list[RequestOutput]:
        """Answers to `prompts`, in order. Requests run together, up to `max_num_seqs` at a time.

        Raises what `make_request` and `add_request` raise, DP303 also for one text where a list is expected.
        """
        if isinstance(prompts, str) or isinstance(predictions, str):
            raise DraftproofError(
                "DP303", "prompts", "one text", "a list of prompts", "Put it into a list: generate([prompt])."
            )
        if predictions is not None and len(predictions) != len(prompts):
            raise DraftproofError(
                "DP303",
                "predictions",
                f"{len(predictions)}",
                f"one per prompt: {len(prompts)}",
                "Give an empty prediction where there is none.",
            )
        expected = predictions if predictions is not None else [()] * len(prompts)
        requests = [
            self.make_request(prompt, params, intent=intent, prediction=prediction)
            for prompt, prediction in zip(prompts, expected, strict=True)
        ]
        outputs = {
            event.req_id: event.finished for event in self.stream(requests) if event.finished is not None
        }
        return [outputs[request.req_id] for request in requests]

    def stats(self) -> EngineStats:
        """Queue, cache and counters, for metrics and for those who wonder."""
        scheduler = self._scheduler
        return EngineStats(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            cache=scheduler.usage(),
            cache_in_pass=scheduler.usage_in_pass,
            num_preemptions=scheduler.num_preemptions,
            num_prompt_tokens=scheduler.num_prompt_tokens,
            num_cached_tokens=scheduler.num_cached_tokens,
        )

    def take_round_costs(self) -> list[RoundCost]:
        """What the rounds since the last call cost; bounded by `MAX_ROUND_COSTS`, the oldest are dropped."""
        costs = list(self._round_costs)
        self._round_costs.clear()
        return costs

    def describe(self) -> dict[str, Any]:
        """What runs here, for `--json`, reports and the server's health page."""
        model = self.loaded.model
        return {
            "model": str(self.loaded.source),
            "architecture": model.config.architecture,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights": self.loaded.weights,
            "weight_types": dict(self.loaded.weight_types),
            "kernels": model.kernels,
            "kernels_reason": self.loaded.kernels_reason,
            "threads": torch.get_num_threads(),
            "context_length": self.max_len,
            "max_num_seqs": self.config.max_num_seqs,
            "kv_token_capacity": self._pool.capacity * BLOCK_SIZE,
            "memory": {
                "limit": self.memory.limit,
                "process": self.memory.process,
                "workspace": self.memory.workspace,
                "caches": self.memory.caches,
            },
            "drafters": self.resources.describe(),
            "exactness": {"promise": self.selftest.promise, "reason": self.selftest.reason},
        }

    def check_idle(self) -> None:
        """Asserts that a drained engine holds nothing: all blocks can be had, nobody drafting.

        Blocks that keep a prefix count as free, for they are given up when they are needed.
        """
        assert not self.has_work
        assert self._pool.num_in_use == 0, "cache blocks leaked"
        assert self._pool.num_free == self._pool.capacity, "cache blocks of a proposer leaked"
        assert self._drafting.num_requests == 0, "drafting state leaked"
        assert self._controller.num_requests == 0, "depth records leaked"

    # ---- parts of a request's beginning and of a round ---------------------------------------------------

    def _add_drafting(self, sequence: RunningSequence, intent: SpeculationIntent) -> None:
        if isinstance(intent, NoSpeculation):
            return
        request = sequence.request
        view = SequenceView(
            req_id=request.req_id,
            token_ids=sequence.token_ids,
            num_prompt=sequence.num_prompt,
            params=request.params,
            prediction=request.prediction,
            scope=request.scope,
            depth=sequence.depth,
            noise=sequence.noise_key,
            rule=sequence.rule,
            sampling=sequence.sampling,
            note=sequence.decision_reason,
        )
        proposer = self._drafting.add(view, intent)
        self._controller.add(
            request.req_id,
            intent,
            sequence.depth,
            sources=proposer.sources,
            is_adaptive=intent.adaptive,
        )

    def _decide_depths(
        self, scheduled: list[Scheduled]
    ) -> tuple[list[Scheduled], list[Sequence[float] | None], list[Sequence[Offer]]]:
        """The same parts with the depths that are worth their time, and per sampling sequence prices and offers."""
        decoding = []
        for item in scheduled:
            if item.decodes:
                req_id = item.sequence.request.req_id
                limit = item.budget if self._drafting.drafts(req_id) else 0
                lags = self._drafting.lags(req_id) if limit else ()
                decoding.append(Decoding(req_id, limit, item.sequence.num_computed, lags))
        plan = self._controller.plan(decoding, sum(item.num_rows for item in scheduled if not item.decodes))
        decided = iter(zip(plan.budgets, plan.prices, plan.offers, strict=True))
        parts: list[Scheduled] = []
        prices: list[Sequence[float] | None] = []
        offers: list[Sequence[Offer]] = []
        for item in scheduled:
            price: Sequence[float] | None = None
            offered: Sequence[Offer] = ()
            if item.decodes:
                budget, price, offered = next(decided)
                if budget != item.budget:
                    item = Scheduled(item.sequence, item.num_rows, item.samples, item.decodes, budget)
            parts.append(item)
            if item.samples:
                prices.append(price)
                offers.append(offered)
        return parts, prices, offers

    def _commit_or_fail(self, sequence: RunningSequence, judged: Judgement) -> StreamEvent:
        """A fault while one request's tokens are emitted ends that request and no other."""
        num_tokens = len(sequence.token_ids)
        try:
            return self._commit(sequence, judged)
        except Exception as error:
            logger.exception(
                "request %s ends: a fault while its tokens were emitted", sequence.request.req_id
            )
            sequence.fail(
                DraftproofError(
                    "DP901",
                    "request",
                    f"{type(error).__name__}: {error}",
                    "tokens that can be emitted",
                    "This is a fault in draftproof or in the model's tokenizer: please report it.",
                )
            )
            return self._end(sequence, sequence.token_ids[num_tokens:])

    def _commit(self, sequence: RunningSequence, judged: Judgement) -> StreamEvent:
        """Lets the cache follow the verdict, and emits what it offers, up to the stop rule."""
        path = judged.verdict.path
        if path != tuple(range(1, len(path) + 1)):
            self._cache.compact(sequence.block_ids, sequence.num_computed - 1, path)
        sequence.num_computed += len(path)
        emitted: list[int] = []
        if judged.run:
            emitted = sequence.commit(judged.run, judged.num_proposed, judged.logprobs, len(path))
        if judged.error is not None and sequence.finish_reason is None:
            sequence.fail(judged.error)
        draft = judged.shown(emitted)
        if sequence.finish_reason is not None:
            return self._end(sequence, emitted, draft)
        return StreamEvent(
            req_id=sequence.request.req_id, text=sequence.take_text(), token_ids=tuple(emitted), draft=draft
        )

    def _let_proposers_follow(
        self, sequences: Sequence[RunningSequence], judgements: Sequence[Judgement]
    ) -> None:
        """Tells proposers what became of the drafts of every request that goes on."""
        running = [pair for pair in zip(sequences, judgements, strict=True) if pair[0].finish_reason is None]
        self._drafting.commit([(s.request.req_id, judged.verdict, s.noise_key) for s, judged in running])
        for sequence, _ in running:
            self._note_failure(sequence)

    def _fail_stuck(self) -> list[StreamEvent]:
        """Ends the one request that cannot go on although everybody else gave way."""
        sequence = self._scheduler.stuck()
        if sequence is None:
            return []
        sequence.fail(
            DraftproofError(
                "DP305",
                "request",
                f"{len(sequence.token_ids)} tokens",
                f"at most {self._pool.capacity * BLOCK_SIZE}, which is what the cache holds now",
                "Memory was reserved after the request came, as for a drafter: give the engine more (--memory).",
            )
        )
        event = self._end(sequence)
        self._controller.end(sequence.request.req_id)
        return [event]

    def _end(
        self, sequence: RunningSequence, emitted: Sequence[int] = (), draft: RoundDraft | None = None
    ) -> StreamEvent:
        req_id = sequence.request.req_id
        self._note_failure(sequence)
        if self._drafting.failure(req_id) is None:
            told = (sequence.decision_reason, self._controller.reason(req_id))
            sequence.decision_reason = "; ".join(part.rstrip(".") for part in told if part) or None
        self._drafting.end(req_id)
        self._scheduler.finish(sequence)
        return StreamEvent(
            req_id=req_id,
            text=sequence.take_text(),
            token_ids=tuple(emitted),
            draft=draft,
            finished=sequence.output(),
        )

    def _note_failure(self, sequence: RunningSequence) -> None:
        failure = self._drafting.failure(sequence.request.req_id)
        if failure is not None:
            sequence.decision_reason = f"decodes plainly: {failure}"
            sequence.depth = 0  # it reserves no rows for drafts any more
        else:
            sequence.decision_reason = (
                self._drafting.note(sequence.request.req_id) or sequence.decision_reason
            )

    def _make_resources(self) -> Resources:
        from draftproof.models.loading import load_model, reload_weights

        return Resources(
            target=self.loaded,
            cache=self._cache,
            budget=self.budget,
            max_len=self.max_len,
            num_blocks=self._pool.num_blocks,
            available_bytes=self._available_bytes,
            reserves_weights=self.memory.limit is not None,
            shares_prefixes=self.config.prefix_caching,
            load=load_model,
            reload=reload_weights,
        )

    def _available_bytes(self) -> int:
        """For a drafter: with a limit, what a full request of the target leaves of it; else what the machine has."""
        if self.memory.limit is None:
            return available_memory_bytes() - self._cache.data.nbytes
        one_request = BlockPool.blocks_for(self.max_len) * self.memory.block
        return self.budget.num_bytes - self.budget.num_reserved - one_request

    def _create_proposer(self, intent: SpeculationIntent) -> Proposer:
        return create_proposer(intent, self.resources)

    def _max_total(self, request: Request) -> int:
        """Tokens at which a request ends. Without max_tokens it gets what the cache can hold, where that is less."""
        if request.params.max_tokens is not None:
            return self.max_len
        capacity = self._pool.capacity * BLOCK_SIZE
        return min(self.max_len, max(capacity, len(request.prompt_token_ids) + 1))


def _max_len(config: EngineConfig, context_length: int) -> int:
    if config.max_model_len is not None and config.max_model_len > context_length:
        raise DraftproofError(
            "DP001",
            "max_model_len",
            config.max_model_len,
            f"at most {context_length}, the model's context length",
            "Lower it, or leave it out.",
        )
    return config.max_model_len or context_length


def _said(unfit: DraftproofError) -> str:
    return f"drafts without what was asked for: {unfit}"
