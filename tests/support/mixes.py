"""Generated mixes of requests, and the comparison of each request with itself alone and plain. Layer 3 of exactness.

A mix has prompts (some with a common beginning), sampling parameters, methods, depths, priorities, arrival rounds,
chunk and batch sizes, caches so small that requests are preempted, and proposers that are right, wrong, random,
branching or crashing.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from collections.abc import Sequence as Sequence_

import torch
from torch import Tensor

from draftproof.core.intent import Auto, Cascade, NGram, NoSpeculation, Predicted, SpeculationIntent, Suffix
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.judging import Judgement
from draftproof.engine.request import EngineStats, Request, RequestOutput, StreamEvent
from draftproof.engine.sequence import Sequence
from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.base import Model
from draftproof.models.loading import LoadedModel, load_model
from draftproof.proposers.base import Proposer
from draftproof.proposers.registry import create_proposer
from draftproof.proposers.resources import LoadModel, Resources
from support.proposers import AlwaysRight, AlwaysWrong, Branching, Crashing, RandomDrafts


class RecordingEngine(Engine):
    """Keeps the model's logits behind every emitted token."""

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        create: Callable[[SpeculationIntent], Proposer],
        load: LoadModel = load_model,
    ) -> None:
        super().__init__(loaded, config, create)
        self.resources.load = load
        # Whatever is read before it was written shows as NaN.
        self._cache.data.fill_(float("nan"))
        self.logits: dict[str, list[Tensor]] = {}

    def _commit(self, sequence: Sequence, judged: Judgement) -> StreamEvent:
        event = super()._commit(sequence, judged)
        rows = (0, *judged.verdict.path)[: len(event.token_ids)]
        kept = self.logits.setdefault(sequence.request.req_id, [])
        kept.extend(judged.rows.logits[row].clone() for row in rows)
        return event


@dataclasses.dataclass(frozen=True)
class Mix:
    """Requests that run together, the engine's limits, and the round in which each request arrives.

    cache_blocks  blocks of the cache; None: as many as the requests can ever need
    """

    seed: int
    config: EngineConfig
    requests: list[Request]
    arrivals: list[int]
    cache_blocks: int | None

    def config_for(self, model: Model) -> EngineConfig:
        if self.cache_blocks is None:
            return self.config
        config = model.config
        block_bytes = KVCache.block_bytes(
            config.num_layers, config.num_kv_heads, config.head_dim, model.dtype
        )
        return dataclasses.replace(self.config, cache_bytes=self.cache_blocks * block_bytes)


def generate_mix(
    seed: int, vocab_size: int, context: int, drafters: Sequence_[SpeculationIntent] = ()
) -> Mix:
    """`drafters`: further methods that take part, those that need a model's files."""
    rng = random.Random(seed)
    max_num_seqs = rng.randint(1, 6)
    config = EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_rows=rng.choice([2 * max_num_seqs, 24, 64, 512]),
        prefill_chunk=rng.choice([1, 2, 3, 7, 16, 64, 256]),
        max_pools=rng.choice([1, 2, 32]),
        prefix_caching=rng.random() < 0.8,
    )
    # Short prompts and long outputs in a cache that holds the largest alone: they outgrow it, and are preempted.
    tight = rng.random() < 0.2
    common = [
        rng.randrange(3, vocab_size) for _ in range(rng.choice([0, 20, 40] if tight else [0, 0, 20, 64, 100]))
    ]
    requests = [
        _generate_request(rng, f"r{index}", vocab_size, common if rng.random() < 0.8 else [], tight, drafters)
        for index in range(rng.randint(2 if tight else 1, 6))
    ]
    assert all(len(request.prompt_token_ids) < context for request in requests)
    arrivals = sorted(rng.choice([0, 0, 1, 3, 8, 30]) for _ in requests)
    least = max(BlockPool.blocks_for(len(r.prompt_token_ids) + (r.params.max_tokens or 0)) for r in requests)
    cache_blocks = least + rng.randint(0, 1) if tight or rng.random() < 0.5 else None
    return Mix(seed, config, requests, arrivals, cache_blocks)


