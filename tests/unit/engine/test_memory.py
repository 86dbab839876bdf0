"""One limit for the whole process: how it is divided, what is said when it is too small, and that it holds."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys

import pytest

from draftproof.core import footprint
from draftproof.core.errors import DraftproofError
from draftproof.core.intent import Suffix
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.memory import plan_memory, resident_bytes, workspace_bytes
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.models.base import ExpertConfig
from support.fake_model import FakeLoaded, FakeModel

MIB = 2**20
BLOCK = KVCache.block_bytes(1, 1, 8, FakeModel.dtype)


def test_caches_get_what_process_and_workspace_leave() -> None:
    model = FakeModel()
    config = EngineConfig(memory=resident_bytes() + 64 * MIB)
    plan = plan_memory(config, model, max_len=256)
    assert plan.limit == plan.process + plan.workspace + plan.caches
    assert plan.workspace == workspace_bytes(config, model)
    assert plan.num_blocks == 16 * 256 // BLOCK_SIZE, "no more than the requests can ever use"


def test_experts_take_room_to_compute_in() -> None:
    plain, mixed = FakeModel(), FakeModel()
    experts = ExpertConfig(num_experts=4, num_used=2, intermediate_size=16, is_normalised=True)
    layer = dataclasses.replace(plain.config.layers[0], experts=experts)
    mixed.config = dataclasses.replace(plain.config, layers=(*plain.config.layers, layer))
    more = workspace_bytes(EngineConfig(), mixed) - workspace_bytes(EngineConfig(), plain)
    assert more == 4 * EngineConfig().max_num_rows * (2 * (8 + 16 + 16 + 16 + 8) + 4)


def test_a_context_that_was_asked_for_must_fit_and_one_that_was_not_shrinks() -> None:
    model = FakeModel()
    asked = EngineConfig(max_model_len=256, cache_bytes=5 * BLOCK)
    with pytest.raises(DraftproofError, match=f"DP701.*{5 * BLOCK} bytes.*256 tokens.*at most 160 tokens"):
        plan_memory(asked, model, max_len=256)
    assert plan_memory(EngineConfig(cache_bytes=5 * BLOCK), model, max_len=256).num_blocks == 5


def test_too_little_memory_says_what_takes_it_and_what_would_do() -> None:
    with pytest.raises(DraftproofError) as error:
        plan_memory(EngineConfig(memory=MIB), FakeModel(), max_len=256)
    assert error.value.code == "DP701"
    assert error.value.found == "1 MiB"
    needed = re.match(
        r"at least (\d+) MiB: (\d+) MiB that .*?(\d+) MiB to .*?(\d+) MiB for", error.value.expected
    )
    assert needed is not None
    assert int(needed[1]) == sum(int(part) for part in needed.groups()[1:])
    enough = EngineConfig(memory=int(needed[1]) * MIB + 8 * MIB)  # the process may have grown meanwhile
    assert plan_memory(enough, FakeModel(), max_len=256).num_blocks > 0


def test_two_ways_to_say_it_are_one_too_many() -> None:
    with pytest.raises(DraftproofError, match="cache_bytes"):
        EngineConfig(memory=2**30, cache_bytes=2**20)


def test_a_drafters_weights_come_out_of_the_limit() -> None:
    limited = Engine(FakeLoaded(FakeModel()), EngineConfig(memory=resident_bytes() + 64 * MIB))  # type: ignore[arg-type]
    assert limited.resources.reserves_weights
    one_request = 256 // BLOCK_SIZE * limited.memory.block
    assert limited.resources.available_bytes() == limited.memory.caches - one_request
    assert limited.budget.reserve(MIB)
    assert limited.resources.available_bytes() == limited.memory.caches - one_request - MIB
    limited.budget.unreserve(MIB)
    limited.check_idle()


def test_remembered_outputs_come_out_of_the_limit_and_yield_to_requests() -> None:
    engine = Engine(FakeLoaded(FakeModel()), EngineConfig(memory=resident_bytes() + 64 * MIB))  # type: ignore[arg-type]
    assert engine.memory.block == BLOCK + BLOCK_SIZE * footprint.INDEX_BYTES
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    for depth in (2, 4, 8):
        before = engine.budget.num_within_reach(None) - engine.budget.num_unclaimed
        engine.generate([[1, 2, 3]], params, intent=Suffix(num_speculative_tokens=depth))
        assert engine.budget.num_within_reach(None) - engine.budget.num_unclaimed > before
        engine.check_idle()
    assert engine.budget.reserve(engine.budget.num_bytes)
    assert engine.budget.num_within_reach(None) == 0


PROGRAM = """
from pathlib import Path
import sys
import torch
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.memory import resident_bytes
from draftproof.models.loading import load_model
from support.checkpoints import write_checkpoint
from support.specs import Spec

root = Path(sys.argv[1])
write_checkpoint(root, Spec(hidden=256, heads=32, kv_heads=32, head_dim=64, layers=4, context=4096))
loaded = load_model(root, dtype="float32")
limit = resident_bytes() + 112 * 2**20
engine = Engine(loaded, EngineConfig(memory=limit, max_num_seqs=4))
params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
for start in range(3):
    engine.generate([[(3 * j + start + 7 * k) % 300 for j in range(300)] for k in range(4)], params)
usage = engine.stats().cache
assert usage.cached >= 0.9 * usage.total, usage  # the cache was filled
print(resident_bytes() / limit)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_filled_cache_stays_within_the_limit(tmp_path: object) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert 0.85 < float(done.stdout) < 1.03
