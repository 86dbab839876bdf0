"""Total output tokens per second of many requests at once, plain against speculative, and where the time goes.

    python benchmarks/throughput.py MODEL --prompts IDS.json [--concurrency 1,4,8,16] [--max-new-tokens 96]
                                    [--speculative '{"method": "auto"}'] [--repetitions 2] [--json FILE]

IDS.json comes from peers/tokenize_prompts.py; its prompts are taken in turn until a load is full. Both arms run one
after the other, the first one alternating; every request has a scope of its own, so nothing is remembered. Decode
throughput counts tokens behind the first of each request per second of rounds without prompt rows; the ratio is
speculative ÷ plain. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import count, cycle, islice
from pathlib import Path

from draftproof import Engine, SamplingParams, parse_intent
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.engine.config import EngineConfig

SCOPES = count()


def main() -> None:
    options = parse()
    loads = [int(load) for load in options.concurrency.split(",")]
    prompts = [entry["ids"] for entry in json.loads(Path(options.prompts).read_text(encoding="utf-8"))]
    engine = Engine.load(options.model, dtype=options.dtype, config=EngineConfig(max_num_seqs=max(loads)))
    intents = [NoSpeculation(), parse_intent(options.speculative)]
    run(engine, prompts[:1], intents[1], 8)
    results = []
    print(f"{options.model}: {engine.describe()['weights']}")
    print(" load  plain tok/s  speculative  ratio  coordination (plain, speculative)")
    for load in loads:
        batch = list(islice(cycle(prompts), load))
        runs: list[list[dict[str, float]]] = [[], []]
        for repetition in range(options.repetitions):
            for arm in (0, 1) if repetition % 2 == 0 else (1, 0):
                runs[arm].append(run(engine, batch, intents[arm], options.max_new_tokens))
        medians = [statistics.median(result["tokens_per_s"] for result in arm) for arm in runs]
        shares = [statistics.median(result["coordination_share"] for result in arm) for arm in runs]
        print(
            f"{load:5d} {medians[0]:12.1f} {medians[1]:12.1f} {medians[1] / medians[0]:6.2f}"
            f"  {shares[0]:.1%}, {shares[1]:.1%}"
        )
        results.append({"concurrency": load, "plain": runs[0], "speculative": runs[1]})
    if options.json:
        certificate = birth_certificate(command_line(), {}, vars(options))
        Path(options.json).write_text(
            json.dumps({"birth_certificate": certificate, "results": results}, indent=2)
        )


def run(
    engine: Engine, prompts: list[list[int]], intent: SpeculationIntent, max_tokens: int
) -> dict[str, float]:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    requests = [
        engine.make_request(ids, params, intent=intent, scope=f"request-{next(SCOPES)}") for ids in prompts
    ]
    engine.take_round_costs()
    for _ in engine.stream(requests):
        pass
    rounds = [cost for cost in engine.take_round_costs() if not cost.num_prefill_rows]
    coordination_s = sum(cost.coordination_s for cost in rounds)
    seconds = coordination_s + sum(cost.draft_s + cost.verify_s for cost in rounds)
    emitted = sum(cost.emitted for cost in rounds)
    return {"tokens_per_s": emitted / seconds, "coordination_share": coordination_s / seconds}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--concurrency", default="1,4,8,16")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--speculative", default='{"method": "auto"}')
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--json", help="also write each run to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