def _generate_request(
    rng: random.Random,
    req_id: str,
    vocab_size: int,
    common: list[int],
    tight: bool,
    drafters: Sequence_[SpeculationIntent],
) -> Request:
    prompt = common + [
        rng.randrange(3, vocab_size)
        for _ in range(rng.choice([1, 5, 30] if tight else [1, 2, 5, 17, 33, 60, 90]))
    ]
    if not tight and rng.random() < 0.6:  # something to look up
        prompt = (prompt * 3)[: rng.randint(len(prompt), 3 * len(prompt))]
    prediction = tuple(prompt[rng.randrange(len(prompt)) :]) if rng.random() < 0.5 else ()
    return Request(
        req_id=req_id,
        prompt_token_ids=tuple(prompt[:180]),
        params=_generate_params(rng, vocab_size, tight),
        intent=_generate_intent(rng, bool(prediction), drafters),
        prediction=prediction,
        scope=rng.choice(["", "", "a"]),
        priority=rng.choice([0, 0, 0, -1, 5]),
    )


def _generate_params(rng: random.Random, vocab_size: int, tight: bool) -> SamplingParams:
    greedy = rng.random() < 0.5
    some = [rng.randrange(vocab_size) for _ in range(6)]
    max_tokens = rng.randint(36, 70) if tight else rng.randint(1, 24)
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=rng.choice([0, 0, min(5, max_tokens)]),
        temperature=0.0 if greedy else rng.choice([0.3, 0.8, 1.0, 1.7]),
        top_k=rng.choice([0, 0, 1, 20]),
        top_p=rng.choice([1.0, 1.0, 0.9]),
        min_p=rng.choice([0.0, 0.0, 0.05]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.2]),
        presence_penalty=rng.choice([0.0, 0.0, 0.5]),
        frequency_penalty=rng.choice([0.0, 0.0, -0.4]),
        logit_bias=rng.choice([{}, {some[0]: 2.5, some[1]: -100.0}]),
        bad_token_ids=frozenset(rng.choice([(), (some[2],)])),
        bad_token_sequences=rng.choice([(), ((some[3], some[4]),)]),
        seed=rng.randrange(2**40),
        stop_token_ids=frozenset(() if tight else rng.choice([(), tuple(range(3, 30))])),
        stop=() if tight else rng.choice([(), ("e",), ("the", "\n")]),
        ignore_eos=tight or rng.random() < 0.5,
        logprobs=rng.choice([None, None, 0, 3]),
        logprobs_mode=rng.choice(["raw", "processed"]),
    )


def _generate_intent(
    rng: random.Random, has_prediction: bool, drafters: Sequence_[SpeculationIntent]
) -> SpeculationIntent:
    depth = rng.choice([1, 2, 3, 5, 8, 16, 24])
    is_adaptive = rng.random() < 0.5
    choices: list[SpeculationIntent] = [
        NoSpeculation(),
        NGram(
            num_speculative_tokens=depth,
            prompt_lookup_min=1,
            prompt_lookup_max=rng.randint(1, 4),
            adaptive=is_adaptive,
        ),
        Suffix(num_speculative_tokens=depth, adaptive=is_adaptive),
        Cascade(
            proposers=(Suffix(num_speculative_tokens=depth), NGram(prompt_lookup_min=1)), adaptive=is_adaptive
        ),
        Auto(num_speculative_tokens=depth, adaptive=is_adaptive),
        *DOUBLES,
    ]
    if has_prediction:
        choices.append(Predicted(num_speculative_tokens=depth, adaptive=is_adaptive))
    if drafters and rng.random() < 0.5:
        return rng.choice(drafters)
    return rng.choice(choices)


# Configurations that stand for test doubles; every other one gets the proposer that it names. Their depth is fixed,
# so that a run's times do not decide how much they draft.
DOUBLES = tuple(
    NGram(num_speculative_tokens=depth, prompt_lookup_min=9, prompt_lookup_max=9, adaptive=False)
    for depth in range(2, 7)
)


