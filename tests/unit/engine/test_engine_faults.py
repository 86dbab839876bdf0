"""What goes wrong around one request stays with that request: malformed drafts, faulty parts, callers' mistakes."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import Cascade, NGram, NoSpeculation, Predicted, SpeculationIntent
from draftproof.core.objective import Slo
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.request import Request, RequestOutput
from draftproof.engine.scheduler import _fair_shares
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.guard import check_drafts
from draftproof.proposers.registry import create_proposer
from support.ctrl_c import CtrlC, CtrlCAtCall
from support.fake_model import VOCAB_SIZE, FakeLoaded, FakeModel
from support.proposers import RandomDrafts

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
PROMPT = [10, 11, 12, 13, 10, 11, 12]


def make_engine(
    create: Callable[[SpeculationIntent], Proposer] = create_proposer, config: EngineConfig | None = None
) -> Engine:
    return Engine(FakeLoaded(FakeModel()), config or EngineConfig(), create)  # type: ignore[arg-type]


def outputs_of(engine: Engine, requests: Sequence[Request]) -> dict[str, RequestOutput]:
    return {e.req_id: e.finished for e in engine.stream(requests) if e.finished is not None}


def batch_of(tokens: list[int], parents: list[int], q: torch.Tensor | None = None) -> DraftBatch:
    drawn = q is not None
    return DraftBatch(
        tokens=torch.tensor(tokens),
        parent_rows=torch.tensor(parents),
        node_offsets=torch.tensor([0, len(tokens)]),
        is_point_mass=torch.full((len(tokens),), not drawn),
        q_rows=torch.zeros(len(tokens), dtype=torch.int64),
        q=q if q is not None else torch.zeros((0, 0), dtype=torch.float64),
    )


def one_hot(token: int, size: int = VOCAB_SIZE) -> torch.Tensor:
    q = torch.zeros((1, size), dtype=torch.float64)
    q[0, token] = 1.0
    return q


MALFORMED = {
    "parent behind its child": batch_of([5], [5]),
    "negative parent": batch_of([5], [-1]),
    "outside the vocabulary": batch_of([VOCAB_SIZE], [0]),
    "negative token": batch_of([-1], [0]),
    "too many nodes": batch_of([5] * 50, list(range(50))),
    "q without the drawn token": batch_of([5], [0], one_hot(6)),
    "q of another width": batch_of([5], [0], one_hot(5, VOCAB_SIZE + 1)),
    "q with NaN": batch_of([5], [0], one_hot(5) * float("nan")),
    "nothing for a request": DraftBatch.chains([]),
    "more requests than asked for": DraftBatch.chains([[5], [5], [5]]),
}


class Malformed(RandomDrafts):
    """Drafts well for two rounds, then what it was given."""

    name = "malformed"

    def __init__(self, batch: DraftBatch) -> None:
        super().__init__(1, VOCAB_SIZE)
        self._batch = batch

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        if any(s.req_id == "bad" and len(s.token_ids) > s.num_prompt + 2 for s in sequences):
            return self._batch
        return super().propose(sequences, budgets)


@pytest.mark.parametrize("name", list(MALFORMED))
def test_a_malformed_draft_costs_its_request_the_drafts(name: str) -> None:
    engine = make_engine(lambda _: Malformed(MALFORMED[name]))
    requests = [
        engine.make_request(PROMPT, GREEDY, intent=NGram(adaptive=False), req_id=r) for r in ("good", "bad")
    ]
    outputs = outputs_of(engine, requests)
    engine.check_idle()
    expected = make_engine().generate([PROMPT], GREEDY)[0].token_ids
    assert {output.token_ids for output in outputs.values()} == {expected}
    assert "ValueError" in (outputs["bad"].decision_reason or "")
    assert outputs["good"].decision_reason is None


def test_block_verification_takes_no_trees() -> None:
    tree = batch_of([5, 6], [0, 0])
    check_drafts(tree, [2], [False], VOCAB_SIZE)
    with pytest.raises(ValueError, match="parent row"):
        check_drafts(tree, [2], [True], VOCAB_SIZE)


def test_a_proposer_that_cannot_be_made_leaves_nothing_queued() -> None:
    def create(intent: SpeculationIntent) -> Proposer:
        raise DraftproofError("DP106", "speculation.method", "x", "y", "z")

    engine = make_engine(create)
    with pytest.raises(DraftproofError, match="DP106"):
        engine.generate([PROMPT], GREEDY, intent=NGram(adaptive=False))
    engine.check_idle()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"prompt": None}, "DP303"),
        ({"prompt": 7}, "DP303"),
        ({"prompt": b"bytes"}, "DP303"),
        ({"prompt": [1.0, 2.0]}, "DP303"),
        ({"prompt": [True]}, "DP303"),
        ({"prompt": [[1, 2]]}, "DP303"),
        ({"prompt": torch.tensor([1.5])}, "DP303"),
        ({"prediction": [None]}, "DP303"),
        ({"prediction": 3}, "DP303"),
        ({"intent": "auto"}, "DP103"),
        ({"intent": {"method": "autto"}}, "DP101"),
        ({"intent": 4}, "DP103"),
        ({"intent": NGram}, "DP103"),
        ({"params": {"temperature": 0}}, "DP201"),
        ({"params": SamplingParams}, "DP201"),
        ({"req_id": 5}, "DP308"),
        ({"req_id": ["x"]}, "DP308"),
        ({"scope": None}, "DP308"),
        ({"scope": b"key"}, "DP308"),
        ({"priority": "high"}, "DP308"),
        ({"priority": None}, "DP308"),
        ({"priority": float("nan")}, "DP308"),
        ({"priority": True}, "DP308"),
    ],
)
def test_what_a_libraries_user_mistakes_has_a_code(arguments: dict[str, object], code: str) -> None:
    engine = make_engine()
    with pytest.raises(DraftproofError) as caught:
        engine.make_request(**({"prompt": PROMPT} | arguments))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not engine.has_work


@pytest.mark.parametrize(
    "mistake",
    [
        {"scope": None},
        {"priority": "high"},
        {"priority": None},
        {"req_id": 5},
        {"params": None},
        {"intent": "auto"},
        {"prompt_token_ids": ()},
    ],
)
def test_a_request_that_is_refused_leaves_the_engine_as_it_was(mistake: dict[str, Any]) -> None:
    """Requests may be made without `make_request`. Others that wait go on to their end."""
    engine = make_engine(config=EngineConfig(max_num_seqs=1))
    for req_id in ("first", "second"):
        engine.add_request(engine.make_request(PROMPT, GREEDY, intent=NGram(), req_id=req_id))
    fields = {"req_id": "bad", "prompt_token_ids": tuple(PROMPT), "params": GREEDY, "intent": NGram()}
    with pytest.raises(DraftproofError):
        engine.add_request(Request(**(fields | mistake)))
    finished = []
    while engine.has_work:
        finished += [event.req_id for event in engine.step() if event.finished is not None]
    assert finished == ["first", "second"]
    engine.check_idle()


@pytest.mark.parametrize(
    "mistake",
    [
        {"objective": "fast"},
        {"on_unfit": "ignore"},
        {"speculation": {"method": "auto"}},
        {"speculation": "auto"},
        {"prefix_caching": "no"},
        {"prefix_caching": 1},
        {"slo": "tpot=50ms"},
        {"max_num_seqs": 1.0},
    ],
)
def test_a_configuration_of_other_types_or_values_is_refused(mistake: dict[str, Any]) -> None:
    with pytest.raises(DraftproofError, match=f"DP001 {next(iter(mistake))}"):
        EngineConfig(**mistake)


@pytest.mark.parametrize("bound", [0, -1.0, float("nan"), float("inf"), "50ms", True])
def test_a_service_level_without_a_time_is_refused(bound: Any) -> None:
    with pytest.raises(DraftproofError, match=r"DP001 slo\.tpot_s"):
        Slo(tpot_s=bound)


@pytest.mark.parametrize("prompts", ["one text", ["a"], [PROMPT]])
def test_one_text_is_no_list_and_predictions_belong_to_prompts(prompts: object) -> None:
    with pytest.raises(DraftproofError, match="DP303"):
        make_engine().generate(prompts, GREEDY, predictions="two" if prompts == ["a"] else [[1], [2]])  # type: ignore[arg-type]


def test_whole_numbers_of_any_kind_are_token_ids() -> None:
    engine = make_engine()
    request = engine.make_request(np.array(PROMPT), GREEDY, intent='{"method": "ngram"}', prediction=(1, 2))  # type: ignore[arg-type]
    assert request.prompt_token_ids == tuple(PROMPT)
    assert all(type(token_id) is int for token_id in request.prompt_token_ids)
    assert request.intent == NGram()


def test_an_id_can_be_used_once_at_a_time() -> None:
    engine = make_engine()
    engine.add_request(engine.make_request(PROMPT, GREEDY, req_id="x"))
    with pytest.raises(DraftproofError, match="DP306"):
        engine.add_request(engine.make_request(PROMPT, GREEDY, req_id="x"))
    engine.abort("x")
    assert (
        outputs_of(engine, [engine.make_request(PROMPT, GREEDY, req_id="x")])["x"].finish_reason == "length"
    )


def test_a_decoder_that_fails_ends_its_request_alone() -> None:
    engine = make_engine()
    decode = engine.tokenizer.decode
    victim = engine.make_request(
        PROMPT, GREEDY, intent=NGram(adaptive=False, prompt_lookup_min=1), req_id="victim"
    )
    fatal = make_engine().generate([PROMPT], GREEDY)[0].token_ids[5]

    def fails(token_ids: list[int]) -> str:
        if fatal in token_ids:
            raise RuntimeError("a planted fault")
        return decode(token_ids)

    engine.tokenizer.decode = fails  # type: ignore[method-assign,assignment]
    with_logprobs = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=1)
    other = engine.make_request([20, 21], GREEDY, req_id="other")
    second = engine.make_request(PROMPT, with_logprobs, req_id="second")
    outputs = outputs_of(engine, [victim, other, second])
    engine.check_idle()
    for req_id in ("victim", "second"):
        assert outputs[req_id].finish_reason == "error"
        assert (outputs[req_id].error or {})["code"] == "DP901"
    expected = make_engine().generate([[20, 21]], GREEDY)[0].token_ids
    assert fatal not in expected
    assert outputs["other"].token_ids == expected


def test_events_reach_their_stream_whoever_steps_or_aborts() -> None:
    engine = make_engine()
    first = engine.stream([engine.make_request(PROMPT, GREEDY, req_id="first")])
    second = engine.stream([engine.make_request([20, 21], GREEDY, req_id="second")])
    events = {"first": [next(first)], "second": [next(second)]}
    events["first"].extend(first)  # drives the second to its end as well
    events["second"].extend(second)
    for req_id, seen in events.items():
        assert seen[-1].finished is not None
        assert tuple(t for event in seen for t in event.token_ids) == seen[-1].finished.token_ids, req_id
    aborted = []
    for event in engine.stream([engine.make_request(PROMPT, GREEDY, req_id="third")]):
        aborted.append(event)
        engine.abort("third")
    assert aborted[-1].finished is not None
    assert aborted[-1].finished.finish_reason == "abort"
    engine.check_idle()


@pytest.mark.parametrize("where", ["_commit", "_end", "_let_proposers_follow", "_tell"])
def test_an_engine_serves_on_after_ctrl_c(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted anywhere in the part of a round in which requests end."""
    engine = make_engine()
    prompts = [[*PROMPT, last] for last in range(3)]
    expected = [output.token_ids for output in make_engine().generate(prompts, GREEDY)]
    inner = getattr(engine, where)
    for at in range(1, 4 + GREEDY.max_tokens):  # type: ignore[operator]
        calls = itertools.count(1)

        def interrupted(*args: Any, calls: Iterator[int] = calls, at: int = at) -> Any:
            if next(calls) == at:
                raise KeyboardInterrupt
            return inner(*args)

        monkeypatch.setattr(engine, where, interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            engine.generate(prompts, GREEDY, intent=NGram(prompt_lookup_min=1))
        engine.check_idle()
    monkeypatch.setattr(engine, where, inner)
    assert [output.token_ids for output in engine.generate(prompts, GREEDY)] == expected


def _steps(engine: Engine, requests: Sequence[Request]) -> dict[str, tuple[int, ...]]:
    """Tokens as events bring them to a caller who goes on after every Ctrl-C."""
    seen: dict[str, tuple[int, ...]] = {}
    left = list(requests)
    while left or engine.has_work:
        try:
            while left:
                engine.add_request(left[0])
                left.pop(0)
            for event in engine.step():
                seen[event.req_id] = seen.get(event.req_id, ()) + event.token_ids
                assert event.finished is None or event.finished.token_ids == seen[event.req_id]
        except KeyboardInterrupt:
            left = [request for request in left if engine._scheduler.get(request.req_id) is None]
    return seen


def test_a_caller_who_steps_on_after_ctrl_c_loses_nothing() -> None:
    """Interrupted at any line of the package, within a round and between rounds, with and without a stream."""
    intent = Cascade(proposers=(NGram(prompt_lookup_min=1), Predicted()), adaptive=False)
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True, logprobs=1)
    engine = make_engine(config=EngineConfig(max_num_seqs=2))
    ids = count()

    def requests() -> list[Request]:
        return [
            engine.make_request([*PROMPT, last], params, intent=intent, req_id=f"{next(ids)}")
            for last in range(3)
        ]

    expected = [o.token_ids for o in outputs_of(engine, requests()).values()]
    at, sent = 1, True
    while sent:
        asked = requests()
        with CtrlC(at) as ctrl_c:
            seen = _steps(engine, asked)
        assert [seen[request.req_id] for request in asked] == expected, at
        engine.check_idle()
        with CtrlC(at), contextlib.suppress(KeyboardInterrupt):
            outputs_of(engine, requests())
        engine.check_idle()
        at, sent = at + 149, ctrl_c.was_sent


