"""Drafters for tests, by what they are like, and a loader that plants faults in their models."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.core.intent import Auto, Cascade, DraftModel, NGram, SelfDraft, SpeculationIntent, Suffix
from draftproof.kv.cache import KVCache
from draftproof.models.base import ForwardBatch, Model
from draftproof.models.loading import LoadedModel, load_model
from support.checkpoints import write_checkpoint
from support.specs import Spec

KINDS = ("good", "bad", "other-vocabulary", "short", "nan", "crashing")


def write_drafters(folder: Path, target: Spec) -> None:
    """One checkpoint per kind: the target itself, another of its shape, one with another vocabulary, one with fewer
    positions, and two whose faults `FaultyLoader` plants."""
    small = dataclasses.replace(target, layers=1, intermediate=64, seed=target.seed + 1)
    write_checkpoint(folder / "good", target)
    write_checkpoint(folder / "bad", small)
    write_checkpoint(folder / "other-vocabulary", small, vocab=target.vocab - 20)
    give_other_ids(folder / "other-vocabulary")
    write_checkpoint(folder / "short", target, context=64)
    for kind in ("nan", "crashing"):
        write_checkpoint(folder / kind, target)


def give_other_ids(folder: Path) -> None:
    """Turns the order of the vocabulary round, special tokens aside: the same tokens under other ids."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    vocab = document["model"]["vocab"]
    special = {token["content"] for token in document["added_tokens"]}
    ordinary = sorted((token for token in vocab if token not in special), key=vocab.__getitem__)
    ids = [vocab[token] for token in ordinary]
    vocab.update(zip(ordinary, reversed(ids), strict=True))
    path.write_text(json.dumps(document), encoding="utf-8")


def drafter_intents(folder: Path) -> list[SpeculationIntent]:
    """Every way in which a drafter with weights takes part."""
    models = {kind: str(folder / kind) for kind in KINDS}
    own = SelfDraft(num_speculative_tokens=5, adaptive=False)
    return [
        *(
            DraftModel(model=models[kind], num_speculative_tokens=depth, adaptive=False)
            for kind, depth in zip(KINDS, (6, 3, 4, 5, 3, 3), strict=True)
        ),
        DraftModel(
            model=models["good"], draft_sample_method="greedy", verification="coupled", adaptive=False
        ),
        DraftModel(model=models["good"], num_speculative_tokens=1, draft_weights="native"),
        own,
        Cascade(
            proposers=(NGram(prompt_lookup_min=1), DraftModel(model=models["other-vocabulary"])),
            adaptive=False,
        ),
        Cascade(proposers=(Suffix(), DraftModel(model=models["crashing"]), SelfDraft()), adaptive=False),
        Auto(model=models["good"], num_speculative_tokens=6),
        Auto(model="self", num_speculative_tokens=6),
    ]


class FaultyModel:
    """A model that now and then crashes, or whose logits are NaN; a function of the rows alone."""

    def __init__(self, model: Model, fault: str) -> None:
        self.config, self.dtype, self.kernels = model.config, model.dtype, model.kernels
        self._model = model
        self._fault = fault

    def new_cache(self, num_blocks: int) -> KVCache:
        return self._model.new_cache(num_blocks)

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        logits = self._model.forward(batch, cache)
        for row, logit_row in enumerate(batch.logit_rows.tolist()):
            position, token = int(batch.positions[logit_row]), int(batch.token_ids[logit_row])
            if random.Random(f"{position} {token}").random() < 0.15:
                if self._fault == "crashing":
                    raise RuntimeError("a planted fault of the drafter")
                logits[row, token] = float("nan")
        return logits


class FaultyLoader:
    """`load_model` that keeps what it loaded and plants faults by the folder's name."""

    def __init__(self) -> None:
        self._load = functools.cache(load_model)

    def __call__(self, path: Path, **options: Any) -> LoadedModel:
        loaded = self._load(path, **options)
        if path.name in ("nan", "crashing"):
            faulty: Any = FaultyModel(loaded.model, path.name)
            return dataclasses.replace(loaded, model=faulty)
        return loaded