def _create_with_doubles(
    truth: dict[str, tuple[int, ...]], seed: int, vocab_size: int, resources: Callable[[], Resources]
) -> Callable[[SpeculationIntent], Proposer]:
    doubles = dict(
        zip(
            DOUBLES,
            (
                AlwaysRight(truth),
                AlwaysWrong(truth, vocab_size),
                RandomDrafts(seed, vocab_size),
                Branching(truth, seed, vocab_size),
                Crashing(seed, vocab_size),
            ),
            strict=True,
        )
    )
    return lambda intent: (
        doubles[intent] if intent in doubles else create_proposer(intent, resources())  # type: ignore[index]
    )


def run_alone(loaded: LoadedModel, request: Request) -> tuple[RequestOutput, list[Tensor]]:
    """The request by itself, without speculation, prompt in one chunk."""
    engine = RecordingEngine(loaded, EngineConfig(max_num_seqs=1), create_proposer)
    plain = dataclasses.replace(request, intent=NoSpeculation())
    output = next(event.finished for event in engine.stream([plain]) if event.finished is not None)
    engine.check_idle()
    return output, engine.logits[request.req_id]


def run_mix(
    loaded: LoadedModel, mix: Mix, truth: dict[str, tuple[int, ...]], load: LoadModel = load_model
) -> tuple[dict[str, RequestOutput], RecordingEngine]:
    vocab_size = loaded.model.config.vocab_size
    create = _create_with_doubles(truth, mix.seed, vocab_size, lambda: engine.resources)
    engine = RecordingEngine(loaded, mix.config_for(loaded.model), create, load)
    waiting = list(zip(mix.arrivals, mix.requests, strict=True))
    outputs: dict[str, RequestOutput] = {}
    streamed: dict[str, str] = {}
    rounds = 0
    while waiting or engine.has_work:
        while waiting and (waiting[0][0] <= rounds or not engine.has_work):
            engine.add_request(waiting.pop(0)[1])
        for event in engine.step():
            streamed[event.req_id] = streamed.get(event.req_id, "") + event.text
            if event.finished is not None:
                outputs[event.req_id] = event.finished
        rounds += 1
    engine.check_idle()
    for req_id, output in outputs.items():
        assert streamed[req_id] == output.text
    return outputs, engine


def assert_same_bits(
    loaded: LoadedModel, mix: Mix, load: LoadModel = load_model
) -> tuple[dict[str, RequestOutput], EngineStats]:
    """`load` loads the drafters. Returns the outputs with speculation, and what the engine counted, so that a caller
    can see that what it tests for did happen."""
    alone = {request.req_id: run_alone(loaded, request) for request in mix.requests}
    truth = {req_id: output.token_ids for req_id, (output, _) in alone.items()}
    outputs, engine = run_mix(loaded, mix, truth, load)
    for request in mix.requests:
        (plain, plain_logits), spec = alone[request.req_id], outputs[request.req_id]
        told = f"mix {mix.seed}, request {request}"
        assert spec.token_ids == plain.token_ids, told
        assert spec.text == plain.text, told
        assert (spec.finish_reason, spec.stop_reason) == (plain.finish_reason, plain.stop_reason), told
        assert spec.logprobs == plain.logprobs, told
        assert spec.completion_tokens == len(spec.token_ids) == len(plain_logits), told
        assert torch.equal(torch.stack(engine.logits[request.req_id]), torch.stack(plain_logits)), told
        stats = spec.stats
        assert stats.accepted <= stats.proposed, told
        assert sum(stats.proposed_per_position) == stats.proposed, told
        assert sum(stats.accepted_per_position) == stats.accepted, told
        assert sum(stats.depth_histogram.values()) == stats.rounds, told
        if spec.error is None:
            assert stats.emitted == spec.completion_tokens - 1, told
        assert spec.cached_tokens < spec.prompt_tokens, told
        assert mix.config.prefix_caching or not spec.cached_tokens, told
    return outputs, engine.stats()
