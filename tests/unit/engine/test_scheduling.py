"""Who runs, with which rows and blocks, who gives way, and that nobody's text or counters show it.

On a model that is a formula. Fairness is counted in rounds, never in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NGram, NoSpeculation, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.request import EngineStats, Request, RequestOutput
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.kv.pool import BlockPool
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.registry import create_proposer
from draftproof.verify.types import Verdict
from support.fake_model import VOCAB_SIZE, FakeLoaded, FakeModel, cache_of
from support.proposers import AlwaysRight, RandomDrafts

LOOKUP = NGram(prompt_lookup_min=1, adaptive=False)


def greedy(num_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)


def sampled(num_tokens: int, seed: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, max_tokens=num_tokens, ignore_eos=True, seed=seed, logprobs=2)


def make_engine(
    config: EngineConfig | None = None,
    create: Callable[[SpeculationIntent], Proposer] = create_proposer,
    model: FakeModel | None = None,
) -> Engine:
    return Engine(FakeLoaded(model or FakeModel()), config or EngineConfig(), create)  # type: ignore[arg-type]


def drain(
    engine: Engine,
    requests: Sequence[Request],
    each_round: Callable[[EngineStats], None] = lambda stats: None,
) -> dict[str, RequestOutput]:
    """Outputs by id in order of their end; what streamed must be what the outputs say."""
    for request in requests:
        engine.add_request(request)
    outputs: dict[str, RequestOutput] = {}
    texts: dict[str, str] = {}
    tokens: dict[str, tuple[int, ...]] = {}
    while engine.has_work:
        for event in engine.step():
            texts[event.req_id] = texts.get(event.req_id, "") + event.text
            tokens[event.req_id] = tokens.get(event.req_id, ()) + event.token_ids
            if event.finished is not None:
                outputs[event.req_id] = event.finished
        each_round(engine.stats())
    engine.check_idle()
    for req_id, output in outputs.items():
        assert texts[req_id] == output.text
        assert tokens[req_id] == output.token_ids
    return outputs


def alone(request: Request) -> RequestOutput:
    engine = make_engine(EngineConfig(max_num_seqs=1, prefix_caching=False))
    plain = Request(req_id="alone", prompt_token_ids=request.prompt_token_ids, params=request.params)
    return drain(engine, [plain])["alone"]


# ---- preemption ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix_caching", [True, False], ids=["prefix-caching", "no-prefix-caching"])
@pytest.mark.parametrize("intent", [NoSpeculation(), LOOKUP], ids=lambda intent: intent.method)
def test_a_preempted_request_goes_on_as_if_nothing_had_happened(
    intent: SpeculationIntent, prefix_caching: bool
) -> None:
    engine = make_engine(cache_of(5, prefix_caching=prefix_caching))
    requests = [
        engine.make_request([20 + index] * 7, sampled(110, seed=index), intent=intent, req_id=str(index))
        for index in range(4)
    ]
    outputs = drain(engine, requests)
    assert sum(output.preemptions for output in outputs.values()) == engine.stats().num_preemptions > 0
    assert outputs["0"].preemptions == 0, "the first to come never gives way"
    for request in requests:
        expected, output = alone(request), outputs[request.req_id]
        assert output.token_ids == expected.token_ids
        assert output.text == expected.text
        assert output.logprobs == expected.logprobs
        assert output.stats.emitted == expected.stats.emitted
        if intent == NoSpeculation():
            assert output.stats.rounds == expected.stats.rounds, "computing again is no round of decoding"


def test_the_lowest_priority_gives_way_and_comes_back_before_those_behind_it() -> None:
    engine = make_engine(cache_of(4, max_num_seqs=2))
    requests = [
        engine.make_request([20] * 20, greedy(80), req_id="late but urgent", priority=-1),
        engine.make_request([21] * 20, greedy(80), req_id="first"),
        engine.make_request([22] * 20, greedy(80), req_id="second"),
    ]
    outputs = drain(engine, [requests[1], requests[0], requests[2]])
    assert list(outputs) == ["late but urgent", "first", "second"]
    assert outputs["late but urgent"].preemptions == 0
    assert outputs["first"].preemptions > 0


def test_waiting_requests_are_taken_by_priority_then_arrival() -> None:
    engine = make_engine(EngineConfig(max_num_seqs=1))
    order = {"a": 0, "b": 5, "c": -5, "d": 0}
    requests = [
        engine.make_request([20], greedy(3), req_id=req_id, priority=order[req_id]) for req_id in order
    ]
    assert list(drain(engine, requests)) == ["c", "a", "d", "b"]


def test_a_request_that_fits_alone_completes_and_one_that_never_fits_is_refused() -> None:
    engine = make_engine(cache_of(3))
    exact = engine.make_request([20] * 40, greedy(3 * BLOCK_SIZE - 40), intent=LOOKUP, req_id="exact")
    others = [engine.make_request([30 + index] * 40, greedy(50)) for index in range(3)]
    outputs = drain(engine, [*others, exact])
    assert {output.finish_reason for output in outputs.values()} == {"length"}
    with pytest.raises(DraftproofError, match="DP305"):
        engine.add_request(engine.make_request([20] * 40, greedy(3 * BLOCK_SIZE - 39)))
    engine.check_idle()


def test_a_request_that_memory_was_taken_from_ends_with_the_reason() -> None:
    engine = make_engine(cache_of(4))
    request = engine.make_request([20] * 40, greedy(80), req_id="r")
    engine.add_request(request)
    for _ in range(5):
        engine.step()
    assert engine.budget.reserve(2 * block_bytes())
    output = drain_quietly(engine)["r"]
    engine.check_idle()
    assert output.error is not None
    assert output.error["code"] == "DP305"
    assert 0 < len(output.token_ids) < 80
    assert output.token_ids == alone(request).token_ids[: len(output.token_ids)]


def block_bytes() -> int:
    return KVCache.block_bytes(1, 1, 8, FakeModel.dtype)


def test_any_order_of_arrivals_aborts_and_shortages_leaves_nothing_behind() -> None:
    preemptions = cached = 0
    for seed in range(12):
        rng = random.Random(seed)
        config = cache_of(
            rng.randint(4, 7),
            max_num_seqs=rng.randint(2, 5),
            max_num_rows=16,
            prefill_chunk=rng.choice([3, 8, 40]),
        )
        engine = make_engine(config, lambda _, rng=rng: RandomDrafts(rng.randrange(9), VOCAB_SIZE))  # type: ignore[misc]
        requests: dict[str, Request] = {}
        outputs: dict[str, RequestOutput] = {}
        for _ in range(120):
            if rng.random() < 0.2 and len(requests) < 12:
                prompt = [20] * rng.choice([1, 33, 40]) + [
                    rng.randrange(3, 60) for _ in range(rng.randint(0, 20))
                ]
                params = rng.choice([greedy, lambda n: sampled(n, seed=3)])(rng.randint(1, 60))
                request = engine.make_request(
                    prompt,
                    params,
                    intent=rng.choice([LOOKUP, NoSpeculation()]),
                    scope=rng.choice(["", "a"]),
                    priority=rng.choice([0, 0, 1]),
                )
                requests[request.req_id] = request
                engine.add_request(request)
            if rng.random() < 0.03 and requests:
                aborted = engine.abort(rng.choice(sorted(requests)))
                if aborted is not None:
                    outputs[aborted.req_id] = aborted
            for event in engine.step():
                if event.finished is not None:
                    outputs[event.req_id] = event.finished
            usage = engine.stats().cache
            assert usage.total == engine.budget.num_bytes // block_bytes()
            assert usage.draft == 0
        outputs |= drain_quietly(engine)
        engine.check_idle()
        assert set(outputs) == set(requests)
        for req_id, output in outputs.items():
            expected = alone(requests[req_id])
            assert output.token_ids == expected.token_ids[: len(output.token_ids)]
            assert output.finish_reason == "abort" or output.token_ids == expected.token_ids
        preemptions += engine.stats().num_preemptions
        cached += engine.stats().num_cached_tokens
    assert preemptions > 5
    assert cached > 5 * BLOCK_SIZE


def drain_quietly(engine: Engine) -> dict[str, RequestOutput]:
    outputs = {}
    while engine.has_work:
        outputs |= {e.req_id: e.finished for e in engine.step() if e.finished is not None}
    return outputs


# ---- drafts and blocks --------------------------------------------------------------------------------


def test_blocks_for_drafts_are_counted_apart_and_given_back_after_the_round() -> None:
    request = Request(req_id="r", prompt_token_ids=(20,) * 20, params=greedy(60))
    truth = {"r": alone(request).token_ids}
    engine = make_engine(create=lambda _: AlwaysRight(truth))
    deep = NGram(num_speculative_tokens=40, adaptive=False)
    seen: list[EngineStats] = []
    request = Request(req_id="r", prompt_token_ids=(20,) * 20, params=greedy(60), intent=deep)
    drain(engine, [request], seen.append)
    assert all(stats.cache.draft == 0 for stats in seen)
    # The first token is committed, and 40 drafted ones reach into the second block.
    assert (seen[1].cache_in_pass.committed, seen[1].cache_in_pass.draft) == (1, 1)
    assert {stats.cache.total for stats in seen} == {stats.cache_in_pass.total for stats in seen}
    assert seen[-1].cache.committed == 0


def test_drafts_get_shorter_before_anybody_is_preempted() -> None:
    """Two requests that fit exactly, with drafts that always want another block."""
    params = greedy(2 * BLOCK_SIZE - 20)
    requests = [
        Request(req_id=str(index), prompt_token_ids=(20 + index,) * 20, params=params, intent=LOOKUP)
        for index in range(2)
    ]
    truth = {request.req_id: alone(request).token_ids for request in requests}
    engine = make_engine(cache_of(4), lambda _: AlwaysRight(truth))
    outputs = drain(engine, requests)
    assert engine.stats().num_preemptions == 0
    for req_id, output in outputs.items():
        assert output.token_ids == truth[req_id]
        assert output.stats.proposed > 0


class Greedy(AlwaysRight):
    """A proposer with a cache of its own, from the engine's budget; takes a block per request where it can."""

    name = "greedy"

    def __init__(self, truth: dict[str, tuple[int, ...]], engine: list[Engine]) -> None:
        super().__init__(truth)
        self._engine = engine
        self.blocks: dict[str, list[int]] = {}
        self.pool: BlockPool | None = None
        self.num_released = 0
        self.reachable = 0

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        self.pool = self.pool or BlockPool(100, block_bytes() // 2, self._engine[0].budget)
        for sequence in sequences:
            wanted = len(sequence.token_ids) // 8 - len(self.blocks.setdefault(sequence.req_id, []))
            self.blocks[sequence.req_id] += self.pool.allocate(max(0, wanted)) or []
        return super().propose(sequences, budgets)

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        return min(self.reachable, num_tokens)

    def release(self, sequence: SequenceView) -> bool:
        self.num_released += bool(self.blocks.get(sequence.req_id))
        return self._free(sequence)

    def end(self, sequence: SequenceView) -> None:
        self._free(sequence)

    def _free(self, sequence: SequenceView) -> bool:
        blocks = self.blocks.pop(sequence.req_id, [])
        if blocks and self.pool is not None:
            self.pool.release(blocks)
        return bool(blocks)


def test_proposers_give_up_their_cache_before_a_request_is_preempted() -> None:
    request = Request(req_id="r", prompt_token_ids=(20,) * 20, params=greedy(5 * BLOCK_SIZE - 20))
    truth = {"r": alone(request).token_ids}
    engines: list[Engine] = []
    proposer = Greedy(truth, engines)
    engines.append(make_engine(cache_of(5), lambda _: proposer))
    request = Request(
        req_id="r",
        prompt_token_ids=request.prompt_token_ids,
        params=request.params,
        intent=NGram(num_speculative_tokens=2, adaptive=False),
    )
    output = drain(engines[0], [request])["r"]
    assert output.token_ids == truth["r"]
    assert output.preemptions == 0
    assert proposer.num_released == 1


def test_proposers_give_up_their_cache_to_let_a_request_in_and_only_where_that_is_enough() -> None:
    short = NGram(num_speculative_tokens=2, adaptive=False)
    first = Request(req_id="first", prompt_token_ids=(20,) * 100, params=greedy(150), intent=short)
    truth = {"first": alone(first).token_ids}
    engines: list[Engine] = []
    proposer = Greedy(truth, engines)
    engine = make_engine(cache_of(12), lambda _: proposer)
    engines.append(engine)
    engine.add_request(first)
    while not proposer.blocks.get("first"):  # then it holds half of the memory, and the request a third
        engine.step()
    engine.add_request(engine.make_request([21] * 240, greedy(3), req_id="too large for now"))
    engine.step()
    assert (engine.stats().num_running, proposer.num_released) == (1, 0)
    engine.abort("too large for now")
    engine.add_request(engine.make_request([21] * 100, greedy(3), req_id="second"))
    engine.step()
    assert (engine.stats().num_running, proposer.num_released) == (2, 1)
    outputs = drain_quietly(engine)
    engine.check_idle()
    assert list(outputs) == ["second", "first"]
    assert outputs["first"].token_ids == truth["first"]


# ---- prefixes -----------------------------------------------------------------------------------------


def test_a_known_prefix_is_not_computed_again_and_changes_nothing() -> None:
    model = FakeModel()
    engine = make_engine(model=model)
    prompt = [20 + index % 7 for index in range(2 * BLOCK_SIZE + 9)]
    first = drain(engine, [engine.make_request(prompt, greedy(40))])
    model.passes.clear()
    for again, num_cached in (
        (prompt, 2 * BLOCK_SIZE),
        (prompt[: 2 * BLOCK_SIZE], BLOCK_SIZE),  # the last token of a prompt is always computed
        ([*prompt[:BLOCK_SIZE], 9, *prompt[BLOCK_SIZE:]], BLOCK_SIZE),
        ([9, *prompt], 0),
    ):
        [output] = drain(engine, [engine.make_request(again, greedy(5))]).values()
        assert output.cached_tokens == num_cached
        assert (
            output.token_ids
            == alone(Request(req_id="r", prompt_token_ids=tuple(again), params=greedy(5))).token_ids
        )
        assert model.passes[0] == [len(again) - num_cached]
        model.passes.clear()
    # The next turn of a talk: what was answered is known as well.
    [answer] = first.values()
    [output] = drain(engine, [engine.make_request([*prompt, *answer.token_ids, 9], greedy(3))]).values()
    assert output.cached_tokens == 3 * BLOCK_SIZE


def test_what_a_preempted_request_computed_of_its_prompt_is_not_reported_as_cached() -> None:
    engine = make_engine(cache_of(8, prefill_chunk=1))
    engine.add_request(engine.make_request([20] * 60, greedy(150), req_id="first"))
    for _ in range(90):
        engine.step()
    prompt = [20 + index % 7 for index in range(120)]
    engine.add_request(engine.make_request(prompt, greedy(4), req_id="second"))
    outputs = drain_quietly(engine)
    engine.check_idle()
    assert outputs["second"].preemptions > 0
    assert outputs["second"].cached_tokens == engine.stats().num_cached_tokens == 0
    assert engine.stats().num_prompt_tokens == 60 + 120


def test_requests_that_run_together_share_blocks() -> None:
    engine = make_engine(cache_of(7))
    prompt = [20 + index % 7 for index in range(3 * BLOCK_SIZE)]
    engine.add_request(engine.make_request(prompt, greedy(20), req_id="first"))
    engine.step()
    others = [engine.make_request([*prompt, index], greedy(20), req_id=str(index)) for index in range(3)]
    for request in others:
        engine.add_request(request)
    outputs = drain_quietly(engine)
    engine.check_idle()
    assert engine.stats().num_preemptions == 0, "4 requests of 4 blocks each in 7 blocks"
    assert all(outputs[str(index)].cached_tokens == 3 * BLOCK_SIZE for index in range(3))


def test_tenants_share_nothing_and_sharing_can_be_switched_off() -> None:
    prompt = [20] * 70
    for config, scopes, cached in (
        (EngineConfig(), ("a", "a"), 2 * BLOCK_SIZE),
        (EngineConfig(), ("a", "b"), 0),
        (EngineConfig(prefix_caching=False), ("a", "a"), 0),
    ):
        engine = make_engine(config)
        outputs = [
            drain(engine, [engine.make_request(prompt, greedy(3), scope=scope, req_id="r")])["r"]
            for scope in scopes
        ]
        assert [output.cached_tokens for output in outputs] == [0, cached]


def test_a_hit_reaches_only_as_far_as_the_proposers_cache() -> None:
    prompt = [20 + index % 7 for index in range(4 * BLOCK_SIZE)]
    request = Request(req_id="r", prompt_token_ids=tuple(prompt), params=greedy(5), intent=NGram())
    proposer = Greedy({"r": alone(request).token_ids}, [])
    proposer._engine.append(make_engine(create=lambda _: proposer))
    engine = proposer._engine[0]
    drain(engine, [request])
    for reachable, cached in ((0, 0), (BLOCK_SIZE + 5, BLOCK_SIZE), (1000, 3 * BLOCK_SIZE)):
        proposer.reachable = reachable
        assert drain(engine, [request])["r"].cached_tokens == cached


def test_prefixes_are_given_up_for_requests_that_need_the_room() -> None:
    engine = make_engine(cache_of(4))
    drain(engine, [engine.make_request([20] * 70, greedy(20))])
    assert engine.stats().cache.cached == 2
    drain(engine, [engine.make_request([21] * 70, greedy(50))])
    assert engine.stats().num_preemptions == 0
    [output] = drain(engine, [engine.make_request([20] * 70, greedy(3))]).values()
    assert output.cached_tokens == 0


def test_a_request_that_ended_by_a_fault_leaves_no_prefix() -> None:
    def change(visible: list[int], logits: Tensor) -> None:
        if len(visible) == 70:
            logits.fill_(float("nan"))

    engine = make_engine(model=FakeModel(change=change))
    for _ in range(2):
        [output] = drain(engine, [engine.make_request([20] * 70, greedy(20))]).values()
        assert output.finish_reason == "error"
        assert output.cached_tokens == 0


# ---- fairness -----------------------------------------------------------------------------------------


def test_long_prompts_never_keep_anybody_from_decoding() -> None:
    """Whatever waits, every decoding request gets a token a round, and a pass stays within its rows."""
    model = FakeModel()
    engine = make_engine(EngineConfig(max_num_seqs=6, max_num_rows=24, prefill_chunk=16), model=model)
    decoders = [engine.make_request([20 + index], greedy(40), req_id=f"d{index}") for index in range(3)]
    for request in decoders:
        engine.add_request(request)
    engine.step()
    for index in range(8):
        engine.add_request(engine.make_request([40 + index] * 150, greedy(1), req_id=f"p{index}"))
    model.passes.clear()
    for _ in range(30):
        emitted = {event.req_id for event in engine.step()}
        assert {"d0", "d1", "d2"} <= emitted
    assert max(map(sum, model.passes)) <= 24


def test_decoding_and_drafts_never_keep_a_prompt_from_getting_on() -> None:
    """Drafts want every row; the prompt still gets its quarter of each pass."""
    config = EngineConfig(max_num_seqs=5, max_num_rows=32, prefill_chunk=64)
    engine = make_engine(config, lambda _: RandomFull())
    for index in range(4):
        engine.add_request(
            engine.make_request(
                [20 + index], greedy(100), intent=NGram(num_speculative_tokens=50, adaptive=False)
            )
        )
    engine.step()
    engine.add_request(engine.make_request([40] * 160, greedy(1), req_id="prompt"))
    rounds = 0
    while all(event.req_id != "prompt" for event in engine.step()):
        rounds += 1
        usage = engine.take_round_costs()[-1]
        assert usage.num_prefill_rows == 8
        assert usage.proposed == 32 - 4 - 8, "drafts take what is left, and give way"
    assert rounds == 160 // 8 - 1


class RandomFull(RandomDrafts):
    """As many tokens as it may."""

    def __init__(self) -> None:
        super().__init__(1, VOCAB_SIZE)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains([[63] * budget for budget in budgets])


def test_rows_that_a_prompt_does_not_want_go_to_drafts() -> None:
    config = EngineConfig(max_num_seqs=2, max_num_rows=32, prefill_chunk=64)
    engine = make_engine(config, lambda _: RandomFull())
    engine.add_request(
        engine.make_request([20], greedy(100), intent=NGram(num_speculative_tokens=50, adaptive=False))
    )
    engine.step()
    engine.take_round_costs()
    engine.add_request(engine.make_request([40] * 2, greedy(1)))
    engine.step()
    [cost] = engine.take_round_costs()
    assert (cost.num_prefill_rows, cost.proposed) == (2, 32 - 1 - 2)


# ---- commits in batches -------------------------------------------------------------------------------


def test_a_batch_of_commits_that_fails_is_handed_over_one_by_one() -> None:
    class FailsForOne(RandomFull):
        committed: list[list[str]] = []  # noqa: RUF012

        def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
            self.committed.append([sequence.req_id for sequence in sequences])
            if any(s.req_id == "bad" and len(s.token_ids) > s.num_prompt + 3 for s in sequences):
                raise RuntimeError("a planted fault")

    proposer = FailsForOne()
    engine = make_engine(create=lambda _: proposer)
    requests = [
        engine.make_request([20 + index], greedy(12), intent=LOOKUP, req_id=req_id)
        for index, req_id in enumerate(["good", "bad", "fine"])
    ]
    outputs = drain(engine, requests)
    assert ["good", "bad", "fine"] in proposer.committed
    assert ["bad"] in proposer.committed
    assert "a planted fault" in (outputs["bad"].decision_reason or "")
    for request in requests:
        assert outputs[request.req_id].token_ids == alone(request).token_ids
        assert request.req_id == "bad" or outputs[request.req_id].decision_reason is None
