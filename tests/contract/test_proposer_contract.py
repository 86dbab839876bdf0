"""What every proposer in the registry owes the engine, whatever it drafts from.

Requests come, draft, are cut, end in any order. A new method is added to `INTENTS` and must pass unchanged.
"""

from __future__ import annotations

import functools
import gc
import io
import pickle
import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from draftproof.core.intent import (
    Auto,
    Cascade,
    DraftModel,
    NGram,
    NoSpeculation,
    Predicted,
    SelfDraft,
    SpeculationIntent,
    Suffix,
)
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.loading import LoadedModel, load_model
from draftproof.ops.draft_batch import DraftBatch
from draftproof.ops.sampling import SamplingState
from draftproof.proposers import registry
from draftproof.proposers.base import DraftsChains, HasSources, Offer, Proposer, ReadsText, SequenceView
from draftproof.proposers.drafter import Drafter
from draftproof.proposers.look_up import LookUpProposer, library
from draftproof.proposers.registry import METHODS
from draftproof.proposers.resources import Resources
from draftproof.verify.types import Verdict
from support.checkpoints import write_checkpoint
from support.specs import Spec

TARGET = Spec(layers=1, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=16, vocab=384)
DRAFTER = Spec(layers=1, hidden=16, intermediate=32, heads=1, kv_heads=1, head_dim=16, vocab=384, seed=1)
MODELS = Path(tempfile.mkdtemp())
NUM_BLOCKS_OF_A_VIEW = 8

INTENTS: dict[str, SpeculationIntent] = {
    "ngram": NGram(),
    "ngram-one": NGram(prompt_lookup_min=1, prompt_lookup_max=1, num_speculative_tokens=3),
    "suffix": Suffix(),
    "suffix-small-pool": Suffix(suffix_decoding_max_cached_requests=2, suffix_decoding_max_spec_factor=4.0),
    "suffix-no-pool": Suffix(suffix_decoding_max_cached_requests=0),
    "predicted": Predicted(),
    "draft_model": DraftModel(model=str(MODELS / "drafter"), num_speculative_tokens=8),
    "draft_model-other-vocabulary": DraftModel(model=str(MODELS / "other"), num_speculative_tokens=3),
    "self": SelfDraft(),
    "cascade": Cascade(proposers=(Predicted(), NGram(num_speculative_tokens=5))),
    "cascade-models": Cascade(
        proposers=(NGram(prompt_lookup_min=3), DraftModel(model=str(MODELS / "drafter")), SelfDraft())
    ),
    "auto": Auto(),
    "auto-model": Auto(model=str(MODELS / "drafter")),
}
ALPHABET = 4
GREEDY = SamplingParams(temperature=0.0)
tokens = st.integers(0, ALPHABET - 1)
names = pytest.mark.parametrize("name", sorted(INTENTS))


def _in_scope(token: int, scope: str) -> int:
    """Half of the alphabet is common to all scopes, so that they match; the rest shows where a token is from."""
    return token if token < ALPHABET // 2 else token + 100 * len(scope)


@functools.cache
def resources() -> Resources:
    """Those of an engine on a tiny model, made once; drafters stay loaded."""
    write_checkpoint(MODELS / "target", TARGET)
    write_checkpoint(MODELS / "drafter", DRAFTER)
    write_checkpoint(MODELS / "other", DRAFTER, vocab=300)
    config = EngineConfig(max_num_seqs=16)
    found = Engine(load_model(MODELS / "target", dtype="float32"), config).resources
    found.cache.data.zero_()
    found.load = functools.cache(load_model)
    return found


def create_proposer(intent: SpeculationIntent) -> Proposer:
    return registry.create_proposer(intent, resources())


