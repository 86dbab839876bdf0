"""Is speculation ever slower than plain decoding? Short stretches of both in turns, on the same answers.

    python benchmarks/pairs.py MODEL --prompts IDS.json [--speculative '{"method": "auto"}'] [--max-new-tokens 128]
                               [--stretch 24] [--seconds 160] [--only KIND] [--records FILE]

IDS.json comes from peers/tokenize_prompts.py. Two engines share the model's weights. Both have read the same prompt,
and each in its turn decodes `--stretch` tokens of the answer, plain first, then speculative first (ABBA), so that a
machine that slows down does so for both. One answer after another until `--seconds` are over, each with a controller
that knows nothing (cold: the first request of a process) and with one that has seen the answers before it (warm).
Every answer has a scope of its own, so no text is remembered.

Ratios are speculative ÷ plain speed, with percentile bootstrap intervals over answers:

median    of all pairs of stretches: odd pauses count for nothing, and neither does what costs time seldom
whole     of the answers' own ratios the median: what is seldom counts, and a pause spoils one answer
prompt    of the prompts' own: seconds to the first token, plain ÷ speculative
same      answers whose tokens were the same
by place  medians of the first, second, … stretch: what a request's start costs

With `--records` answers are added to a file, and those in it of the same model, method and lengths are counted too.
`--speculative '{"method": "none"}'` shows what the machine's noise alone looks like. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np

from draftproof import Engine, SamplingParams, parse_intent
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.engine.config import EngineConfig
from draftproof.engine.controller import DepthController

RESAMPLES = 2000
SCOPES = count()


class Arm:
    """One engine that decodes an answer stretch by stretch."""

    def __init__(self, engine: Engine, intent: SpeculationIntent) -> None:
        self.engine = engine
        self.intent = intent
        self.token_ids: list[int] = []
        self.ended = True

    def begin(self, ids: list[int], max_tokens: int) -> float:
        """Seconds to the first token."""
        self.token_ids, self.ended = [], False
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        request = self.engine.make_request(ids, params, intent=self.intent, scope=f"answer-{next(SCOPES)}")
        self.engine.add_request(request)
        return self.upto(1)

    def upto(self, num_tokens: int) -> float:
        """Seconds until the answer has so many tokens, or its end."""
        started_s = time.perf_counter()
        while not self.ended and len(self.token_ids) < num_tokens:
            for event in self.engine.step():
                self.token_ids.extend(event.token_ids)
                self.ended = event.finished is not None
        return time.perf_counter() - started_s


def answer(
    plain: Arm, speculative: Arm, ids: list[int], max_tokens: int, stretch: int, turn: int
) -> dict[str, Any]:
    """One answer by both. Per stretch: [plain tokens, seconds, speculative tokens, seconds, of these drafting]."""
    arms = (plain, speculative)
    orders = (arms, arms[::-1])
    prompt_s = {arm: arm.begin(ids, max_tokens) for arm in orders[turn % 2]}
    stretches = []
    while not (plain.ended or speculative.ended):
        end = max(len(arm.token_ids) for arm in arms) + stretch
        found: dict[Arm, tuple[int, float]] = {}
        speculative.engine.take_round_costs()
        for arm in orders[(turn + len(stretches)) % 2]:
            before = len(arm.token_ids)
            seconds = arm.upto(end)
            found[arm] = len(arm.token_ids) - before, seconds
        draft_s = sum(cost.draft_s for cost in speculative.engine.take_round_costs())
        stretches.append([*found[plain], *found[speculative], draft_s])
    for arm in arms:
        arm.upto(max_tokens)
    return {
        "prompt_s": [prompt_s[arm] for arm in arms],
        "stretches": stretches,
        "same": plain.token_ids == speculative.token_ids,
        "num_tokens": len(plain.token_ids),
    }


def ratios(record: dict[str, Any], stretch: int) -> list[float]:
    """Speculative ÷ plain speed of every stretch that is not a mere end."""
    return [
        (drafted / drafted_s) / (tokens / seconds)
        for tokens, seconds, drafted, drafted_s, _ in record["stretches"]
        if 2 * min(tokens, drafted) >= stretch
    ]


def whole(record: dict[str, Any]) -> float:
    """Speculative ÷ plain speed of an answer, over all of its stretches."""
    tokens, seconds, drafted, drafted_s, _ = np.sum(record["stretches"], axis=0)
    return float((drafted / drafted_s) / (tokens / seconds))


def interval(groups: Sequence[Sequence[float]]) -> str:
    """Median of all values and its 95 % interval when groups (answers) are drawn anew."""
    rng = np.random.default_rng(0)
    medians = [
        np.median(np.concatenate([groups[at] for at in rng.integers(len(groups), size=len(groups))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{np.median(np.concatenate(groups)):.3f} ({low:.3f}-{high:.3f})"


def told(records: list[dict[str, Any]], stretch: int) -> Iterator[str]:
    """A line per prompt, per kind and for all, with a cold controller and with a warm one."""
    yield f"{'':18} {'':5} answers pairs  median                whole                 prompt    same  by place"
    by_name: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        for rank, name in enumerate((record["name"], f"all {record['kind']}", "all")):
            by_name[rank, name, record["controller"]].append(record)
    for (_, name, controller), chosen in sorted(by_name.items()):
        groups = [found for record in chosen if (found := ratios(record, stretch))]
        if not groups:
            yield f"{name:18} {controller:5} no answer is long enough"
            continue
        places = [
            np.median([group[place] for group in groups if place < len(group)])
            for place in range(max(map(len, groups)))
        ]
        prompt = np.median([first / other for first, other in (record["prompt_s"] for record in chosen)])
        yield (
            f"{name:18} {controller:5} {len(groups):7d} {sum(map(len, groups)):5d}  {interval(groups)}"
            f"  {interval([[whole(record)] for record in chosen])}  {prompt:.3f}"
            f"  {sum(record['same'] for record in chosen):3d}/{len(chosen)}  "
            + " ".join(f"{place:.2f}" for place in places)
        )


def measure(
    options: argparse.Namespace, prompts: list[dict[str, Any]], keep: Callable[[dict[str, Any]], None]
) -> None:
    """Answers until time is over; `keep` takes each."""
    config = EngineConfig(max_num_seqs=1)
    plain = Arm(Engine.load(options.model, dtype=options.dtype, config=config), NoSpeculation())
    speculative = Arm(Engine(plain.engine.loaded, config), parse_intent(options.speculative))
    print(f"{options.model}: {plain.engine.describe()['weights']}", flush=True)
    controllers: dict[str, DepthController] = {"warm": DepthController(config.objective)}
    # Loads a drafter, touches memory and warms the one controller; not counted.
    speculative.engine._controller = controllers["warm"]
    answer(plain, speculative, prompts[0]["ids"], options.stretch, options.stretch, 0)
    until_s = time.perf_counter() + options.seconds
    for number, prompt in enumerate(cycle(prompts)):
        turn = number // len(prompts)
        for controller in ("cold", "warm") if turn % 2 == 0 else ("warm", "cold"):
            if time.perf_counter() > until_s:
                return
            controllers["cold"] = DepthController(config.objective)
            speculative.engine._controller = controllers[controller]
            record = answer(plain, speculative, prompt["ids"], options.max_new_tokens, options.stretch, turn)
            keep({"name": prompt["name"], "kind": prompt["kind"], "controller": controller, **record})


def main() -> None:
    options = parse()
    prompts = json.loads(Path(options.prompts).read_text(encoding="utf-8"))
    prompts = [prompt for prompt in prompts if options.only in (None, prompt["kind"])]
    measured = {
        name: getattr(options, name)
        for name in ("model", "dtype", "speculative", "max_new_tokens", "stretch")
    }
    records: list[dict[str, Any]] = []
    file = Path(options.records) if options.records else None
    if file is not None and file.exists():
        known = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        records = [record for record in known if record["measured"] == measured]
    certificate = birth_certificate(command_line(), {}, vars(options))

    def keep(record: dict[str, Any]) -> None:
        records.append(record)
        if file is not None:
            with file.open("a", encoding="utf-8") as lines:
                print(json.dumps({**record, "measured": measured, "certificate": certificate}), file=lines)

    measure(options, prompts, keep)
    for line in told(records, options.stretch):
        print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--speculative", default='{"method": "auto"}')
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--stretch", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=160.0)
    parser.add_argument("--only", help="prompts of this kind")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--records", help="also add each answer to this file, and count those in it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
