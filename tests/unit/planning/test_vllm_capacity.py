"""The plan's cache against what a real vLLM printed (`benchmarks/vllm_capacity.py` records it)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.engines import memory_rules
from draftproof.planning.memory import MemoryPlan, plan_memory
from support.plans import write_config

_RECORDS = Path(__file__).parent / "data" / "vllm_capacity.json"


def records() -> list[dict[str, Any]]:
    found = json.loads(_RECORDS.read_text())["records"]
    assert isinstance(found, list)
    return found


def planned(record: dict[str, Any], directory: Path) -> MemoryPlan:
    """With the recorded cache in place of what a device would leave."""
    said, arguments = record["speculative"] or {}, record["arguments"]
    drafter = ModelRef(name=write_config(directory / "draft", record["draft"])) if "draft" in record else None
    speculation = Speculation(
        method=said.get("method", "none"), depth=said.get("num_speculative_tokens"), drafter=drafter
    )
    deployment = Deployment(
        engine="vllm",
        speculation=speculation,
        dtype=arguments.get("dtype"),
        block_size=arguments.get("block_size", 128),
        max_num_seqs=arguments["max_num_seqs"],
        max_num_batched_tokens=arguments.get("max_num_batched_tokens"),
        pipeline_parallel=arguments.get("pipeline_parallel_size"),
        tensor_parallel=arguments.get("tensor_parallel_size"),
        rest=("--no-async-scheduling",),  # which a processor's build never has
        extras={"env": {"VLLM_PP_LAYER_PARTITION": record["partition"]}} if "partition" in record else {},
    )
    target = open_view(write_config(directory / "target", record["target"]))
    plan = plan_memory(assemble(target, deployment, Wish(memory=2**40), open_view))
    cache = record["kv_cache_space_gib"] * 2**30
    first, *others = [replace(stage, cache_bytes=cache, others=()) for stage in plan.stages]
    return replace(first, others=tuple(others))


@pytest.mark.parametrize("record", records(), ids=lambda record: record["name"])
def test_capacity_is_within_five_percent_of_what_vllm_prints(record: dict[str, Any], tmp_path: Path) -> None:
    printed = record["printed"]
    found = planned(record, tmp_path).capacity_tokens(printed["max_model_len"])
    assert found == pytest.approx(printed["tokens"], rel=0.05)


def test_there_are_settings_of_several_kinds() -> None:
    assert {record["arguments"].get("pipeline_parallel_size", 1) for record in records()} == {1, 2, 3}
    methods = {(record["speculative"] or {}).get("method") for record in records()}
    assert {None, "ngram", "draft_model", "eagle3"} <= methods
    assert memory_rules("vllm").name == "vllm"
