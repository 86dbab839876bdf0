"""The plan against what our own engine allocates: one formula for both, and a process that is loaded for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.speculation import Deployment
from draftproof.core.footprint import BLOCK_SIZE, INDEX_BYTES
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.memory import MemoryPlan, plan_memory
from draftproof.planning.setup import Allowances
from support.checkpoints import write_checkpoint, write_gguf

GIB = 2**30

PROGRAM = """
import json, sys
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
engine = Engine.load(sys.argv[1], dtype="float32", kernels="python", config=EngineConfig(memory=int(sys.argv[2])))
print(json.dumps(engine.describe()["memory"]))
"""


def planned(path: Path, memory: int, runtime: int | None = None) -> MemoryPlan:
    deployment = Deployment(engine="draftproof", dtype="float32")
    wish = Wish(memory=memory, allowances=Allowances(runtime=runtime))
    return plan_memory(assemble(open_view(str(path)), deployment, wish, open_view))


@pytest.mark.parametrize("is_gguf", [False, True])
def test_caches_and_workspace_are_the_engines(is_gguf: bool, tmp_path: Path) -> None:
    """Given what the process holds, the rest is the same to the byte, and so are the blocks but for look-up's index."""
    path = write_gguf(tmp_path / "model.gguf") if is_gguf else write_checkpoint(tmp_path / "model")
    memory = 8 * GIB
    engine = Engine.load(path, dtype="float32", kernels="python", config=EngineConfig(memory=memory))
    weights = planned(path, memory).items[0].num_bytes
    plan = planned(path, memory, runtime=engine.memory.process - weights)
    assert plan.cache_bytes == engine.memory.caches
    assert plan.items[1].num_bytes == engine.memory.workspace
    assert plan.pool.request_bytes(1) == engine.memory.block - BLOCK_SIZE * INDEX_BYTES


def test_a_process_allocates_what_is_planned_within_three_percent(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(GIB)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert planned(path, GIB).cache_bytes == pytest.approx(found["caches"], rel=0.03)