def test_ctrl_c_in_any_call_of_a_step_loses_no_event() -> None:
    """Also on the way out, where the round is done and the interruption may be raised."""
    params = replace(GREEDY, max_tokens=2)
    engine = make_engine()
    expected = engine.generate([PROMPT], params)[0].token_ids
    at, sent = 1, True
    while sent:
        engine.add_request(engine.make_request(PROMPT, params, intent=NoSpeculation()))
        seen: tuple[int, ...] = ()
        ctrl_c = CtrlCAtCall(at)
        while engine.has_work:
            with contextlib.suppress(KeyboardInterrupt):
                with ctrl_c:
                    events = engine.step()
                seen += tuple(token for event in events for token in event.token_ids)
        assert seen == expected, at
        engine.check_idle()
        at, sent = at + 1, ctrl_c.was_sent


@pytest.mark.parametrize("call", ["add_request", "abort", "step", "generate", "a stream ends"])
def test_a_call_from_within_a_round_is_refused(call: str) -> None:
    """As a signal's handler makes it, or a generator that is collected, whose request is aborted after the round."""
    refused: list[str] = []
    calls: list[Callable[[], object]] = []

    class CallsBack(FakeModel):
        def forward(self, batch: Any, cache: Any) -> torch.Tensor:
            if calls:
                try:
                    calls.pop()()
                except DraftproofError as error:
                    refused.append(error.code)
            return super().forward(batch, cache)

    engine = Engine(FakeLoaded(CallsBack()), EngineConfig(), create_proposer)  # type: ignore[arg-type]
    request = engine.make_request(PROMPT, GREEDY)
    stream = engine.stream([engine.make_request([20, 21], GREEDY, req_id="streamed")])
    next(stream)
    calls.append(
        {
            "add_request": lambda: engine.add_request(request),
            "abort": lambda: engine.abort("streamed"),
            "step": engine.step,
            "generate": lambda: engine.generate([PROMPT], GREEDY),
            "a stream ends": stream.close,
        }[call]
    )
    engine.step()
    assert refused == ([] if call == "a stream ends" else ["DP309"])
    assert (engine._scheduler.get("streamed") is None) == (call == "a stream ends")
    stream.close()
    engine.check_idle()


