"""What look-up costs: microseconds per draft and per update at growing context, for every look-up proposer.

    python benchmarks/lookup.py [--contexts 1024,8192,32768] [--rounds 300] [--json]

A request copies real text (source files of the standard library, cut into words and signs, with a word changed now
and then) and each round is timed: `propose` (indexing what came, look-up, building the batch), `commit`, and inside
`propose` the look-up alone. The pool of the suffix proposer holds a hundred earlier outputs. Prints medians; asserts
nothing. Times are CPU time of the thread, so that a busy machine disturbs them less.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import statistics
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftproof.core.intent import Auto, NGram, Predicted, SpeculationIntent, Suffix
from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.registry import create_proposer
from draftproof.verify.types import Verdict

INTENTS: dict[str, SpeculationIntent] = {
    "ngram": NGram(num_speculative_tokens=16),
    "suffix": Suffix(),
    "predicted": Predicted(),
    "auto": Auto(),
}
DEPTH = 16
CHANGED_SHARE = 0.02
NUM_POOL_OUTPUTS = 100
POOL_OUTPUT_TOKENS = 400


def words(num_tokens: int) -> list[int]:
    """Real text as token ids: words, signs and runs of space of the standard library's source."""
    ids: dict[str, int] = {}
    found: list[int] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [ids.setdefault(word, len(ids)) for word in re.findall(r"\w+|\s+|[^\w\s]", text)]
        if len(found) >= num_tokens:
            break
    return found[:num_tokens]


def changed(text: list[int], rng: random.Random) -> list[int]:
    return [token if rng.random() > CHANGED_SHARE else rng.randrange(10**6) for token in text]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and seconds of this thread."""
    started = time.thread_time()
    result = call()
    return result, time.thread_time() - started


def batch_us(num_rounds: int = 2000) -> float:
    """Building one batch of one chain, part of every `propose`."""
    chain = list(range(DEPTH))
    return statistics.median(timed(lambda: DraftBatch.chains([chain]))[1] for _ in range(num_rounds)) * 1e6


def fill_pool(proposer: Proposer, source: list[int]) -> float:
    """Ends earlier requests; returns the microseconds per remembered token."""
    spent = 0.0
    for number in range(NUM_POOL_OUTPUTS):
        start = number * POOL_OUTPUT_TOKENS
        output = source[start : start + POOL_OUTPUT_TOKENS]
        view = SequenceView(f"earlier {number}", [1, *output], 1, SamplingParams())
        proposer.begin(view)
        spent += timed(lambda view=view: proposer.end(view))[1]  # type: ignore[misc]
    return spent / (NUM_POOL_OUTPUTS * POOL_OUTPUT_TOKENS) * 1e6


def measure(intent: SpeculationIntent, context: int, num_rounds: int) -> dict[str, Any]:
    """One request with `context` tokens of prompt that are then copied with changes."""
    rng = random.Random(1)
    source = words(context + NUM_POOL_OUTPUTS * POOL_OUTPUT_TOKENS)
    prompt = source[:context]
    coming = changed(prompt * (1 + num_rounds * (DEPTH + 1) // context), rng)
    proposer = create_proposer(intent)
    pool_us = fill_pool(proposer, source[context:])
    view = SequenceView("r", list(prompt), context, SamplingParams(), prediction=prompt, depth=DEPTH)
    _, begin_s = timed(lambda: proposer.begin(view))
    view.token_ids.append(coming[0])
    _, first_s = timed(lambda: proposer.propose([view], [DEPTH]))
    done, propose_s, commit_s, num_emitted = 1, [], [], []
    for _ in range(num_rounds):
        batch, spent = timed(lambda: proposer.propose([view], [DEPTH]))
        propose_s.append(spent)
        draft = batch.tokens.tolist()
        agreed = 0
        while agreed < len(draft) and draft[agreed] == coming[done + agreed]:
            agreed += 1
        run = coming[done : done + agreed + 1]
        done += len(run)
        view.token_ids.extend(run)
        verdict = Verdict(tuple(range(1, agreed + 1)), tuple(run[:-1]), run[-1])
        commit_s.append(timed(lambda verdict=verdict: proposer.commit([view], [verdict]))[1])  # type: ignore[misc]
        num_emitted.append(len(run))
    return {
        "method": intent.method,
        "context": context,
        "propose_us": statistics.median(propose_s) * 1e6,
        "propose_us_p95": statistics.quantiles(propose_s, n=20)[-1] * 1e6,
        "commit_us": statistics.median(commit_s) * 1e6,
        "emitted_per_round": statistics.mean(num_emitted),
        "prompt_ms": (begin_s + first_s) * 1e3,
        "pool_us_per_token": pool_us,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", default="1024,8192,32768")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    contexts = [int(part) for part in args.contexts.split(",")]
    batch = batch_us()
    rows = [measure(intent, context, args.rounds) for intent in INTENTS.values() for context in contexts]
    if args.json:
        print(
            json.dumps(
                {"schema_version": 1, "python": platform.python_version(), "batch_us": batch, "rows": rows}
            )
        )
        return
    print(
        f"Python {platform.python_version()}, {platform.machine()}; building one batch alone: {batch:.0f} us"
    )
    print(
        "| method | context | propose us (p95) | look-up us | commit us | emitted/round | prompt ms | pool us/token |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['method']} | {row['context']} | {row['propose_us']:.0f} ({row['propose_us_p95']:.0f}) "
            f"| {max(0.0, row['propose_us'] - batch):.0f} | {row['commit_us']:.0f} | {row['emitted_per_round']:.1f} "
            f"| {row['prompt_ms']:.1f} | {row['pool_us_per_token']:.1f} |"
        )


if __name__ == "__main__":
    main()
