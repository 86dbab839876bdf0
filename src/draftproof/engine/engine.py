"""The engine: schedule → propose → forward → verify → commit, once per `step()`.

Used as a library and by the commands. It knows proposers, models and rules only through their interfaces; plain
decoding is the same loop with empty drafts.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from draftproof.core.cost import RoundCost
from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafting import Drafting
from draftproof.engine.judging import Judgement, judge
from draftproof.engine.request import Request, RequestOutput, StreamEvent
from draftproof.engine.runner import run_pass
from draftproof.engine.scheduler import Scheduled, Scheduler
from draftproof.engine.selftest import SelfTest, check_bits
from draftproof.engine.sequence import Sequence as RunningSequence
from draftproof.kv.cache import BLOCK_SIZE, BlockPool, KVCache
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.registry import create_proposer

if TYPE_CHECKING:
    from draftproof.models.loading import LoadedModel

logger = logging.getLogger("draftproof.engine")

CreateProposer = Callable[[SpeculationIntent], Proposer]


class Engine:
    """Runs requests on one model. Not thread-safe: one thread calls `add_request`, `step` and `abort`."""

    def __init__(
        self, loaded: LoadedModel, config: EngineConfig, create_proposer: CreateProposer = create_proposer
    ) -> None:
        self.config = config
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        model = loaded.model
        self.max_len = min(config.max_model_len or model.config.context_length, model.config.context_length)
        num_blocks = self._num_blocks()
        self._pool = BlockPool(num_blocks)
        self._cache: KVCache = model.new_cache(num_blocks)
        self._scheduler = Scheduler(config, self._pool, self.max_len)
        self._drafting = Drafting(create_proposer, model.config.vocab_size, config.max_pools)
        self._ids = count()
        self._round_costs: list[RoundCost] = []
        self.selftest: SelfTest = check_bits(model)
        if not self.selftest.promise:
            logger.warning("bit-identity is not promised: %s", self.selftest.reason)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        dtype: str = "auto",
        kernels: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
        config: EngineConfig | None = None,
    ) -> Engine:
        """Loads a directory, a GGUF file or a name of `models list`. Raises DP4xx for what cannot be loaded."""
        from draftproof.models.loading import load_model

        if threads is not None:
            torch.set_num_threads(threads)
        return cls(load_model(model, dtype=dtype, kernels=kernels, device=device), config or EngineConfig())

    # ---- requests -------------------------------------------------------------------------------------

    def make_request(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        intent: SpeculationIntent | None = None,
        prediction: str | Sequence[int] = (),
        scope: str = "",
        req_id: str | None = None,
    ) -> Request:
        """A request from text (encoded as it is; render a chat with `render_chat` first) or from token ids."""
        prompt_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        prediction_ids = self.tokenizer.encode(prediction) if isinstance(prediction, str) else list(prediction)
        return Request(
            req_id=req_id if req_id is not None else f"req-{next(self._ids)}",
            prompt_token_ids=tuple(prompt_ids),
            params=params if params is not None else SamplingParams(),
            intent=intent if intent is not None else self.config.speculation,
            prediction=tuple(prediction_ids),
            scope=scope,
        )

    def render_chat(self, messages: Sequence[dict[str, Any]], **template_args: Any) -> str:
        """The model's chat template over `messages`, with the opening of the answer. Raises DP304."""
        return self.loaded.template.render(messages, **template_args)

    def add_request(self, request: Request) -> None:
        """Queues a request. Raises a DraftproofError for one that can never run; nothing is queued then."""
        self._check(request)
        seed = request.params.seed if request.params.seed is not None else secrets.randbits(63)
        intent, reason = self._fit(request)
        sequence = RunningSequence(
            request=request,
            seed=seed,
            depth=getattr(intent, "num_speculative_tokens", 0),
            max_total=self.max_len,
            decode=self.tokenizer.decode,
            eos_token_ids=frozenset(self.loaded.model.config.eos_token_ids),
        )
        sequence.decision_reason = reason
        self._scheduler.add(sequence)
        if not isinstance(intent, NoSpeculation):
            view = SequenceView(
                req_id=request.req_id,
                token_ids=sequence.token_ids,
                num_prompt=sequence.num_prompt,
                params=request.params,
                prediction=request.prediction,
                scope=request.scope,
                depth=sequence.depth,
                noise=sequence.noise_key,
            )
            self._drafting.begin(view, intent)

    def abort(self, req_id: str) -> RequestOutput | None:
        """Ends a request now; None when it is not known (it may have ended already)."""
        for sequence in self._scheduler.sequences():
            if sequence.request.req_id == req_id:
                sequence.abort()
                return self._end(sequence).finished
        return None

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    # ---- the loop -------------------------------------------------------------------------------------

    def step(self) -> list[StreamEvent]:
        """One round over everything that is scheduled; returns what the requests emitted."""
        started = time.perf_counter()
        scheduled = self._scheduler.schedule()
        if not scheduled:
            return []
        sampling = [item for item in scheduled if item.samples]
        sequences = [item.sequence for item in sampling]
        req_ids = [sequence.request.req_id for sequence in sequences]

        draft_started = time.perf_counter()
        draft = self._drafting.propose(req_ids, [item.budget for item in sampling])
        verify_started = time.perf_counter()
        result = run_pass(self.loaded.model, self._cache, scheduled, draft)
        judgements = judge(result, sequences, draft)
        verify_ended = time.perf_counter()

        for item in scheduled:
            item.sequence.num_computed += item.num_rows
        events = [self._commit(sequence, judged) for sequence, judged in zip(sequences, judgements, strict=True)]
        cost = self._cost(scheduled, judgements, draft_started, verify_started, verify_ended, started)
        self._round_costs.append(cost)
        return events
