"""The draft model: its drafts are what its own model says of the text, however far its cache lagged behind."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import Auto, Cascade, DraftModel, DraftWeights, NGram, SelfDraft
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.models.blocks import BlockTensor
from draftproof.models.loading import load_model
from draftproof.models.precision import FormedWeights
from draftproof.ops.noise import Purpose, draw, stream
from draftproof.ops.sampling import SamplingState
from draftproof.proposers import draft_model
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.draft_context import SameTokens
from draftproof.proposers.draft_model import FEW_ROWS, DraftModelProposer
from draftproof.proposers.drafter import count_weights, load_drafter
from draftproof.proposers.registry import create_proposer
from draftproof.verify.types import NoiseKey, Rule, Verdict
from support.checkpoints import write_checkpoint, write_gguf
from support.drafters import FaultyLoader, write_drafters
from support.passes import logits_in_chunks
from support.specs import Spec

TARGET = Spec(context=256)
GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, top_k=30)
_numbers = itertools.count()
PROMPT = [(37 * index) % 300 + 3 for index in range(70)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_checkpoint(root / "target", TARGET)
    write_drafters(root, TARGET)
    write_checkpoint(root / "alien-ids", TARGET, vocab=300)
    give_no_tokens_in_common(root / "alien-ids")
    write_checkpoint(root / "large", TARGET, layers=3)
    write_checkpoint(root / "padded", TARGET, vocab=448, layers=1)
    (root / "padded" / "tokenizer.json").write_bytes((root / "target" / "tokenizer.json").read_bytes())
    return root


def give_no_tokens_in_common(folder: Path) -> None:
    """Every ordinary token gets a letter that no token of the target begins with."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    vocab = document["model"]["vocab"]
    document["model"]["vocab"] = {f"Ω{token}" if i > 2 else token: i for token, i in vocab.items()}
    document["model"]["merges"] = []
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def engine(folder: Path) -> Engine:
    engine = Engine(load_model(folder / "target", dtype="float32"), EngineConfig(max_num_seqs=8))
    engine.resources.load = FaultyLoader()
    return engine


def view_of(prompt: list[int], params: SamplingParams = GREEDY, **changes: object) -> SequenceView:
    view = SequenceView(f"r{next(_numbers)}", list(prompt), len(prompt), params, depth=8)
    view.sampling = SamplingState(params, prompt, ())
    for name, value in changes.items():
        setattr(view, name, value)
    return view


def draft(proposer: Proposer, view: SequenceView, budget: int = 8) -> list[int]:
    return proposer.propose([view], [budget]).tokens.tolist()


def append(view: SequenceView, tokens: list[int]) -> None:
    view.token_ids.extend(tokens)
    assert view.sampling is not None
    view.sampling.commit(tokens)


@functools.cache
def _model(path: Path):  # type: ignore[no-untyped-def]
    return load_model(path, dtype="float32").model


def best_continuation(path: Path, tokens: list[int], count: int) -> list[int]:
    """What the model at `path` continues with, computed from scratch."""
    text = list(tokens)
    for _ in range(count):
        text.append(int(logits_in_chunks(_model(path), text, [len(text)])[-1].argmax()))
    return text[len(tokens) :]


def test_drafts_follow_the_text_whatever_happened_before(engine: Engine, folder: Path) -> None:
    """Accepted, cut, rejected, drafted by others, not drafted at all: the draft is that of a fresh model."""
    rng = random.Random(4)
    proposer = create_proposer(
        DraftModel(
            adaptive=False, model=str(folder / "bad"), num_speculative_tokens=6, draft_weights="native"
        ),
        engine.resources,
    )
    view = view_of(PROMPT)
    proposer.begin(view)
    for step in range(25):
        drafted = draft(proposer, view, rng.randint(0, 6))
        assert drafted == best_continuation(folder / "bad", view.token_ids, len(drafted)), step
        run = drafted[: rng.randint(0, len(drafted))]
        run += [rng.randrange(384) for _ in range(rng.choice([0, 1, 1, 5]))]  # 5: drafted by another proposer
        append(view, run)
        proposer.commit([view], [Verdict((), (), 0)])
    assert view.note is None