def test_plain_requests_pay_for_no_drafts() -> None:
    engine = make_engine()
    requests = [
        engine.make_request(PROMPT, GREEDY, intent=NoSpeculation(), req_id="plain"),
        engine.make_request(
            PROMPT, GREEDY, intent=NGram(adaptive=False, prompt_lookup_min=1), req_id="ngram"
        ),
    ]
    outputs = outputs_of(engine, requests)
    assert outputs["plain"].stats.draft_s == 0
    assert outputs["ngram"].stats.draft_s > 0


def test_what_the_user_should_know_of_a_prediction() -> None:
    engine = make_engine()
    cascade = Cascade(proposers=(Predicted(), NGram()), adaptive=False)
    cases: list[tuple[SpeculationIntent, list[int], str | None]] = [
        (cascade, [], None),
        (cascade, PROMPT, None),
        (NGram(), PROMPT, "not used"),
        (NoSpeculation(), PROMPT, "not used"),
    ]
    for intent, prediction, told in cases:
        request = engine.make_request(PROMPT, GREEDY, intent=intent, prediction=prediction, req_id="r")
        reason = outputs_of(engine, [request])["r"].decision_reason
        assert (reason is None) == (told is None)
        assert told is None or told in (reason or "")
    with pytest.raises(DraftproofError, match="DP106"):
        engine.generate([PROMPT], GREEDY, intent=Cascade(proposers=(Predicted(),)))