@pytest.fixture(params=["compiled", "python"], autouse=True)
def look_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds for look-up in C++ and in Python."""
    which: str = request.param
    if which == "python":
        monkeypatch.setattr(registry, "library", lambda: None)
    elif library() is None:
        pytest.skip("look-up cannot be compiled here")
    return which


class _StatePickler(pickle.Pickler):
    """Leaves out what is not a request's: models, caches (`num_in_use` tells), and the engine's list of tokens."""

    def __init__(self, buffer: io.BytesIO, text: list[int] | None) -> None:
        super().__init__(buffer)
        self._text = text

    def persistent_id(self, obj: object) -> str | None:
        foreign = Resources | Drafter | LoadedModel | KVCache | BlockPool
        if isinstance(obj, LookUpProposer):
            return f"{obj.name}, {obj.num_bytes} bytes"
        is_foreign = isinstance(obj, foreign) or hasattr(obj, "new_cache")
        return type(obj).__name__ if is_foreign or (obj is self._text and obj is not None) else None


def dumps(proposer: Proposer, text: list[int] | None = None) -> bytes:
    if isinstance(proposer, HasSources):
        proposer.take_spent_s()
    buffer = io.BytesIO()
    _StatePickler(buffer, text).dump(proposer)
    return buffer.getvalue()


def num_in_use(proposer: Any) -> int:
    """Cache blocks that the proposer holds for requests."""
    parts = [guard.proposer for guard, _ in getattr(proposer, "_parts", ())]
    pool = getattr(proposer, "_pool", None)
    return sum(map(num_in_use, parts)) + (pool.num_in_use if isinstance(pool, BlockPool) else 0)


def copies(name: str) -> bool:
    """Whether every drafted token stood somewhere before."""
    return not any(method in name for method in ("model", "self"))


def shares_text(name: str) -> bool:
    return METHODS[INTENTS[name].method].shares_text and name != "suffix-no-pool"


def test_every_row_of_the_registry_is_held_to_the_contract() -> None:
    assert {intent.method for intent in INTENTS.values()} == set(METHODS)
    assert NoSpeculation().method not in METHODS


def chains_of(batch: DraftBatch) -> list[list[int]]:
    entries = [batch.request(entry) for entry in range(batch.num_requests)]
    for entry in entries:
        assert entry.parent_rows.tolist() == list(range(entry.num_nodes))
        assert bool(entry.is_point_mass.all())
    return [entry.tokens.tolist() for entry in entries]


@dataclass
class Running:
    view: SequenceView
    alone: Proposer | None
    """The same method serving this request and no other; None where earlier outputs may be drafted from."""
    seen: set[int] = field(default_factory=set)


class Driven(RuleBasedStateMachine):
    """An engine that does everything an engine may do, in any order, and checks every draft."""

    name = "ngram"

    @initialize()
    def start(self) -> None:
        self.proposer = create_proposer(INTENTS[self.name])
        self.twin = create_proposer(INTENTS[self.name])
        self.per_scope: dict[str, Proposer] = defaultdict(lambda: create_proposer(INTENTS[self.name]))
        self.pool_tokens: dict[str, set[int]] = defaultdict(set)
        self.running: dict[str, Running] = {}
        self.num_begun = 0
        self.num_ended: dict[str, int] = defaultdict(int)

    def _servers(self, request: Running) -> list[Proposer]:
        """Those that must draft alike for this request: all of it, its twin, its scope alone, itself alone."""
        servers = [self.proposer, self.twin]
        if self.name != "suffix-small-pool":
            servers.append(self.per_scope[request.view.scope])
        return servers + ([request.alone] if request.alone is not None else [])

    @rule(
        prompt=st.lists(tokens, min_size=1, max_size=24),
        prediction=st.lists(tokens, max_size=16) | st.just([]),
        scope=st.sampled_from(["", "key"]),
        depth=st.integers(1, 9),
    )
    @precondition(lambda self: len(self.running) < 4)
    def begin(self, prompt: list[int], prediction: list[int], scope: str, depth: int) -> None:
        prompt = [_in_scope(token, scope) for token in prompt]
        prediction = [_in_scope(token, scope) for token in prediction]
        req_id = f"r{self.num_begun}"
        self.num_begun += 1
        view = SequenceView(
            req_id,
            prompt,
            len(prompt),
            GREEDY,
            prediction=prediction,
            scope=scope,
            depth=depth,
            prices=[0.1 * tokens + max(0, tokens - depth // 2) * 0.4 for tokens in range(depth + 1)],
            sampling=SamplingState(GREEDY, prompt, ()),
            block_ids=blocks_of(self.num_begun),
        )
        alone = None if shares_text(self.name) else create_proposer(INTENTS[self.name])
        self.running[req_id] = Running(view, alone, {*prompt, *prediction})
        for server in self._servers(self.running[req_id]):
            server.begin(view)

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def observe(self, data: st.DataObject) -> None:
        request = self.running[data.draw(st.sampled_from(sorted(self.running)))]
        for server in self._servers(request):
            server.observe(request.view, None)

    @rule(data=st.data(), budget=st.integers(0, 12), commits=st.booleans())
    @precondition(lambda self: self.running)
    def round(self, data: st.DataObject, budget: int, commits: bool) -> None:
        req_ids = data.draw(st.lists(st.sampled_from(sorted(self.running)), min_size=1, unique=True))
        requests = [self.running[req_id] for req_id in req_ids]
        views = [request.view for request in requests]
        budgets = [max(0, budget - position) for position in range(len(views))]
        drafts = chains_of(self.proposer.propose(views, budgets))
        assert len(drafts) == len(views)
        assert drafts == chains_of(self.twin.propose(views, budgets))
        assert drafts == chains_of(self.proposer.propose(views, budgets)), "asking twice changes nothing"
        for request, draft, limit in zip(requests, drafts, budgets, strict=True):
            assert len(draft) <= min(limit, request.view.depth)
            if copies(self.name):
                assert set(draft) <= request.seen | self.pool_tokens[request.view.scope]
            for server in self._servers(request)[2:]:
                assert chains_of(server.propose([request.view], [limit])) == [draft]
        if commits:
            self._commit(data, requests, drafts)

    def _commit(self, data: st.DataObject, requests: list[Running], drafts: list[list[int]]) -> None:
        verdicts = []
        for request, draft in zip(requests, drafts, strict=True):
            num_accepted = data.draw(st.integers(0, len(draft)))
            next_token = _in_scope(data.draw(tokens), request.view.scope)
            verdict = Verdict(tuple(range(1, num_accepted + 1)), tuple(draft[:num_accepted]), next_token)
            # A stop rule may cut the run anywhere, also before its first token.
            num_emitted = data.draw(st.sampled_from([len(verdict.run)] * 3 + [0, num_accepted // 2]))
            request.view.token_ids.extend(verdict.run[:num_emitted])
            request.seen |= set(verdict.run[:num_emitted])
            assert request.view.sampling is not None
            request.view.sampling.commit(verdict.run[:num_emitted])
            verdicts.append(verdict)
        views = [request.view for request in requests]
        self.proposer.commit(views, verdicts)
        self.twin.commit(views, verdicts)
        for request, verdict in zip(requests, verdicts, strict=True):
            for server in self._servers(request)[2:]:
                server.commit([request.view], [verdict])

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def end(self, data: st.DataObject) -> None:
        """At any time: before a draft, between draft and commit, after a commit."""
        self._end(data.draw(st.sampled_from(sorted(self.running))))

    def _end(self, req_id: str) -> None:
        request = self.running.pop(req_id)
        for server in self._servers(request):
            server.end(request.view)
        view = request.view
        if shares_text(self.name):
            self.pool_tokens[view.scope] |= set(view.token_ids[view.num_prompt :])

    @invariant()
    def views_are_never_written(self) -> None:
        for request in getattr(self, "running", {}).values():
            assert set(request.view.token_ids) <= request.seen

    def teardown(self) -> None:
        for req_id in list(getattr(self, "running", {})):
            self._end(req_id)
        if self.num_begun and not shares_text(self.name):
            assert len(dumps(self.proposer)) == len(dumps(create_proposer(INTENTS[self.name])))
            assert num_in_use(self.proposer) == 0


@names
def test_any_interleaving(name: str) -> None:
    machine = type(f"Driven_{name}", (Driven,), {"name": name})
    checks = settings(
        deadline=None, max_examples=25, stateful_step_count=25, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=checks)


def _run(proposer: Proposer, view: SequenceView, rng: random.Random, num_rounds: int) -> None:
    proposer.begin(view)
    for _ in range(num_rounds):
        draft = chains_of(proposer.propose([view], [8]))[0]
        run = (*draft[: rng.randint(0, len(draft))], rng.randrange(ALPHABET))
        view.token_ids.extend(run)
        proposer.commit([view], [Verdict(tuple(range(1, len(run))), run[:-1], run[-1])])
    if rng.random() < 0.3:
        proposer.propose([view], [8])
    proposer.end(view)


def blocks_of(number: int) -> list[int]:
    """The target's cache blocks of one of up to 15 requests at a time."""
    first = number % 15 * NUM_BLOCKS_OF_A_VIEW
    return list(range(first, first + NUM_BLOCKS_OF_A_VIEW))