@pytest.mark.parametrize("num_tokens", [7, 40, 70])
def test_a_tail_begins_where_it_began_at_first(num_tokens: int) -> None:
    view, context = view_of(PROMPT[:num_tokens]), SameTokens(40)
    for comes in ([], [5, 6]):
        append(view, comes)
        expected = view.token_ids[max(0, num_tokens - 40) :]
        assert context.read(view) == (expected, len(expected))


def test_a_tail_is_read_and_all_that_follows(engine: Engine, folder: Path) -> None:
    """As if the text began there: drafts and what comes after them.

    Where more than the tail would have to be read, after a release or much that others drafted, it begins anew."""
    drafter = load_drafter(str(folder / "bad"), "native", engine.resources)
    proposer = DraftModelProposer(drafter, engine.resources, depth=3, draws=False, tail=40)
    for prompt in (PROMPT, PROMPT[:40], PROMPT[:7]):
        view = view_of(prompt)
        proposer.begin(view)
        start = max(0, len(prompt) - 40)
        for comes in ([], [5, 6], None, [*range(30)], [*range(45)], [7]):
            if comes is None:
                assert proposer.release(view)
            else:
                append(view, comes)
            if comes is None or len(comes) > 40:
                start = max(start, len(view.token_ids) - 40)
            lag = proposer.lag(view)
            assert (lag > FEW_ROWS) == (lag > 0) == (not comes or len(comes) > FEW_ROWS)
            view.num_read = 0
            drafted = draft(proposer, view)
            assert view.num_read <= lag + FEW_ROWS, "less where another request's blocks are shared"
            assert proposer.lag(view) == 0
            text = view.token_ids[start:]
            assert drafted
            assert drafted == best_continuation(folder / "bad", text, len(drafted))
        proposer.end(view)


def test_a_long_prompt_is_read_in_chunks_beside_others(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_model, "CATCH_UP_ROWS", 16)
    proposer = create_proposer(
        DraftModel(adaptive=False, model=str(folder / "bad"), draft_weights="native"), engine.resources
    )
    short, long = view_of(PROMPT[:10]), view_of(PROMPT)
    for view in (short, long):
        proposer.begin(view)
    rounds = 0
    while not proposer.propose([long, short], [1, 1]).request(0).num_nodes:
        batch = proposer.propose([long, short], [1, 1])
        assert batch.request(1).tokens.tolist() == best_continuation(folder / "bad", short.token_ids, 1)
        rounds += 1
    assert rounds >= 2
    assert draft(proposer, long, 3)[:1] == best_continuation(folder / "bad", long.token_ids, 1)


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("kind", ["good", "other-vocabulary"])
def test_sampled_drafts_are_drawn_from_the_q_that_is_handed_over(
    rule: Rule, kind: str, engine: Engine, folder: Path
) -> None:
    proposer = create_proposer(
        DraftModel(adaptive=False, model=str(folder / kind), draft_weights="native"), engine.resources
    )
    view = view_of(PROMPT, SAMPLED, rule=rule, noise=NoiseKey(11, 5))
    proposer.begin(view)
    batch = proposer.propose([view], [4])
    assert batch.num_nodes > 0
    if rule is Rule.MATCH:
        assert bool(batch.is_point_mass.all())
        return
    assert not bool(batch.is_point_mass.any())
    assert batch.q_rows.tolist() == list(range(batch.num_nodes))
    assert torch.allclose(batch.q.sum(1), torch.ones(batch.num_nodes, dtype=torch.float64))
    assert int((batch.q > 0).sum(1).max()) <= 30  # top-k acts on the tokens that the target knows
    streams = [stream(11, 5, Purpose.DRAFT, row) for row in range(batch.num_nodes)]
    assert draw(batch.q, streams)[:, 0].tolist() == batch.tokens.tolist()
    for node, token in enumerate(batch.tokens.tolist()):
        assert float(batch.q[node, token]) > 0
    if kind == "other-vocabulary":
        drafter = engine.resources.drafters[str(folder / kind), "native"]
        assert drafter.to_drafter is not None
        assert set(batch.q.sum(0).nonzero().flatten().tolist()) <= set(drafter.to_drafter)