def test_limits_that_cannot_be_met_are_said() -> None:
    with pytest.raises(DraftproofError, match="max_model_len"):
        make_engine(config=EngineConfig(max_model_len=100_000))
    with pytest.raises(DraftproofError, match="min_tokens"):
        make_engine().generate([[5] * 250], SamplingParams(min_tokens=20, max_tokens=30))
    with pytest.raises(DraftproofError, match=r"max_num_rows.*400 requests of max_num_seqs"):
        EngineConfig(max_num_seqs=400)
    with pytest.raises(DraftproofError, match=r"memory: found '4GiB'.*4 GiB are 4 \* 2\*\*30"):
        EngineConfig(memory="4GiB")  # type: ignore[arg-type]
    block_bytes = 1 * 2 * 1 * 32 * 8 * 4
    small = make_engine(config=EngineConfig(cache_bytes=2 * block_bytes))
    [output] = small.generate(
        [PROMPT], SamplingParams(temperature=0.0, ignore_eos=True), intent=NGram(adaptive=False)
    )
    assert output.finish_reason == "length"
    assert len(PROMPT) + len(output.token_ids) == 64


def test_the_engines_own_configuration_holds_for_requests_that_name_none() -> None:
    engine = make_engine(config=EngineConfig(speculation=NGram(adaptive=False, prompt_lookup_min=1)))
    request = Request(req_id="r", prompt_token_ids=tuple(PROMPT), params=GREEDY)
    assert outputs_of(engine, [request])["r"].stats.proposed > 0


