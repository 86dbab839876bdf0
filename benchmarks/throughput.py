"""Tokens per second at a given number of concurrent requests, plain against speculative, and where the time goes.

    python benchmarks/throughput.py MODEL --prompts IDS.json [--concurrency 1,4,8,16] [--max-new-tokens 64]
                                    [--speculative '{"method": "auto"}'] [--turns 3] [--seconds 60] [--cold]
                                    [--json FILE]

IDS.json comes from peers/tokenize_prompts.py; its prompts are taken in turn. Where a request ends the next one begins,
until each place has had `--turns` of them, so that a faster answer leaves no place empty. Lengths lie between half of
`--max-new-tokens` and one and a half times as many, in both arms alike, so that requests do not all end at once. Every
request has a scope of its own, so nothing is remembered.

Two engines share the model's weights and serve the same queue in turns, 8 tokens of each place at a time, plain first
and then speculative first (ABBA), so that a machine that slows down does so for both. Queues are served until
`--seconds` are over (at least one). The controller keeps what it has learnt of earlier ones (warm), or with `--cold`
begins each queue knowing nothing, as a new process does.

total    output tokens per second of all, prompts included: plain's, and speculative ÷ plain
decode   the same of rounds without prompt rows in which every place decodes. Drafts are taken in rounds with prompt
         rows, too, where they cost least: this column does not see them
ratio    of sums over all turns, with percentile bootstrap intervals over blocks of four turns

Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Sequence
from itertools import count, cycle, islice
from pathlib import Path

import numpy as np

from draftproof import Engine, SamplingParams, parse_intent
from draftproof.core.cost import RoundCost
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.engine.config import EngineConfig
from draftproof.engine.controller import DepthController

SCOPES = count()
GOLDEN = 0.618
"""Multiples of it are spread evenly: so are lengths."""
SLICE, BLOCK, RESAMPLES = 8, 4, 2000

Turn = tuple[int, list[RoundCost]]
"""Tokens of one turn, and its rounds."""


def main() -> None:
    options = parse()
    loads = [int(load) for load in options.concurrency.split(",")]
    prompts = [entry["ids"] for entry in json.loads(Path(options.prompts).read_text(encoding="utf-8"))]
    config = EngineConfig(max_num_seqs=max(loads))
    plain = Arm(Engine.load(options.model, dtype=options.dtype, config=config), NoSpeculation())
    arms = plain, Arm(Engine(plain.engine.loaded, config), parse_intent(options.speculative))
    queue(arms, prompts[:1], 1, 1, 8)
    results = []
    print(f"{options.model}: {plain.engine.describe()['weights']}")
    print(" load  total: plain, ratio              decode: plain, ratio             drafting, coordination")
    for load in loads:
        turns: list[tuple[Turn, Turn]] = []
        until_s = time.perf_counter() + options.seconds
        while not turns or time.perf_counter() < until_s:
            if options.cold:
                arms[1].engine._controller = DepthController(config.objective)
            turns += queue(arms, prompts, load, options.turns, options.max_new_tokens)
        found = summary(turns, load)
        print(told(load, found), flush=True)
        results.append({"concurrency": load, **found})
    if options.json:
        certificate = birth_certificate(command_line(), {}, vars(options))
        Path(options.json).write_text(
            json.dumps({"birth_certificate": certificate, "results": results}, indent=2)
        )


class Arm:
    """One engine, and what waits for a place in it."""

    def __init__(self, engine: Engine, intent: SpeculationIntent) -> None:
        self.engine = engine
        self.intent = intent
        self.num_tokens = 0

    def begin(self, prompts: Sequence[list[int]], lengths: Sequence[int], load: int) -> None:
        self.num_tokens = 0
        self.waiting = deque(
            self.engine.make_request(
                ids,
                SamplingParams(temperature=0.0, max_tokens=length),
                intent=self.intent,
                scope=f"request-{next(SCOPES)}",
            )
            for ids, length in zip(prompts, lengths, strict=True)
        )
        for _ in range(load):
            self.engine.add_request(self.waiting.popleft())

    def upto(self, num_tokens: int) -> Turn:
        before = self.num_tokens
        while self.engine.has_work and self.num_tokens < num_tokens:
            for event in self.engine.step():
                self.num_tokens += len(event.token_ids)
                if event.finished is not None and self.waiting:
                    self.engine.add_request(self.waiting.popleft())
        return self.num_tokens - before, self.engine.take_round_costs()


def queue(
    arms: tuple[Arm, Arm], prompts: list[list[int]], load: int, turns: int, max_tokens: int
) -> list[tuple[Turn, Turn]]:
    """`load * turns` requests by both, `load` at a time; turns of plain and speculative decoding in pairs."""
    chosen = list(islice(cycle(prompts), load * turns))
    lengths = [max(2, int(max_tokens * (0.5 + GOLDEN * number % 1.0))) for number in range(len(chosen))]
    for arm in arms:
        arm.begin(chosen, lengths, load)
    done: list[tuple[Turn, Turn]] = []
    while any(arm.engine.has_work for arm in arms):
        end = max(arm.num_tokens for arm in arms) + SLICE * load
        order = arms if len(done) % 2 == 0 else arms[::-1]
        found = {arm: arm.upto(end) for arm in order}
        done.append((found[arms[0]], found[arms[1]]))
    return done


def summary(turns: Sequence[tuple[Turn, Turn]], load: int) -> dict[str, dict[str, float]]:
    """Rates of plain decoding and ratios to them; shares of the time of the rounds in which every place decodes."""

    def full(costs: Sequence[RoundCost]) -> list[RoundCost]:
        return [cost for cost in costs if not cost.num_prefill_rows and cost.batch == load]

    def decode(turn: Turn) -> tuple[float, float]:
        rounds = full(turn[1])
        return sum(cost.emitted for cost in rounds), sum(map(seconds, rounds))

    def total(turn: Turn) -> tuple[float, float]:
        return turn[0], sum(map(seconds, turn[1]))

    found: dict[str, dict[str, float]] = {}
    for name, of in (("total", total), ("decode", decode)):
        sums = np.array([[*of(plain), *of(spec)] for plain, spec in turns])
        starts = np.arange(0, len(sums), BLOCK)
        blocks = np.add.reduceat(sums, starts)
        blocks = blocks[blocks.all(axis=1)]
        drawn = np.random.default_rng(0).integers(len(blocks), size=(RESAMPLES, len(blocks)))
        low, high = np.percentile(ratio(blocks[drawn].sum(axis=1)), [2.5, 97.5])
        whole = sums.sum(axis=0)
        found[name] = {
            "plain_tokens_per_s": float(whole[0] / whole[1]),
            "ratio": float(ratio(whole)),
            "low": float(low),
            "high": float(high),
        }
    for name, arm in (("plain", 0), ("speculative", 1)):
        rounds = [cost for turn in turns for cost in full(turn[arm][1])]
        decode_s = sum(map(seconds, rounds))
        found[name] = {
            "drafting_share": sum(cost.draft_s for cost in rounds) / decode_s,
            "coordination_share": sum(cost.coordination_s for cost in rounds) / decode_s,
        }
    return found


def ratio(sums: np.ndarray) -> np.ndarray:
    """[..., 4] plain tokens, seconds, speculative tokens, seconds: speculative ÷ plain rate."""
    return (sums[..., 2] / sums[..., 3]) / (sums[..., 0] / sums[..., 1])


def told(load: int, found: dict[str, dict[str, float]]) -> str:
    line = f"{load:5d}"
    for name in ("total", "decode"):
        of = found[name]
        line += f"  {of['plain_tokens_per_s']:7.1f}/s {of['ratio']:6.3f} ({of['low']:.3f}-{of['high']:.3f})  "
    plain, spec = found["plain"], found["speculative"]
    return (
        f"{line}  {spec['drafting_share']:.1%}, {spec['coordination_share']:.1%} "
        f"(plain {plain['coordination_share']:.1%})"
    )


def seconds(cost: RoundCost) -> float:
    return cost.draft_s + cost.verify_s + cost.prefill_s + cost.coordination_s


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--concurrency", default="1,4,8,16")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--speculative", default='{"method": "auto"}')
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--cold", action="store_true", help="a new controller for each queue")
    parser.add_argument("--json", help="also write the results to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