def _view(
    req_id: str, prompt: list[int], scope: str = "", prediction: list[int] | None = None
) -> SequenceView:
    return SequenceView(
        req_id,
        prompt,
        len(prompt),
        GREEDY,
        prediction=prediction or (),
        scope=scope,
        depth=8,
        sampling=SamplingState(GREEDY, prompt, ()),
        block_ids=blocks_of(0),
    )


def _random_view(req_id: str, rng: random.Random, scope: str = "") -> SequenceView:
    prompt = [rng.randrange(ALPHABET) for _ in range(12)]
    return _view(req_id, prompt, scope, prompt[3:])


@names
def test_thousands_of_requests_leave_nothing_behind_but_a_bounded_pool(name: str) -> None:
    intent: Any = INTENTS[name]
    if name in ("suffix", "auto", "auto-model"):
        intent = Cascade(proposers=(Predicted(), Suffix(suffix_decoding_max_cached_requests=20)))
    proposer = create_proposer(intent)
    rng = random.Random(1)
    sizes = []
    for block in range(3):
        for number in range(500 if copies(name) else 60):
            _run(proposer, _random_view(f"{block}.{number}", rng, scope=str(number % 50)), rng, 2)
        gc.collect()
        sizes.append(len(dumps(proposer)))
    if shares_text(name):
        assert sizes[2] < 1.2 * sizes[0] < 200_000
    else:
        assert sizes[2] == len(dumps(create_proposer(intent)))


