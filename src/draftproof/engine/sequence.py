"""The state of one running request, and `commit`, which alone decides where its output ends.

Made and advanced by the engine (`num_computed`), scheduled by the scheduler (which owns `table` and `rank`).
Knows nothing of models, proposers or rules of verification.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

from draftproof.core.cost import SpeculationStats
from draftproof.core.errors import DraftproofError
from draftproof.engine.detokenizer import Detokenizer
from draftproof.engine.request import FinishReason, Request, RequestOutput
from draftproof.kv.table import BlockTable
from draftproof.ops.logprobs import TokenLogprobs
from draftproof.ops.sampling import SamplingState
from draftproof.verify.types import NoiseKey, Rule


class Sequence:
    """One request while it waits, runs, and until its output was taken.

    token_ids       prompt and emitted output: the one growing list that proposers see
    num_computed    tokens whose keys and values are in the cache
    table           the sequence's cache blocks, in order; set by the scheduler, as is `rank`
    rank            (priority, order of arrival): lower runs first and is preempted last
    num_cached      tokens of the prompt that were taken from the prefix cache when it was first admitted
    num_preempted   how often it lost its cache blocks and was computed again
    depth           most tokens a draft of this request may hold
    max_total       tokens at which it ends with "length": prompt and output, by max_tokens and by the context
    rule            how its drafts are judged, set by the engine
    sampling        what its rows of logits go through, with the history they need
    started_s       when the first pass with its rows began (`time.perf_counter()`), set by the engine
    """

    def __init__(
        self,
        request: Request,
        *,
        seed: int,
        depth: int,
        max_total: int,
        decode: Callable[[list[int]], str],
        eos_token_ids: frozenset[int],
    ) -> None:
        params = request.params
        assert 0 < len(request.prompt_token_ids) < max_total
        self.request = request
        self.seed = seed
        self.depth = depth
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt = len(self.token_ids)
        self.max_total = max_total
        if params.max_tokens is not None:
            self.max_total = min(max_total, self.num_prompt + params.max_tokens)
        self.num_computed = 0
        self.table: BlockTable
        self.rank: tuple[int, int]
        self.num_cached = 0
        self.num_preempted = 0
        self.stats = SpeculationStats()
        self.rule = Rule.MATCH
        self.decision_reason: str | None = None
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.error: DraftproofError | None = None
        self.started_s: float | None = None
        self._first_token_s: float | None = None
        self._ended_s: float | None = None
        self._logprobs: list[TokenLogprobs] = []
        self._end_token_ids = params.stop_token_ids | (frozenset() if params.ignore_eos else eos_token_ids)
        self._detokenizer = Detokenizer(decode, params.stop)
        self.sampling = SamplingState(params, request.prompt_token_ids, self._end_token_ids)

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def num_to_prefill(self) -> int:
        """Tokens to compute before the sequence decodes: its prompt, and after a preemption its output as well.

        The pass of a prompt's last token yields the first token of the output. What is computed again yields
        nothing: it ends before the newest token, which then is the root of an ordinary round.
        """
        return self.num_uncomputed - 1 if self.num_output else self.num_uncomputed

    @property
    def block_ids(self) -> list[int]:
        return self.table.block_ids

    @property
    def draft_budget(self) -> int:
        """Most draft tokens that could be emitted now; one token always comes from the target."""
        return max(0, min(self.depth, self.max_total - len(self.token_ids) - 1))

    @property
    def noise_key(self) -> NoiseKey:
        return NoiseKey(self.seed, self.num_output)

    @property
    def text(self) -> str:
        """The output's text as far as it is certain; all of it once the sequence has ended."""
        return self._detokenizer.text

    def commit(
        self,
        run: Seq[int],
        num_proposed: int = 0,
        logprobs: Seq[TokenLogprobs] | None = None,
        num_accepted: int | None = None,
    ) -> list[int]:
        """Emits the tokens of one round, up to the one that ends the sequence; returns those emitted.

        `run` holds the accepted draft tokens (`num_accepted`; None: all but the last) and the target's own,
        which is missing where the target could not give one; `num_proposed` counts the draft's tokens;
        `logprobs` has an entry per token of `run`, and is None for a request that wants none. Nothing
        behind the end is emitted, counted or logged. Per token, in this order:
        - EOS or a stop token ends the sequence ("stop"): it is counted, and not in the text;
        - a stop string that the token completes ends it ("stop"): the text is cut before the string;
        - `max_total` tokens end it ("length").
        The first two only by a token that comes after `min_tokens` others.
        """
        num_accepted = len(run) - 1 if num_accepted is None else num_accepted
        assert len(run) - 1 <= num_accepted <= min(num_proposed, len(run))
        assert run
        assert self.finish_reason is None
        assert (logprobs is None) == (self.request.params.logprobs is None)
        if self._first_token_s is None:
            self._first_token_s = time.perf_counter()
        assert logprobs is None or len(logprobs) == len(run)
        emitted: list[int] = []
        for index, token in enumerate(run):
            emitted.append(token)
            self.token_ids.append(token)
            if logprobs is not None:
                self._logprobs.append(logprobs[index])
            self._end_if_due(token)
            if self.finish_reason is not None:
                break
        self.sampling.commit(emitted)
        # The first token comes out of the prompt's pass, which is no round of decoding.
        if self.num_output > len(emitted):
            self.stats.add_round(num_proposed, min(num_accepted, len(emitted)), len(emitted))
        return emitted

    def abort(self) -> None:
        """Ends the sequence from outside, with what was emitted so far."""
        self._end("abort", None)

    def fail(self, error: DraftproofError) -> None:
        """Ends the sequence by a fault that concerns it alone, with the tokens and the certain text so far."""
        self.error = error
        self._detokenizer.abandon()
        self.finish_reason = None
        self._end("error", None)

    def take_text(self) -> str:
        """Text to stream: what became certain since the last call."""
        return self._detokenizer.take_delta()

    def output(self) -> RequestOutput:
        """The finished request; only after the end."""
        assert self.finish_reason is not None
        assert self._ended_s is not None
        wants_logprobs = self.request.params.logprobs is not None
        first_token_s = self._ended_s if self._first_token_s is None else self._first_token_s
        started_s = first_token_s if self.started_s is None else self.started_s
        assert not wants_logprobs or len(self._logprobs) == self.num_output
        return RequestOutput(
            req_id=self.request.req_id,
            token_ids=tuple(self.token_ids[self.num_prompt :]),
            text=self.text,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=tuple(self._logprobs) if wants_logprobs else None,
            prompt_tokens=self.num_prompt,
            completion_tokens=self.num_output,
            cached_tokens=self.num_cached,
            preemptions=self.num_preempted,
            prefill_s=first_token_s - started_s,
            decode_s=self._ended_s - first_token_s,
            stats=self.stats,
            seed=self.seed,
            decision_reason=self.decision_reason,
            error=self.error.as_dict() if self.error is not None else None,
        )

    def _end_if_due(self, token: int) -> None:
        """The stop rule for the token appended last."""
        may_stop = self.num_output > self.request.params.min_tokens
        if may_stop and token in self._end_token_ids:
            self._end("stop", token)
        else:
            self._detokenizer.push(token)
            stop = self._detokenizer.match_stop() if may_stop else None
            if stop is not None:
                self._end("stop", stop)
                return
            if len(self.token_ids) >= self.max_total:
                self._end("length", None)
        if self.finish_reason is not None and may_stop:
            # A stop string may end in a broken character, which became text only at the end.
            stop = self._detokenizer.match_stop()
            if stop is not None:
                self.finish_reason, self.stop_reason = "stop", stop

    def _end(self, reason: FinishReason, stop_reason: str | int | None) -> None:
        assert self.finish_reason is None
        self._detokenizer.close()
        self.finish_reason = reason
        self.stop_reason = stop_reason
        self._ended_s = time.perf_counter()