def test_coupled_drafts_are_what_the_target_would_sample(engine: Engine, folder: Path) -> None:
    """With the target as its own drafter every coupled draft is accepted."""
    params = SamplingParams(temperature=0.9, top_k=30, seed=3, max_tokens=24, ignore_eos=True)
    good = DraftModel(adaptive=False, model=str(folder / "good"), draft_weights="native")
    [output] = engine.generate([PROMPT], params, intent=good)
    assert output.stats.accepted == output.stats.proposed > 0
    greedy = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    for intent in (good, SelfDraft(adaptive=False, draft_weights="native")):
        [output] = engine.generate([PROMPT], greedy, intent=intent)
        assert output.stats.accepted == output.stats.proposed > 0
    engine.check_idle()


@pytest.mark.parametrize("kind", ["good", "bad", "other-vocabulary"])
@pytest.mark.parametrize("verification", ["auto", "rejection", "block"])
def test_unseeded_and_drawn_drafts_run_through_the_engine(
    kind: str, verification: str, engine: Engine, folder: Path
) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=24, ignore_eos=True)
    intent = DraftModel(adaptive=False, model=str(folder / kind), verification=verification)  # type: ignore[arg-type]
    outputs = engine.generate([PROMPT, PROMPT[:5]], params, intent=intent)
    for output in outputs:
        assert output.stats.proposed > 0
        assert output.error is None
        assert "failed" not in (output.decision_reason or "")
    engine.check_idle()


def test_tokens_outside_the_intersection_make_the_context_new(engine: Engine, folder: Path) -> None:
    """The drafter reads the output's text, tokenised by itself, as soon as a token has no counterpart."""
    intent = DraftModel(adaptive=False, model=str(folder / "other-vocabulary"), draft_weights="native")
    proposer = create_proposer(intent, engine.resources)
    drafter = engine.resources.drafters[str(folder / "other-vocabulary"), "native"]
    assert drafter.to_drafter is not None
    target = engine.tokenizer
    outside = [t for t in range(3, target.vocab_size) if t not in drafter.to_drafter]
    inside = [
        t for t in range(3, target.vocab_size) if t in drafter.to_drafter and target.token_bytes(t).isalpha()
    ]
    view = view_of(PROMPT)
    proposer.begin(view)
    rng = random.Random(1)
    for _ in range(12):
        append(view, [rng.choice(inside + outside) for _ in range(3)])
        drafted = draft(proposer, view, 2)
        prompt, output = view.token_ids[: view.num_prompt], view.token_ids[view.num_prompt :]
        context = drafter.tokenizer.encode(target.decode(prompt, skip_special=False), add_special=True)
        ids = proposer._requests[view.req_id].token_ids  # type: ignore[attr-defined]
        read = b"".join(map(drafter.tokenizer.token_bytes, ids[len(context) :]))
        assert read == b"".join(map(target.token_bytes, output))
        logits = logits_in_chunks(drafter.model, list(ids), [len(ids)])[-1:]
        best = int(drafter.token_map.over_target(drafter.token_map.columns(logits)).argmax())
        assert drafted[0] == best
    assert any(token in outside for token in view.token_ids)


def test_a_split_character_outside_the_intersection_waits(engine: Engine, folder: Path) -> None:
    proposer = create_proposer(
        DraftModel(adaptive=False, model=str(folder / "other-vocabulary"), draft_weights="native"),
        engine.resources,
    )
    drafter = engine.resources.drafters[str(folder / "other-vocabulary"), "native"]
    assert drafter.to_drafter is not None
    outside = next(t for t in range(3, engine.tokenizer.vocab_size) if t not in drafter.to_drafter)
    [first, second] = [engine.tokenizer.encode("é"), engine.tokenizer.encode("x")]
    assert len(first) == 2
    view = view_of(PROMPT)
    proposer.begin(view)
    append(view, [outside, first[0]])
    assert draft(proposer, view) == []
    append(view, [first[1], *second])
    assert draft(proposer, view) != []


def test_padding_is_never_drafted(engine: Engine, folder: Path) -> None:
    resources = engine.resources
    proposer = create_proposer(
        DraftModel(
            adaptive=False, model=str(folder / "padded"), num_speculative_tokens=8, draft_weights="native"
        ),
        resources,
    )
    drafter = resources.drafters[str(folder / "padded"), "native"]
    assert drafter.vocabulary == "the same vocabulary"
    assert drafter.to_drafter is None
    views = [view_of(PROMPT[:count], SAMPLED, rule=Rule.REJECTION) for count in range(5, 25)]
    for view in views:
        proposer.begin(view)
    batch = proposer.propose(views, [8] * len(views))
    assert batch.q.shape[1] == 384
    assert int(batch.tokens.max()) < engine.tokenizer.vocab_size


