"""What speculation costs where it gains little: recorded texts, replayed on a clock that load does not disturb.

    python benchmarks/overhead.py TEXTS.json [--concurrency 4,8,16] [--first-ms 2.0] [--row 0.32] [--max-new-tokens 64]
                                  [--speculative '{"method": "auto"}'] [--turns 5] [--repetitions 3]

TEXTS.json: [{"ids": prompt token ids, "out": output token ids}, …]. The whole engine runs but the model: a pass of r
rows is taken to last `first-ms` (1 + `row` (r - 1)), give or take 5 %, and everything else what it takes of the
processor's time. Loads, lengths and columns are those of throughput.py. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from throughput import Arm, Turn, queue, summary, told
from torch import Tensor

import draftproof.engine.drafting
import draftproof.engine.engine
import draftproof.engine.sequence
from draftproof import Engine, parse_intent
from draftproof.core.intent import NoSpeculation
from draftproof.engine.config import EngineConfig
from draftproof.engine.scheduler import Scheduled
from draftproof.engine.selftest import SelfTest
from draftproof.kv.cache import KVCache
from draftproof.models.base import ForwardBatch, LayerConfig, ModelConfig, RopeConfig
from draftproof.ops.draft_batch import DraftBatch

SPREAD = 0.05


class Clock:
    """This thread's processor time, and what passes are taken to last. Stands for the module `time`."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.added_s = 0.0

    def perf_counter(self) -> float:
        return time.thread_time() + self.added_s


class Replay:
    """Says what was recorded of the request in each segment."""

    kernels = "native"
    dtype = torch.float32

    def __init__(self, texts: list[dict[str, list[int]]], first_s: float, row: float, clock: Clock) -> None:
        self.config = ModelConfig(
            architecture="replay",
            vocab_size=1 + max(max(text["ids"] + text["out"]) for text in texts),
            hidden_size=8,
            intermediate_size=8,
            layers=(LayerConfig(RopeConfig(theta=1e4)),),
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            rms_norm_eps=1e-5,
            context_length=1 + max(len(text["ids"] + text["out"]) for text in texts),
            tie_embeddings=True,
            eos_token_ids=(),
        )
        self._texts = {tuple(text["ids"]): text["ids"] + text["out"] for text in texts}
        self._cost = lambda rows: first_s * (1 + row * (rows - 1))
        self._clock = clock
        self._rng = random.Random(0)
        self._running: list[list[int]] = []

    def new_cache(self, num_blocks: int) -> KVCache:
        return KVCache(1, num_blocks, 1, 8, torch.float32)

    def expect(self, scheduled: list[Scheduled]) -> None:
        """Whose segments the next pass has."""
        self._running = [self._texts[item.sequence.request.prompt_token_ids] for item in scheduled]

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        started_s = time.thread_time()
        tokens = [
            text[min(segment.context_len + row + 1, len(text) - 1)]
            for segment, text in zip(batch.segments, self._running, strict=True)
            for row in range(segment.num_rows)
        ]
        logits = torch.zeros(len(batch.logit_rows), self.config.vocab_size)
        logits[torch.arange(len(logits)), torch.tensor(tokens)[batch.logit_rows]] = 1.0
        seconds = self._cost(len(tokens)) * math.exp(self._rng.gauss(0.0, SPREAD))
        self._clock.added_s += seconds - (time.thread_time() - started_s)
        return logits


def replay_engine(options: argparse.Namespace, texts: list[dict[str, list[int]]], most: int) -> Engine:
    torch.set_num_threads(1)
    clock = Clock()
    model = Replay(texts, options.first_ms / 1e3, options.row, clock)
    modules: list[Any] = [draftproof.engine.engine, draftproof.engine.drafting, draftproof.engine.sequence]
    for module in modules:
        module.time = clock
    build_pass = modules[0].build_pass

    def build(scheduled: list[Scheduled], draft: DraftBatch) -> Any:
        model.expect(scheduled)
        return build_pass(scheduled, draft)

    modules[0].build_pass = build
    modules[0].check_bits = lambda model: SelfTest(True, "nothing is computed")
    tokenizer = SimpleNamespace(vocab_size=model.config.vocab_size, decode=lambda ids: " " * len(ids))
    loaded: Any = SimpleNamespace(model=model, config=model.config, tokenizer=tokenizer)
    return Engine(loaded, EngineConfig(max_num_seqs=most, cache_bytes=1 << 26))


def main() -> None:
    options = parse()
    loads = [int(load) for load in options.concurrency.split(",")]
    texts = json.loads(Path(options.texts).read_text(encoding="utf-8"))
    plain = Arm(replay_engine(options, texts, max(loads)), NoSpeculation())
    speculative = Engine(plain.engine.loaded, plain.engine.config)
    arms = plain, Arm(speculative, parse_intent(options.speculative))
    prompts = [text["ids"] for text in texts]
    print(f"a pass of r rows: {options.first_ms} ms × (1 + {options.row} (r - 1))")
    for load in loads:
        turns: list[tuple[Turn, Turn]] = []
        for _ in range(options.repetitions):
            turns += queue(arms, prompts, load, options.turns, options.max_new_tokens)
        print(told(load, summary(turns, load)), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts")
    parser.add_argument("--concurrency", default="4,8,16")
    parser.add_argument("--first-ms", type=float, default=2.0)
    parser.add_argument("--row", type=float, default=0.32)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--speculative", default='{"method": "auto"}')
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
