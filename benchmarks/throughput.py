"""Tokens per second at a given number of concurrent requests, plain against speculative, and where the time goes.

    python benchmarks/throughput.py MODEL --prompts IDS.json [--concurrency 1,4,8,16] [--max-new-tokens 64]
                                    [--speculative '{"method": "auto"}'] [--turns 3] [--repetitions 3] [--json FILE]

IDS.json comes from peers/tokenize_prompts.py; its prompts are taken in turn. Where a request ends the next one begins,
until each place has had `--turns` of them, so that a faster answer leaves no place empty. Lengths lie between half of
`--max-new-tokens` and one and a half times as many, in both arms alike, so that requests do not all end at once. Both
arms run one after the other, the first one alternating; every request has a scope of its own, so nothing is remembered.

total    output tokens per second of all, prompts included
decode   tokens per second of rounds without prompt rows in which every place decodes
ratio    speculative ÷ plain: median of the repetitions' own ratios, least to greatest

Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import deque
from itertools import count, cycle, islice
from pathlib import Path

from draftproof import Engine, SamplingParams, parse_intent
from draftproof.core.cost import RoundCost
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.engine.config import EngineConfig

SCOPES = count()
GOLDEN = 0.618
"""Multiples of it are spread evenly: so are lengths."""


def main() -> None:
    options = parse()
    loads = [int(load) for load in options.concurrency.split(",")]
    prompts = [entry["ids"] for entry in json.loads(Path(options.prompts).read_text(encoding="utf-8"))]
    engine = Engine.load(options.model, dtype=options.dtype, config=EngineConfig(max_num_seqs=max(loads)))
    intents = [NoSpeculation(), parse_intent(options.speculative)]
    run(engine, prompts[:1], intents[1], 1, 1, 8)
    results = []
    print(f"{options.model}: {engine.describe()['weights']}")
    print(
        " load  total: plain, ratio                 decode: plain, ratio                drafting, coordination"
    )
    for load in loads:
        runs: list[list[dict[str, float]]] = [[], []]
        for repetition in range(options.repetitions):
            for arm in (0, 1) if repetition % 2 == 0 else (1, 0):
                runs[arm].append(
                    run(engine, prompts, intents[arm], load, options.turns, options.max_new_tokens)
                )
        print(told(load, runs), flush=True)
        results.append({"concurrency": load, "plain": runs[0], "speculative": runs[1]})
    if options.json:
        certificate = birth_certificate(command_line(), {}, vars(options))
        Path(options.json).write_text(
            json.dumps({"birth_certificate": certificate, "results": results}, indent=2)
        )


def told(load: int, runs: list[list[dict[str, float]]]) -> str:
    line = f"{load:5d}"
    for name in ("total", "decode"):
        ratios = [spec[name] / plain[name] for plain, spec in zip(*runs, strict=True)]
        line += f"  {median(runs[0], name):7.1f}/s {statistics.median(ratios):6.3f}"
        line += f" ({min(ratios):.3f}-{max(ratios):.3f})  "
    coordination = [median(arm, "coordination_share") for arm in runs]
    drafting = median(runs[1], "drafting_share")
    return f"{line}  {drafting:.1%}, {coordination[1]:.1%} (plain {coordination[0]:.1%})"


def median(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in runs)


def run(
    engine: Engine,
    prompts: list[list[int]],
    intent: SpeculationIntent,
    load: int,
    turns: int,
    max_tokens: int,
) -> dict[str, float]:
    """`load * turns` requests, `load` at a time."""
    waiting = deque(
        engine.make_request(
            ids,
            SamplingParams(
                temperature=0.0, max_tokens=max(2, int(max_tokens * (0.5 + GOLDEN * number % 1.0)))
            ),
            intent=intent,
            scope=f"request-{next(SCOPES)}",
        )
        for number, ids in enumerate(islice(cycle(prompts), load * turns))
    )
    engine.take_round_costs()
    num_tokens = 0
    for _ in range(load):
        engine.add_request(waiting.popleft())
    while engine.has_work:
        for event in engine.step():
            num_tokens += len(event.token_ids)
            if event.finished is not None and waiting:
                engine.add_request(waiting.popleft())
    costs = engine.take_round_costs()
    full = [cost for cost in costs if not cost.num_prefill_rows and cost.batch == load]
    decode_s = sum(map(seconds, full))
    return {
        "total": num_tokens / sum(map(seconds, costs)),
        "decode": sum(cost.emitted for cost in full) / decode_s,
        "drafting_share": sum(cost.draft_s for cost in full) / decode_s,
        "coordination_share": sum(cost.coordination_s for cost in full) / decode_s,
    }


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
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", help="also write each run to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
