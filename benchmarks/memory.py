"""How much of its memory limit a process takes when its cache is full, and whether the cache is empty afterwards.

    python benchmarks/memory.py MODEL --memory 2GiB [--speculative JSON] [--requests 8] [--max-new-tokens 16]
                                [--json FILE]

Prompts of random tokens, no two alike, fill nineteen twentieths of the cache. The peak is what the operating system
says of the process (ru_maxrss) at its end, and a process has one peak, so each figure takes a fresh one. Asserts
nothing but that the drained cache equals the one at the start.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
from pathlib import Path

from draftproof import Engine, SamplingParams, parse_intent
from draftproof.cli.options import parse_bytes
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.engine.config import EngineConfig


def main() -> None:
    options = parse()
    limit = parse_bytes(options.memory)
    intent = parse_intent(json.loads(options.speculative))
    config = EngineConfig(memory=limit, speculation=intent, max_num_seqs=options.requests)
    engine = Engine.load(options.model, config=config)
    described = engine.describe()
    capacity = described["kv_token_capacity"]
    length = min(
        capacity * 19 // 20 // options.requests, described["context_length"] - options.max_new_tokens
    )
    draw = random.Random(0)
    params = SamplingParams(temperature=0.0, max_tokens=options.max_new_tokens)
    for _ in range(options.requests):
        engine.add_request(engine.make_request([draw.randrange(1000) for _ in range(length)], params))
    least_free = None
    while engine.has_work:
        engine.step()
        free = engine.stats().cache_in_pass.free
        least_free = free if least_free is None else min(least_free, free)
    engine.check_idle()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(
        f"{options.model}, {options.speculative}: {capacity} tokens of cache, {options.requests} prompts of {length}"
    )
    print(
        f"peak {peak / 2**20:.0f} MiB of {limit / 2**20:.0f} ({peak / limit:.1%}); "
        f"blocks free at the fullest {least_free}"
    )
    if options.json:
        result = {
            "memory": described["memory"],
            "peak_bytes": peak,
            "limit_bytes": limit,
            "least_free_blocks": least_free,
        }
        certificate = birth_certificate(command_line(), {}, vars(options))
        Path(options.json).write_text(json.dumps({"birth_certificate": certificate, **result}, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--memory", required=True)
    parser.add_argument("--speculative", default='{"method": "auto"}')
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