@names
def test_a_request_id_may_be_used_again(name: str) -> None:
    """What the first one said is not the second one's."""
    proposer = create_proposer(INTENTS[name])
    rng = random.Random(2)
    _run(proposer, _random_view("r", rng, scope="first"), rng, 5)
    fresh = _view("r", [70, 71, 72, 70, 71], "second")
    proposer.begin(fresh)
    draft = chains_of(proposer.propose([fresh], [8]))[0]
    if copies(name):
        assert set(draft) <= {70, 71, 72}
    unused = create_proposer(INTENTS[name])
    unused.begin(fresh)
    assert chains_of(unused.propose([fresh], [8])) == [draft]


@names
def test_no_sequences_is_an_empty_batch(name: str) -> None:
    proposer = create_proposer(INTENTS[name])
    batch = proposer.propose([], [])
    assert (batch.num_requests, batch.num_nodes) == (0, 0)
    proposer.commit([], [])


@names
def test_look_up_proposers_need_nothing_of_the_target(name: str) -> None:
    needs = create_proposer(INTENTS[name]).needs
    assert needs.hidden_layers == ()
    assert not needs.token_embeddings
    assert needs.target_cache == (name in ("self", "cascade-models"))


@names
def test_drafts_as_lists_are_the_drafts(name: str, look_up: str) -> None:
    one, other = create_proposer(INTENTS[name]), create_proposer(INTENTS[name])
    is_single = name.split("-")[0] in ("ngram", "suffix", "predicted")
    assert isinstance(one, DraftsChains) == (is_single or (copies(name) and look_up == "compiled"))
    if not (isinstance(one, DraftsChains) and isinstance(other, DraftsChains)):
        return
    views = [_random_view(str(number), random.Random(number)) for number in range(8)]
    for proposer in (one, other):
        for view in views:
            proposer.begin(view)
    budgets = list(range(8))
    assert chains_of(one.propose(views, budgets)) == other.chains(views, budgets)


@names
def test_every_source_keeps_to_what_it_may_draft_and_is_told(name: str) -> None:
    proposer = create_proposer(INTENTS[name])
    sources = proposer.sources
    assert len(sources) > 1 or not isinstance(proposer, HasSources) or name in ("cascade", "auto")
    assert len(sources) == 1 or isinstance(proposer, HasSources)
    rng = random.Random(5)
    for number in range(6):
        view = _random_view(str(number), rng)
        proposer.begin(view)
        for _ in range(12):
            lags = [lag_of(proposer, view, at) for at in range(len(sources))]
            assert all(0 <= lag <= 2 * len(view.token_ids) for lag in lags)
            prices = [0.1 * rng.random() * at for at in range(9)]
            if len(sources) > 1:
                view.offers = [Offer(rng.choice([0, 1, 3, 8]), prices) for _ in sources]
            else:
                view.prices = prices
            budget = rng.choice([1, 5, 8])
            [draft] = chains_of(proposer.propose([view], [budget]))
            may = [min(budget, offer.budget) for offer in view.offers] or [budget]
            assert 0 <= view.source < len(sources)
            assert len(draft) <= min(may[view.source], sources[view.source].depth)
            asked = [at for at, limit in enumerate(may) if limit]
            if not draft and asked:
                assert view.source == asked[-1], "the last that was asked"
            if draft and sources[view.source].reads:
                assert lag_of(proposer, view, view.source) == 0, "it has read what it drafts from"
            view.num_read, view.reading_s = 0, 0.0
            run = (
                *draft[: rng.randint(0, len(draft))],
                *(rng.randrange(ALPHABET) for _ in range(rng.randint(1, 9))),
            )
            view.token_ids.extend(run)
            assert view.sampling is not None
            view.sampling.commit(run)
            proposer.commit([view], [Verdict((), (), run[0])])
        proposer.end(view)


def lag_of(proposer: Proposer, view: SequenceView, source: int) -> int:
    if not proposer.sources[source].reads:
        return 0
    assert isinstance(proposer, ReadsText)
    return proposer.lag(view, source)


@names
def test_a_guess_is_judged_once(name: str) -> None:
    """A round without a draft (no budget) commits too: what was guessed before must not be judged again."""
    proposer = create_proposer(INTENTS[name])
    view = _view("r", [1, 2, 3, 4, 1, 2, 3], prediction=[4, 1, 2, 3, 4])
    proposer.begin(view)
    assert proposer.propose([view], [8]).num_nodes > 0
    view.token_ids.append(4)
    proposer.commit([view], [Verdict((), (), 4)])
    before = dumps(proposer, view.token_ids)
    view.token_ids.append(9)
    proposer.commit([view], [Verdict((), (), 9)])
    assert dumps(proposer, view.token_ids) == before
