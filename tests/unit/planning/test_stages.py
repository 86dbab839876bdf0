"""Pipelines: how engines cut layers into stages, what each stage holds, and that the tightest one bounds requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, Speculation
from draftproof.core.errors import DraftproofError
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.engines import memory_rules
from draftproof.planning.knobs import knobs
from draftproof.planning.memory import MemoryPlan, plan_memory, smallest
from draftproof.planning.setup import Setup
from draftproof.planning.stages import extra_at_the_end, extra_at_the_start, extra_from_the_end
from support.plans import CHAIN, DRAFT, GIB, HEAD, QWEN_35_9B, TARGET, setup_of, view_of

PIPELINES = ("vllm", "sglang", "trtllm")
HEADLESS = Speculation(method="eagle3", depth=3)
EMBEDDING = 2 * 128256 * 4096


@pytest.mark.parametrize(
    ("cut", "num_layers", "num_stages", "cuts"),
    [
        # What each engine's own function gave, run with these numbers (vLLM 0.33.0, SGLang 0.5.23); TensorRT-LLM's is
        # torch.tensor_split.
        (extra_from_the_end, 32, 3, (11, 11, 10)),
        (extra_from_the_end, 30, 4, (7, 8, 8, 7)),
        (extra_from_the_end, 61, 8, (7, 7, 8, 8, 8, 8, 8, 7)),
        (extra_from_the_end, 5, 2, (3, 2)),
        (extra_at_the_end, 30, 4, (7, 7, 8, 8)),
        (extra_at_the_end, 61, 8, (7, 7, 7, 8, 8, 8, 8, 8)),
        (extra_at_the_start, 30, 4, (8, 8, 7, 7)),
        (extra_at_the_start, 61, 8, (8, 8, 8, 8, 8, 7, 7, 7)),
    ],
)
def test_layers_are_cut_as_the_engine_cuts_them(
    cut: Any, num_layers: int, num_stages: int, cuts: tuple[int, ...]
) -> None:
    assert cut(num_layers, num_stages) == cuts


@given(st.sampled_from([memory_rules(name).stages for name in PIPELINES]), st.data())
def test_cuts_are_even_and_whole(cut: Any, data: st.DataObject) -> None:
    num_layers = data.draw(st.integers(1, 200))
    num_stages = data.draw(st.integers(1, num_layers))
    cuts = cut(num_layers, num_stages)
    assert sum(cuts) == num_layers
    assert len(cuts) == num_stages
    assert max(cuts) - min(cuts) <= 1


def weights_of(plan: MemoryPlan, name: str = "target weights") -> int:
    return next((item.num_bytes for item in plan.items if item.name == name), 0)


@pytest.mark.parametrize("engine", PIPELINES)
@pytest.mark.parametrize("is_tied", [True, False])
def test_stages_hold_the_model_between_them(engine: str, is_tied: bool, tmp_path: Path) -> None:
    """Where the output matrix is the embedding, the last stage holds it again."""
    target = TARGET | {"tie_word_embeddings": is_tied}
    one = plan_memory(setup_of(tmp_path, engine, target=target))
    three = plan_memory(setup_of(tmp_path, engine, target=target, pipeline_parallel=3))
    assert sum(map(weights_of, three.stages)) == weights_of(one) + (EMBEDDING if is_tied else 0)
    assert sum(plan.pool.token_bytes for plan in three.stages) == one.pool.token_bytes
    first, middle, last = three.stages
    layer = 2 * 218_112_000
    assert weights_of(first) == EMBEDDING + layer * three.setup.cuts[0]
    assert weights_of(middle) == layer * three.setup.cuts[1]
    assert weights_of(last) == EMBEDDING + layer * three.setup.cuts[2] + 2 * 4096
    assert [any(item.name == "logits" for item in plan.items) for plan in three.stages] in (
        [False, False, True], [False] * 3,
    )  # fmt: skip


@pytest.mark.parametrize("engine", PIPELINES)
def test_the_tightest_stage_bounds_the_requests(engine: str, tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path, engine, pipeline_parallel=4, memory_fraction=0.9), 4096)
    alone = [replace(own, others=()).requests(4096) for own in plan.stages]
    assert plan.requests(4096) == min(alone) == replace(plan, others=()).requests(4096)
    assert len({own.cache_bytes for own in plan.stages}) == (1 if engine == "sglang" else 3), (
        "SGLang gives every stage what the fullest has left"
    )


def test_a_stage_without_room_leaves_none(tmp_path: Path) -> None:
    uneven = Wish(memory=12 * GIB, stage_layers=(30, 2))
    plan = plan_memory(setup_of(tmp_path, pipeline_parallel=2, wish=uneven))
    assert plan.setup.stage is not None
    assert plan.setup.stage.index == 0
    assert not plan.fits
    assert plan.requests(100) == 0
    assert plan.stages[1].has_room
    assert plan_memory(setup_of(tmp_path, pipeline_parallel=2, wish=Wish(memory=12 * GIB))).fits


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_drafter_is_on_the_last_stage(parallel: int, tmp_path: Path) -> None:
    said = replace(CHAIN, draft_tensor_parallel=1)
    plan = plan_memory(
        setup_of(tmp_path, speculation=said, drafter=DRAFT, pipeline_parallel=2, tensor_parallel=parallel)
    )
    first, last = plan.stages
    assert weights_of(first, "drafter weights") == 0
    assert plan.setup.drafter is not None
    assert weights_of(last, "drafter weights") == plan.setup.drafter.weights.num_bytes(2), (
        "whole on each device"
    )
    assert last.pool.token_bytes == 16 * 8 * 128 * 2 * 2 // parallel + 16 * 8 * 64 * 2 * 2
    assert first.pool.token_bytes == 16 * 8 * 128 * 2 * 2 // parallel
    assert first.lookahead == last.lookahead == 5


def test_a_head_without_an_embedding_has_one_on_the_last_stage(tmp_path: Path) -> None:
    def last(**changes: Any) -> MemoryPlan:
        found = plan_memory(
            setup_of(tmp_path, pipeline_parallel=2, speculation=HEADLESS, drafter=HEAD, **changes)
        )
        return found.stages[1]

    assert weights_of(last(), "drafter's embedding") == EMBEDDING
    assert weights_of(last(tensor_parallel=2), "drafter's embedding") == EMBEDDING // 2
    tied = TARGET | {"tie_word_embeddings": True}
    assert weights_of(last(target=tied), "drafter's embedding") == 0, "the target's is there for the output"
    own = plan_memory(setup_of(tmp_path, pipeline_parallel=2, speculation=CHAIN, drafter=DRAFT)).stages[1]
    assert weights_of(own, "drafter's embedding") == 0
    whole = plan_memory(setup_of(tmp_path, speculation=HEADLESS, drafter=HEAD))
    assert weights_of(whole, "drafter's embedding") == 0


SHAPES = st.fixed_dictionaries({
    "num_hidden_layers": st.integers(4, 40), "vocab_size": st.integers(1000, 200_000),
    "tie_word_embeddings": st.booleans(), "intermediate_size": st.integers(256, 8192),
})  # fmt: skip
_SHARED_DIRECTORY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(engine=st.sampled_from(PIPELINES), shape=SHAPES, data=st.data())
@_SHARED_DIRECTORY
def test_more_stages_never_hold_more_nor_serve_fewer(
    engine: str, shape: dict[str, Any], data: st.DataObject, tmp_path: Path
) -> None:
    """Of devices that are linked anyway: the first link costs memory of its own."""
    few = data.draw(st.integers(2, shape["num_hidden_layers"] - 1))
    more = data.draw(st.integers(few + 1, shape["num_hidden_layers"]))
    context, memory = data.draw(st.integers(1, 50_000)), data.draw(st.integers(1, 60)) * GIB
    target = TARGET | {"hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4} | shape

    def planned(num: int, bytes_: int = memory) -> MemoryPlan:
        return plan_memory(
            setup_of(
                tmp_path, engine, target=target, wish=Wish(memory=bytes_), pipeline_parallel=num, max_num_seqs=8,
                memory_fraction=0.8,
            )
        )  # fmt: skip

    one, other = planned(few), planned(more)
    assert max(map(weights_of, other.stages)) <= max(map(weights_of, one.stages))
    assert max(plan.pool.token_bytes for plan in other.stages) <= max(
        plan.pool.token_bytes for plan in one.stages
    )
    assert other.requests(context) >= one.requests(context)
    assert planned(few, memory + GIB).requests(context) >= one.requests(context)
    assert one.requests(context + 1) <= one.requests(context)


@pytest.mark.parametrize("engine", PIPELINES)
@pytest.mark.parametrize("fraction", [0.85, None])
def test_the_smallest_that_works_works_on_every_stage(
    engine: str, fraction: float | None, tmp_path: Path
) -> None:
    setup = setup_of(
        tmp_path, engine, pipeline_parallel=3, memory_fraction=fraction, speculation=CHAIN, drafter=DRAFT,
        max_num_seqs=16,
    )  # fmt: skip
    found = smallest(setup, 4096, 16)
    assert found.memory is not None
    assert plan_memory(setup.on(found.memory)).requests(4096) >= 16
    assert plan_memory(setup.on(int(found.memory * 0.98))).requests(4096) < 16
    if found.fraction is not None and setup.used_fraction is not None:
        assert plan_memory(replace(setup, fraction=found.fraction)).requests(4096) >= 16
        assert plan_memory(replace(setup, fraction=found.fraction - 0.01)).requests(4096) < 16


COMMANDS = {
    "vllm": "VLLM_PP_LAYER_PARTITION=10,22 vllm serve T --pipeline-parallel-size 2",
    "sglang": "SGLANG_PP_LAYER_PARTITION=10,22 python -m sglang.launch_server --model-path T --pp-size 2",
    "trtllm": "pipeline_parallel_size: 2\npp_partition: [10, 22]\n",
}


def planned_command(text: str, engine: str, directory: Path, wish: Wish | None = None) -> Setup:
    deployment: Deployment = dialect(engine).parse(text, None, None).deployment
    return assemble(view_of(directory, TARGET), deployment, wish or Wish(memory=24 * GIB), lambda name: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("engine", PIPELINES)
def test_cuts_that_a_command_says_count(engine: str, tmp_path: Path) -> None:
    setup = planned_command(COMMANDS[engine], engine, tmp_path)
    assert setup.cuts == (10, 22)
    assert planned_command(
        COMMANDS[engine], engine, tmp_path, Wish(memory=GIB, stage_layers=(16, 16))
    ).cuts == (16, 16)
    first, last = plan_memory(setup).stages
    assert first.pool.token_bytes * 22 == last.pool.token_bytes * 10
    for wrong in ("10,21", "10,20,2", "32"):
        text = COMMANDS[engine].replace("10,22", wrong).replace("10, 22", wrong)
        with pytest.raises(DraftproofError, match=rf"DP001 {memory_rules(engine).partition}"):
            planned_command(text, engine, tmp_path)
    words = COMMANDS[engine].replace("10,22", "ten").replace("[10, 22]", "ten")
    with pytest.raises(DraftproofError, match=rf"DP001 {memory_rules(engine).partition}"):
        planned_command(words, engine, tmp_path)


def test_pipelines_that_no_engine_runs_are_refused(tmp_path: Path) -> None:
    for engine in ("llamacpp", "draftproof"):
        with pytest.raises(DraftproofError, match=r"DP001 pipeline_parallel"):
            setup_of(tmp_path, engine, pipeline_parallel=2)
        assert setup_of(tmp_path, engine, pipeline_parallel=1).cuts == ()
    with pytest.raises(DraftproofError, match=r"DP001 pipeline_parallel"):
        setup_of(tmp_path, pipeline_parallel=33)


@pytest.mark.parametrize(
    ("engine", "said", "drafter", "words"),
    [
        ("trtllm", CHAIN, DRAFT, "refuses speculation with a pipeline"),
        ("sglang", CHAIN, DRAFT, "does not run draft_model with a pipeline"),
        ("sglang", replace(CHAIN, method="eagle"), HEAD, "SGLANG_ENABLE_PP_SPEC=1"),
        ("vllm", HEADLESS, HEAD, "few targets pass the states"),
        ("vllm", HEADLESS, HEAD, "the drafter is on the last stage alone"),
        ("vllm", CHAIN, DRAFT, "one stage's part of its layers"),
    ],
)
def test_what_an_engine_says_of_drafts_in_stages_is_told(
    engine: str, said: Speculation, drafter: dict[str, Any], words: str, tmp_path: Path
) -> None:
    def told(num: int) -> str:
        setup = setup_of(tmp_path, engine, speculation=said, drafter=drafter, pipeline_parallel=num)
        return "\n".join(setup.rules.warnings(setup))

    assert words in told(2)
    assert words not in told(1)


def test_blocks_of_a_mixed_model_are_shared_out_in_turns(tmp_path: Path) -> None:
    """vLLM forms groups over the whole model: eight layers with attention, three times eight with states. Each of two
    stages holds four of each, so that a block takes half of the bytes."""
    one = plan_memory(setup_of(tmp_path, target=QWEN_35_9B, wish=Wish(memory=80 * GIB)))
    two = plan_memory(setup_of(tmp_path, target=QWEN_35_9B, wish=Wish(memory=80 * GIB), pipeline_parallel=2))
    assert [plan.pool.unit * 2 for plan in two.stages] == [one.pool.unit] * 2
    assert [group.fixed for group in two.pool.groups] == [group.fixed for group in one.pool.groups]
    assert two.requests(8192) > one.requests(8192)


def test_sglang_plans_states_for_the_stage_with_most_of_them(tmp_path: Path) -> None:
    """All ranks take the largest stage's share of a request's states: of three slots, for no batch overlaps another."""
    whole = plan_memory(setup_of(tmp_path, "sglang", target=QWEN_35_9B))
    cuts = Wish(memory=24 * GIB, stage_layers=(8, 24))
    stages = plan_memory(
        setup_of(tmp_path, "sglang", target=QWEN_35_9B, pipeline_parallel=2, wish=cuts)
    ).stages
    assert [plan.pool.state_bytes * 24 * 5 for plan in stages] == [whole.pool.state_bytes * 18 * 3] * 2


def test_where_nothing_fits_the_fewest_stages_are_offered(tmp_path: Path) -> None:
    found = {knob.name: knob for knob in knobs(setup_of(tmp_path, wish=Wish(memory=8 * GIB)), 8192)}
    offered = found["pipeline parallelism"]
    assert (offered.change, offered.before, offered.after) == ("1 to 3 stages", 0, 1)
    assert plan_memory(setup_of(tmp_path, pipeline_parallel=2, wish=Wish(memory=8 * GIB))).requests(8192) == 0
    beside = {knob.name for knob in knobs(setup_of(tmp_path), 8192)}
    assert "pipeline parallelism" not in beside


def test_rounded_weights_are_rounded_in_every_stage(tmp_path: Path) -> None:
    cramped = setup_of(tmp_path, wish=Wish(memory=4 * GIB), pipeline_parallel=2)
    rounded = next(knob for knob in knobs(cramped, 8192) if knob.name == "target weights")
    assert rounded.gained > GIB
