"""Drafts drawn from a drafter's own q, in another vocabulary too: sampled text keeps the target's distribution."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from draftproof.core.intent import DraftModel, SelfDraft, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.models.loading import load_model
from support.checkpoints import Spec, write_checkpoint
from support.drafters import FaultyLoader, write_drafters
from support.passes import logits_in_chunks

TARGET = Spec(hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, head_dim=16)
PROMPT = [20, 21, 22]
NUM_REQUESTS = 1000
TEMPERATURE = 2.0
ALLOWED = [40, 50, 60, 70, 379]
"""The last one is a token that the drafter with another vocabulary lacks."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_checkpoint(root / "target", TARGET)
    write_drafters(root, TARGET)
    return root


@pytest.mark.parametrize("verification", ["rejection", "block"])
@pytest.mark.parametrize("kind", ["other-vocabulary", "self"])
def test_the_distribution_is_the_targets(kind: str, verification: str, folder: Path) -> None:
    """Second and third token of many seeded requests against the exact distribution.

    Chi-square over the cells that are expected at least five times; the threshold is the 99.9 % point (Wilson &
    Hilferty 1931). Seeds are fixed, so the test is deterministic.
    """
    engine = Engine(load_model(folder / "target", dtype="float32"), EngineConfig(max_num_seqs=32))
    engine.resources.load = FaultyLoader()
    intent: SpeculationIntent
    if kind == "self":
        intent = SelfDraft(verification=verification, adaptive=False)  # type: ignore[arg-type]
    else:
        intent = DraftModel(model=str(folder / kind), verification=verification, adaptive=False)  # type: ignore[arg-type]
    params = {
        "temperature": TEMPERATURE,
        "allowed_token_ids": frozenset(ALLOWED),
        "max_tokens": 4,
        "ignore_eos": True,
    }
    requests = [
        engine.make_request(PROMPT, SamplingParams(seed=seed, **params), intent=intent, req_id=str(seed))
        for seed in range(NUM_REQUESTS)
    ]
    outputs = [event.finished for event in engine.stream(requests) if event.finished is not None]
    engine.check_idle()
    assert sum(output.stats.accepted for output in outputs) > 0
    assert sum(output.stats.proposed - output.stats.accepted for output in outputs) > 0
    found = Counter(output.token_ids[1:3] for output in outputs)
    expected: dict[tuple[int, ...], float] = {}
    for first, p_first in _distribution(engine, PROMPT).items():
        for second, p_second in _distribution(engine, [*PROMPT, first]).items():
            for third, p_third in _distribution(engine, [*PROMPT, first, second]).items():
                cell = (second, third)
                expected[cell] = expected.get(cell, 0.0) + p_first * p_second * p_third * NUM_REQUESTS
    assert set(found) <= set(expected)
    cells = [cell for cell, count in expected.items() if count >= 5]
    chi_square = sum((found[cell] - expected[cell]) ** 2 / expected[cell] for cell in cells)
    degrees = len(cells)
    assert degrees >= 8
    assert chi_square < degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3


def _distribution(engine: Engine, tokens: list[int]) -> dict[int, float]:
    logits = logits_in_chunks(engine.loaded.model, tokens, [len(tokens)])[-1].double() / TEMPERATURE
    return dict(zip(ALLOWED, torch.softmax(logits[ALLOWED], 0).tolist(), strict=True))