def _stopped(engine: Engine, folder: Path, kind: str) -> str:
    params = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)
    plain = engine.generate([PROMPT], params)[0]
    output = engine.generate([PROMPT], params, intent=DraftModel(adaptive=False, model=str(folder / kind)))[0]
    engine.check_idle()
    assert output.token_ids == plain.token_ids
    return output.decision_reason or ""


def test_what_stops_a_drafter_is_said_and_takes_no_request_down(engine: Engine, folder: Path) -> None:
    assert "the drafter has 64 positions" in _stopped(engine, folder, "short")
    assert "not finite numbers" in _stopped(engine, folder, "nan")
    assert "planted fault" in _stopped(engine, folder, "crashing")
    assert "another vocabulary with" in _stopped(engine, folder, "other-vocabulary")


def test_a_failing_part_leaves_the_request_to_the_others(engine: Engine, folder: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    crashing = DraftModel(model=str(folder / "crashing"))
    plain = engine.generate([PROMPT], params)[0]
    for parts in (
        (crashing, NGram(prompt_lookup_min=1)),
        (NGram(prompt_lookup_min=9, prompt_lookup_max=9), crashing, SelfDraft()),
    ):
        output = engine.generate([PROMPT], params, intent=Cascade(proposers=parts, adaptive=False))[0]
        assert output.token_ids == plain.token_ids
        assert "planted fault" in (output.decision_reason or "")
        last_round = list(output.stats.depth_histogram)
        assert max(last_round) > 0
    engine.check_idle()


def test_the_drafters_cache_returns_and_bounds_what_is_drafted(engine: Engine, folder: Path) -> None:
    engine.resources.num_blocks = 8  # one full request, and no more
    proposer = create_proposer(DraftModel(adaptive=False, model=str(folder / "bad")), engine.resources)
    views = [view_of(PROMPT[:40], note="told before") for _ in range(5)]
    for view in views:
        proposer.begin(view)
    batch = proposer.propose(views, [2] * 5)
    sizes = batch.node_offsets.diff().tolist()
    assert min(sizes[:4]) > 0
    assert sizes[4] == 0
    assert draft(proposer, views[4], 2) == []
    assert views[4].note == "told before; at times drafted less: the drafter's cache was full"
    proposer.end(views[0])
    assert draft(proposer, views[4], 2) != []
    for view in views[1:]:
        proposer.end(view)
    assert proposer._pool.num_in_use == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [("alien-ids", "DP801", "first"), ("large", "DP802", "weights"), ("none", "DP401", "")],
)
def test_drafters_that_do_not_fit(kind: str, code: str, told: str, engine: Engine, folder: Path) -> None:
    intent = DraftModel(adaptive=False, model=str(folder / kind))
    with pytest.raises(DraftproofError, match=code):
        engine.generate([PROMPT], GREEDY, intent=intent)
    engine.check_idle()
    plain = Engine(engine.loaded, EngineConfig(on_unfit="plain", speculation=intent))
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    [output] = plain.generate([PROMPT], params)
    assert output.stats.proposed == 0
    assert code in (output.decision_reason or "")
    assert plain.describe()["drafters"] == []
    # `auto` drafts by look-up, whatever `on_unfit` says
    auto = engine.generate([PROMPT * 2], params, intent=Auto(model=str(folder / kind)))[0]
    assert code in (auto.decision_reason or "")


def test_the_start_fails_when_the_engines_own_drafter_does_not_fit(engine: Engine, folder: Path) -> None:
    with pytest.raises(DraftproofError, match="DP802"):
        Engine(
            engine.loaded, EngineConfig(speculation=DraftModel(adaptive=False, model=str(folder / "large")))
        )


@pytest.mark.parametrize(("available", "smaller_helps"), [(90_000, True), (60_000, False), (0, False)])
def test_memory_that_does_not_suffice(
    engine: Engine, folder: Path, available: int, smaller_helps: bool
) -> None:
    """The remedy names what is missing, and a smaller drafter only where there could be one."""
    engine.resources.available_bytes = lambda: available
    with pytest.raises(DraftproofError, match="DP701") as caught:
        create_proposer(DraftModel(adaptive=False, model=str(folder / "bad")), engine.resources)
    remedy = caught.value.remedy
    assert ("weights with draft_weights int4" in remedy) == smaller_helps
    assert "--max-model-len" in remedy
    missing = int(re.search(r"Make (\d+) MiB more of the machine's memory free", remedy)[1])  # type: ignore[index]
    engine.resources.available_bytes = lambda: available + missing * 2**20
    create_proposer(DraftModel(adaptive=False, model=str(folder / "bad")), engine.resources)