@pytest.mark.parametrize(
    ("wanted", "available", "shares"),
    [
        ([5, 5], 20, [5, 5]),
        ([128] * 4, 16, [4, 4, 4, 4]),
        ([0, 100, 2], 10, [0, 8, 2]),
        ([3, 3], -1, [0, 0]),
        ([], 4, []),
    ],
)
def test_fair_shares(wanted: list[int], available: int, shares: list[int]) -> None:
    assert _fair_shares(wanted, available) == shares


@pytest.mark.parametrize("verification", ["rejection", "block", "coupled"])
def test_sampled_text_has_the_targets_distribution_under_every_rule(verification: str) -> None:
    """First two tokens of many seeded requests, drafted at random, against the exact distribution.

    Chi-square over the cells that are expected at least five times; the threshold is the 99.9 % point
    (Wilson & Hilferty 1931), and seeds are fixed, so the test is deterministic.
    """
    num_requests = 1500
    engine = make_engine(lambda _: RandomDrafts(3, VOCAB_SIZE), EngineConfig(max_num_seqs=32))
    intent = NGram(num_speculative_tokens=4, verification=verification)  # type: ignore[arg-type]
    prompt = [20, 21, 22]
    requests = [
        engine.make_request(
            prompt,
            SamplingParams(temperature=0.7, top_k=4, max_tokens=3, ignore_eos=True, seed=seed),
            intent=intent,
            req_id=str(seed),
        )
        for seed in range(num_requests)
    ]
    found = Counter(output.token_ids[1:3] for output in outputs_of(engine, requests).values())
    model = FakeModel()

    def distribution(tokens: list[int]) -> dict[int, float]:
        logits = model._logits(tokens, len(tokens) - 1).double() / 0.7
        best = torch.topk(logits, 4).indices
        return dict(zip(best.tolist(), torch.softmax(logits[best], 0).tolist(), strict=True))

    expected: Counter[tuple[int, ...]] = Counter()
    for first, p_first in distribution(prompt).items():
        for second, p_second in distribution([*prompt, first]).items():
            for third, p_third in distribution([*prompt, first, second]).items():
                expected[second, third] += p_first * p_second * p_third * num_requests  # type: ignore[assignment]
    assert set(found) <= set(expected)
    cells = [cell for cell, count in expected.items() if count >= 5]
    chi_square = sum((found[cell] - expected[cell]) ** 2 / expected[cell] for cell in cells)
    degrees = len(cells)
    assert degrees >= 8
    assert chi_square < degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3


