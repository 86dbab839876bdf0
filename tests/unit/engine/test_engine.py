"""The loop on a model that is a formula: what requests get, what faults do, what is counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal

import pytest
import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import Auto, NGram, NoSpeculation, Predicted, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.request import RequestOutput
from draftproof.kv.cache import KVCache
from draftproof.models.base import ForwardBatch
from draftproof.proposers.base import Proposer
from draftproof.proposers.registry import create_proposer
from support.fake_model import VOCAB_SIZE, FakeLoaded, FakeModel
from support.proposers import AlwaysRight, AlwaysWrong, Branching, Crashing, RandomDrafts

GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
SAMPLED = SamplingParams(temperature=1.0, max_tokens=20, seed=5)
PROMPT = [10, 11, 12, 13, 10, 11, 12]


def make_engine(
    config: EngineConfig | None = None,
    create: Callable[[SpeculationIntent], Proposer] = create_proposer,
    model: FakeModel | None = None,
) -> Engine:
    return Engine(FakeLoaded(model or FakeModel()), config or EngineConfig(), create)  # type: ignore[arg-type]


def plain(params: SamplingParams, prompt: list[int] = PROMPT) -> RequestOutput:
    return make_engine().generate([prompt], params)[0]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("double", ["right", "wrong", "random", "branching", "crashing"])
@pytest.mark.parametrize("depth", [1, 4, 24])
def test_text_and_counters_whatever_is_drafted(params: SamplingParams, double: str, depth: int) -> None:
    expected = plain(params)
    truth = {"r": expected.token_ids}
    proposer = {
        "right": AlwaysRight(truth),
        "wrong": AlwaysWrong(truth, VOCAB_SIZE),
        "random": RandomDrafts(1, VOCAB_SIZE),
        "branching": Branching(truth, 1, VOCAB_SIZE),
        "crashing": Crashing(1, VOCAB_SIZE),
    }[double]
    engine = make_engine(create=lambda _: proposer)
    request = engine.make_request(
        PROMPT, params, intent=NGram(adaptive=False, num_speculative_tokens=depth), req_id="r"
    )
    [output] = [event.finished for event in engine.stream([request]) if event.finished is not None]
    engine.check_idle()
    assert output.token_ids == expected.token_ids
    assert output.text == expected.text
    assert output.finish_reason == expected.finish_reason
    stats = output.stats
    num_decoded = len(output.token_ids) - 1  # the first comes from the prompt's pass
    assert stats.emitted == num_decoded
    assert stats.accepted + stats.rounds >= num_decoded
    if double == "wrong":
        assert stats.accepted == 0
        assert stats.rounds == num_decoded
        assert stats.proposed == sum(min(depth, num_decoded - 1 - done) for done in range(num_decoded))
    if double == "right" and output.finish_reason == "length":
        assert stats.accepted == stats.proposed
        assert stats.rounds == -(-num_decoded // (depth + 1))


def test_a_crash_is_told_and_costs_one_request_its_drafts() -> None:
    class CrashesForOne(RandomDrafts):
        def _chain(self, sequence, depth):  # type: ignore[no-untyped-def]
            if sequence.req_id == "bad":
                raise RuntimeError("a planted fault")
            return super()._chain(sequence, depth)

    engine = make_engine(create=lambda _: CrashesForOne(1, VOCAB_SIZE))
    requests = [
        engine.make_request(PROMPT, GREEDY, intent=NGram(adaptive=False), req_id=req_id)
        for req_id in ("good", "bad", "fine")
    ]
    outputs = {e.req_id: e.finished for e in engine.stream(requests) if e.finished is not None}
    assert {output.token_ids for output in outputs.values()} == {plain(GREEDY).token_ids}
    assert outputs["bad"].stats.proposed == 0
    assert "a planted fault" in (outputs["bad"].decision_reason or "")
    for req_id in ("good", "fine"):
        assert outputs[req_id].stats.proposed > 0
        assert outputs[req_id].decision_reason is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "intent", [NoSpeculation(), Auto(), NGram(prompt_lookup_min=1)], ids=lambda i: i.method
)
def test_broken_logits_end_that_request_where_plain_decoding_would(
    value: float, intent: SpeculationIntent
) -> None:
    reference = plain(GREEDY).token_ids
    broken_at = [*PROMPT, *reference[:7]]

    def change(visible: list[int], logits: Tensor) -> None:
        if visible == broken_at:
            logits[3] = value

    engine = make_engine(model=FakeModel(change=change))
    others = [engine.make_request([20 + index, 21], GREEDY, intent=intent) for index in range(2)]
    victim = engine.make_request(PROMPT, GREEDY, intent=intent, prediction=list(reference), req_id="victim")
    outputs = {
        e.req_id: e.finished for e in engine.stream([others[0], victim, others[1]]) if e.finished is not None
    }
    engine.check_idle()
    assert outputs["victim"].finish_reason == "error"
    assert outputs["victim"].error is not None
    assert outputs["victim"].error["code"] == "DP501"
    assert outputs["victim"].token_ids == reference[:7]
    for request in others:
        assert outputs[request.req_id].token_ids == plain(GREEDY, list(request.prompt_token_ids)).token_ids


def test_broken_logits_behind_a_rejected_draft_do_not_exist() -> None:
    reference = plain(GREEDY).token_ids

    def change(visible: list[int], logits: Tensor) -> None:
        if (
            len(visible) > len(PROMPT)
            and tuple(visible[len(PROMPT) :]) != reference[: len(visible) - len(PROMPT)]
        ):
            logits.fill_(float("nan"))

    engine = make_engine(
        model=FakeModel(change=change), create=lambda _: AlwaysWrong({"r": reference}, VOCAB_SIZE)
    )
    request = engine.make_request(PROMPT, GREEDY, intent=NGram(adaptive=False), req_id="r")
    [output] = [e.finished for e in engine.stream([request]) if e.finished is not None]
    assert output.token_ids == reference


def test_parameters_that_leave_no_token_end_the_request_with_the_reason() -> None:
    params = SamplingParams(
        temperature=0.0, max_tokens=5, allowed_token_ids=frozenset({9}), bad_token_sequences=((9, 9),)
    )
    [output] = make_engine().generate([PROMPT], params, intent=NGram(adaptive=False))
    assert output.finish_reason == "error"
    assert output.error is not None
    assert output.error["code"] == "DP202"
    assert output.token_ids == (9,)


def test_abort_frees_everything_waiting_or_running() -> None:
    engine = make_engine(EngineConfig(max_num_seqs=1))
    for req_id in ("running", "waiting"):
        engine.add_request(engine.make_request(PROMPT, GREEDY, intent=Auto(), req_id=req_id))
    for _ in range(3):
        engine.step()
    running, waiting = engine.abort("running"), engine.abort("waiting")
    assert running is not None
    assert waiting is not None
    assert (running.finish_reason, waiting.finish_reason) == ("abort", "abort")
    assert running.token_ids == plain(GREEDY).token_ids[: len(running.token_ids)] != ()
    assert waiting.token_ids == ()
    assert engine.abort("running") is None
    engine.check_idle()


def test_a_caller_who_stops_listening_leaves_nothing_behind() -> None:
    engine = make_engine()
    events = engine.stream([engine.make_request(PROMPT, GREEDY, intent=Auto()) for _ in range(3)])
    next(events)
    events.close()  # type: ignore[attr-defined]
    engine.check_idle()


def test_first_come_first_served_and_bounded() -> None:
    model = FakeModel()
    config = EngineConfig(max_num_seqs=2, max_num_rows=8, prefill_chunk=5)
    engine = make_engine(config, model=model)
    model.passes.clear()
    requests = [engine.make_request([20 + index] * 11, GREEDY, req_id=str(index)) for index in range(5)]
    finished = [event.req_id for event in engine.stream(requests) if event.finished is not None]
    assert finished == [str(index) for index in range(5)]
    assert max(len(rows) for rows in model.passes) == 2
    assert max(sum(rows) for rows in model.passes) <= 8


def test_a_long_prompt_does_not_stop_others_from_decoding() -> None:
    engine = make_engine(EngineConfig(max_num_seqs=4, max_num_rows=16, prefill_chunk=8))
    first = engine.make_request(
        PROMPT, GREEDY, intent=NGram(adaptive=False, prompt_lookup_min=1), req_id="first"
    )
    engine.add_request(first)
    engine.step()
    engine.add_request(engine.make_request([30] * 200, GREEDY, req_id="long"))
    progress = {"first": 0, "long": 0}
    for _ in range(10):
        for event in engine.step():
            progress[event.req_id] += 1
    assert progress["first"] == 10
    assert progress["long"] == 0
    long = engine._scheduler.get("long")
    assert long is not None
    assert long.num_computed >= 40, "the prompt gets on as well"


def test_waiting_for_memory_then_running() -> None:
    block_bytes = 1 * 2 * 1 * 32 * 8 * 4
    engine = make_engine(EngineConfig(cache_bytes=3 * block_bytes))
    outputs = engine.generate([[20 + index] * 30 for index in range(4)], GREEDY, intent=NGram(adaptive=False))
    assert [output.finish_reason for output in outputs] == ["length"] * 4
    engine.check_idle()
    with pytest.raises(DraftproofError, match="DP305"):
        engine.generate([[20] * 90], GREEDY)
    with pytest.raises(DraftproofError, match="DP701"):
        make_engine(EngineConfig(cache_bytes=block_bytes - 1))


@pytest.mark.parametrize(
    ("prompt", "params", "code"),
    [
        ([], GREEDY, "DP301"),
        ([5] * 256, GREEDY, "DP302"),
        ([VOCAB_SIZE], GREEDY, "DP303"),
        ([-1], GREEDY, "DP303"),
        ([5], SamplingParams(logit_bias={VOCAB_SIZE: 1.0}), "DP303"),
    ],
)
def test_requests_that_can_never_run_are_refused_and_leave_nothing(
    prompt: list[int], params: SamplingParams, code: str
) -> None:
    engine = make_engine()
    with pytest.raises(DraftproofError) as error:
        engine.generate([PROMPT, prompt], params if code == "DP303" else GREEDY)
    assert error.value.code == code
    engine.check_idle()


@pytest.mark.parametrize(("max_model_len", "told"), [(None, False), (64, True)])
def test_a_context_that_was_shortened_is_said_to_be(max_model_len: int | None, told: bool) -> None:
    with pytest.raises(DraftproofError, match="DP302") as error:
        make_engine(EngineConfig(max_model_len=max_model_len)).generate([[5] * 256], GREEDY)
    assert ("--max-model-len" in error.value.remedy) == told


def test_predicted_without_a_prediction() -> None:
    with pytest.raises(DraftproofError) as error:
        make_engine().generate([PROMPT], GREEDY, intent=Predicted())
    assert error.value.code == "DP106"
    [output] = make_engine(EngineConfig(on_unfit="plain")).generate([PROMPT], GREEDY, intent=Predicted())
    assert output.token_ids == plain(GREEDY).token_ids
    assert "prediction" in (output.decision_reason or "")


def test_a_seed_is_always_named_and_repeats_the_text() -> None:
    unseeded = SamplingParams(temperature=1.0, max_tokens=20)
    first, second = make_engine().generate([PROMPT, PROMPT], unseeded, intent=Auto())
    assert first.seed != second.seed
    [again] = make_engine().generate(
        [PROMPT], SamplingParams(temperature=1.0, max_tokens=20, seed=first.seed)
    )
    assert again.token_ids == first.token_ids


def test_context_end_is_length() -> None:
    params = SamplingParams(temperature=0.0, ignore_eos=True)
    engine = make_engine(EngineConfig(max_model_len=40))
    for intent in (NoSpeculation(), NGram(num_speculative_tokens=24, prompt_lookup_min=1)):
        [output] = engine.generate([PROMPT], params, intent=intent)
        assert len(PROMPT) + len(output.token_ids) == 40
        assert output.finish_reason == "length"


BREAKS = {
    "rows of a pass": lambda model, batch: batch.token_ids.shape[0] > 1,
    "many rows of a pass": lambda model, batch: batch.token_ids.shape[0] > 32,
    "another sequence": lambda model, batch: len(batch.segments) > 1,
    "siblings": lambda model, batch: batch.segments[0].parent_rows is not None,
    "the chunk that stored earlier rows": lambda model, batch: model.passes[model.begun_at][0],
}


@pytest.mark.parametrize("kind", BREAKS)
def test_the_self_test_sees_a_model_whose_rows_depend_on(kind: str) -> None:
    class Dependent(FakeModel):
        begun_at = 0
        """The pass that stored the first token."""

        def forward(self, batch, cache):  # type: ignore[no-untyped-def]
            logits = super().forward(batch, cache)
            if batch.segments[0].context_len == 0:
                self.begun_at = len(self.passes) - 1
            return logits * (1 + 1e-6 * BREAKS[kind](self, batch))

    assert make_engine().selftest.promise
    broken = make_engine(model=Dependent())
    assert not broken.selftest.promise
    assert broken.describe()["exactness"]["promise"] is False


def test_costs_add_up() -> None:
    engine = make_engine(EngineConfig(prefill_chunk=3))
    outputs = engine.generate(
        [PROMPT, PROMPT[::-1]], GREEDY, intent=NGram(adaptive=False, prompt_lookup_min=1)
    )
    costs = engine.take_round_costs()
    assert engine.take_round_costs() == []
    stats = [output.stats for output in outputs]
    assert sum(cost.proposed for cost in costs) == sum(s.proposed for s in stats) > 0
    assert sum(cost.accepted for cost in costs) == sum(s.accepted for s in stats)
    assert sum(cost.emitted for cost in costs) == sum(s.emitted for s in stats)
    assert sum(cost.num_prefill_rows for cost in costs) == 2 * len(PROMPT)
    decode_s = sum(cost.verify_s for cost in costs)
    assert decode_s == pytest.approx(sum(s.verify_s for s in stats))
    assert all(min(c.draft_s, c.verify_s, c.prefill_s, c.coordination_s) >= 0 for c in costs)


class CountingThreads(FakeModel):
    """Notes how many threads PyTorch may use in a pass and, asked to, fails in it."""

    def __init__(self, kernels: Literal["native", "python"]) -> None:
        super().__init__()
        self.kernels = kernels
        self.fails = False
        self.seen: set[int] = set()

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        self.seen.add(torch.get_num_threads())
        if self.fails:
            raise RuntimeError("planted")
        return super().forward(batch, cache)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("kernels", "in_pass"), [("native", 1), ("python", 3)])
def test_pytorch_has_no_threads_beside_those_of_the_kernels(
    kernels: Literal["native", "python"], in_pass: int, fails: bool
) -> None:
    """Whatever becomes of the round, the caller's setting is back behind it."""
    model = CountingThreads(kernels)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        engine = make_engine(model=model)
        model.seen.clear()  # of the self-test at start
        model.fails = fails
        with pytest.raises(RuntimeError, match="planted") if fails else nullcontext():
            engine.generate([PROMPT], SAMPLED)
        assert model.seen == {in_pass}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