def test_a_drafter_is_loaded_once_and_freed_with_its_last_proposer(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    loads: list[str] = []
    load: Callable[..., object] = engine.resources.load

    def counting(path: Path, **options: object) -> object:
        loads.append(path.name)
        return load(path, **options)

    engine.resources.load = counting  # type: ignore[assignment]
    first = create_proposer(DraftModel(adaptive=False, model=str(folder / "bad")), engine.resources)
    (tmp_path / "link").symlink_to(folder / "bad")
    spellings = (
        folder / "bad",
        folder / "good" / ".." / "bad",
        os.path.relpath(folder / "bad"),
        tmp_path / "link",
    )
    others = [create_proposer(Auto(model=str(name)), engine.resources) for name in spellings]
    assert loads == ["bad"]
    [described] = engine.describe()["drafters"]
    assert described["weights_bytes"] > 0
    assert described["cache_bytes"] > 0
    del first, others
    assert engine.describe()["drafters"] == []


def test_quantised_weights_draft_by_default_and_their_bytes_are_stated(engine: Engine, folder: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    plain = engine.generate([PROMPT], params)[0]
    described = {}
    for intent in (
        DraftModel(adaptive=False, model=str(folder / "good")),
        SelfDraft(adaptive=False),
        SelfDraft(adaptive=False, draft_weights="int8"),
    ):
        output = engine.generate([PROMPT], params, intent=intent)[0]
        assert output.token_ids == plain.token_ids
        assert output.stats.accepted > 0
        described |= {(d["weights"], d["cache_bytes"] > 0): d for d in engine.describe()["drafters"]}
    assert set(described) == {("int4", True), ("int4", False), ("int8", False)}
    num_weights = count_weights(engine.loaded.config)
    types = {("int4", True): {"Q4_0"}, ("int4", False): {"Q4_0"}, ("int8", False): {"Q8_0"}}
    for form, drafter in described.items():
        assert set(drafter["weight_types"]) == types[form]
        assert 0.5 * num_weights < drafter["weights_bytes"] < 1.2 * num_weights
    engine.check_idle()


def test_self_reads_the_targets_cache_and_pays_for_no_other(engine: Engine) -> None:
    """A float drafter in the target's cache is the target: everything it drafts is accepted, from the first round."""
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    outputs = engine.generate(
        [PROMPT, PROMPT[:33], PROMPT[:1]],
        params,
        intent=SelfDraft(adaptive=False, draft_weights="native", num_speculative_tokens=3),
    )
    for output in outputs:
        assert output.stats.proposed == output.stats.accepted > 0
    [drafter] = engine.describe()["drafters"]
    assert (drafter["weights_bytes"], drafter["cache_bytes"]) == (0, 0)


def test_self_refuses_weights_that_rounding_leaves_as_they_are(folder: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20)
    quantised = Engine(load_model(folder / "target", dtype="float32", weights="int4"), EngineConfig())
    with pytest.raises(DraftproofError, match="DP802"):
        quantised.generate([PROMPT], params, intent=SelfDraft(adaptive=False))
    unable = Engine(load_model(folder / "target", dtype="float32"), EngineConfig())
    unable.resources.available_bytes = lambda: 1000
    with pytest.raises(DraftproofError, match="DP701") as caught:
        unable.generate([PROMPT], params, intent=SelfDraft(adaptive=False))
    assert "--max-model-len" in caught.value.remedy
    missing = int(re.search(r"(\d+) MiB more", caught.value.remedy)[1])  # type: ignore[index]
    unable.resources.available_bytes = lambda: 1000 + missing * 2**20
    assert unable.generate([PROMPT], params, intent=SelfDraft(adaptive=False))[0].stats.accepted > 0


def test_reading_a_prompt_does_not_count_as_drafting(engine: Engine, folder: Path) -> None:
    proposer = create_proposer(DraftModel(model=str(folder / "bad")), engine.resources)
    view = view_of(PROMPT)
    proposer.begin(view)
    draft(proposer, view)
    assert view.reading_s > 0
    view.reading_s = 0.0
    append(view, [5, 6])  # a pass of few rows is a step like another
    draft(proposer, view)
    assert view.reading_s == 0
    engine.generate(
        [PROMPT], SamplingParams(temperature=0.0, max_tokens=4), intent=DraftModel(model=str(folder / "bad"))
    )
    assert sum(cost.draft_s for cost in engine.take_round_costs()) > 0


def test_a_prefix_is_read_once_per_scope(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_model, "CATCH_UP_ROWS", 10)
    intent = DraftModel(adaptive=False, model=str(folder / "bad"), draft_weights="native")
    proposer = create_proposer(intent, engine.resources)

    def rounds_to_draft(scope: str, prompt: list[int]) -> int:
        view = view_of(prompt, scope=scope)
        proposer.begin(view)
        rounds = 1
        while not (drafted := draft(proposer, view, 2)):
            rounds += 1
        assert drafted == best_continuation(folder / "bad", view.token_ids, len(drafted))
        append(view, [7])
        assert draft(proposer, view, 1) == best_continuation(folder / "bad", view.token_ids, 1)
        proposer.end(view)
        return rounds

    assert rounds_to_draft("a", PROMPT) == 7
    # Two blocks of 32 are known, six tokens are not.
    assert rounds_to_draft("a", [*PROMPT[:67], 9, 9, 9]) == 1
    assert rounds_to_draft("b", PROMPT) == 7
    assert proposer._pool.num_in_use == 0  # type: ignore[attr-defined]


def test_what_was_released_is_found_again_or_computed_again(engine: Engine, folder: Path) -> None:
    intent = DraftModel(adaptive=False, model=str(folder / "bad"), draft_weights="native")
    proposer = create_proposer(intent, engine.resources)
    view = view_of(PROMPT)
    proposer.begin(view)
    for _ in range(3):
        drafted = draft(proposer, view, 3)
        assert drafted == best_continuation(folder / "bad", view.token_ids, len(drafted))
        append(view, [*drafted[:1], 8])
        assert proposer.release(view)  # type: ignore[attr-defined]
        assert not proposer.release(view)  # type: ignore[attr-defined]
    assert draft(proposer, view, 1) == best_continuation(folder / "bad", view.token_ids, 1)


@pytest.mark.parametrize("types", [None, "F32", "Q8_0", "Q6_K", "Q4_1", "Q4_0"])
@pytest.mark.parametrize("kernels", ["native", "python"])
def test_what_a_drafter_takes_is_known_before_it_is_loaded(
    kernels: str, types: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every precision: what is reserved is what the decoder is handed and, without the kernels, expands."""
    wide = replace(TARGET, hidden=256, intermediate=512, layers=3)
    path = (
        write_checkpoint(tmp_path / "m", wide)
        if types is None
        else write_gguf(tmp_path / "m.gguf", wide, types=types)
    )
    engine = Engine(load_model(path, dtype="float32", kernels=kernels), EngineConfig())
    reserved: list[int] = []
    handed: list[int] = []
    real = FormedWeights.__getitem__

    def weigh(weights: FormedWeights, name: str) -> torch.Tensor | BlockTensor:
        tensor = real(weights, name)
        is_kept = isinstance(tensor, BlockTensor) and kernels == "native"
        handed.append(tensor.data.nbytes if is_kept else 4 * math.prod(tensor.shape))
        return tensor

    monkeypatch.setattr(FormedWeights, "__getitem__", weigh)
    monkeypatch.setattr(
        "draftproof.proposers.drafter._check_room", lambda num_bytes, _: reserved.append(num_bytes)
    )
    forms: list[DraftWeights] = ["native", "int8", "int4"]
    intents: list[DraftModel | SelfDraft] = [
        DraftModel(model=str(path), draft_weights=form) for form in forms
    ]
    if types in (None, "F32"):
        intents += [SelfDraft(draft_weights=form) for form in forms[1:]]
    for intent in intents:
        handed.clear()
        proposer = create_proposer(intent, engine.resources)
        [described] = engine.describe()["drafters"]
        assert described["weights_bytes"] == reserved.pop() == sum(handed)
        del proposer