@pytest.mark.parametrize("call", ["add_request", "abort", "step", "generate"])
def test_a_call_while_another_thread_is_in_one_is_refused_and_changes_nothing(call: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Waits(FakeModel):
        def forward(self, batch: Any, cache: Any) -> torch.Tensor:
            if threading.current_thread() is driver:
                inside.set()
                assert go_on.wait(60)
            return super().forward(batch, cache)

    driver = threading.Thread(target=lambda: outputs.update(outputs_of(engine, [request])))
    outputs: dict[str, RequestOutput] = {}
    engine = Engine(FakeLoaded(Waits()), EngineConfig(), create_proposer)  # type: ignore[arg-type]
    request = engine.make_request(PROMPT, GREEDY)
    late = engine.make_request(PROMPT, GREEDY)
    driver.start()
    assert inside.wait(60)
    with pytest.raises(DraftproofError) as raised:
        {
            "add_request": lambda: engine.add_request(late),
            "abort": lambda: engine.abort(request.req_id),
            "step": engine.step,
            "generate": lambda: engine.generate([PROMPT], GREEDY),
        }[call]()
    go_on.set()
    driver.join(60)
    assert raised.value.code == "DP309"
    assert outputs[request.req_id].token_ids == make_engine().generate([PROMPT], GREEDY)[0].token_ids
    engine.check_idle()
