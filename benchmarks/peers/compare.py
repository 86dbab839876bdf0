"""Several engines on the same token ids, weights and machine, in one run: decode speed as paired ratios.

Each repetition runs every arm once, in an order that turns by one place, each in its own process. An arm is
NAME=COMMAND; `{prompts}` in the command stands for the file of token ids. The first arm is divided by each of the
others. Example (paths are yours):

  python benchmarks/peers/compare.py --prompts ids.json --repetitions 3 --out result.json \
    --arm 'plain=python benchmarks/peers/run_draftproof.py --model model-hf --prompts {prompts}' \
    --arm 'transformers=python benchmarks/peers/run_transformers.py --model model-hf --prompts {prompts}'
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from draftproof.core.provenance import birth_certificate, command_line
from draftproof.core.stats import geometric_mean, paired_ratio


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--arm", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", required=True, help="JSON with the raw records and the ratios")
    args = parser.parse_args()
    arms = dict(arm.split("=", 1) for arm in args.arm)
    runs = defaultdict(list)
    for repetition in range(args.repetitions):
        names = list(arms)
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"repetition {repetition + 1} of {args.repetitions}: {name}", file=sys.stderr)
            command = shlex.split(arms[name].replace("{prompts}", args.prompts))
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            documents = [
                line for line in done.stdout.splitlines() if line.startswith("{")
            ]  # engines chat too
            runs[name].append(json.loads(documents[-1]))
    ratios = compare(runs)
    certificate = birth_certificate(command_line(), {}, {"repetitions": args.repetitions})
    Path(args.out).write_text(
        json.dumps({"certificate": certificate, "arms": arms, "ratios": ratios, "runs": runs})
    )
    print(table(runs, ratios))


def start_of(arm_runs):
    return geometric_mean([run["start_s"] for run in arm_runs])


def speeds(runs):
    """Decode tokens/s by (kind, prompt): the geometric mean over repetitions."""
    by_prompt = defaultdict(list)
    for run in runs:
        for result in run["results"]:
            by_prompt[result["kind"], result["name"]].append(result["decode_tokens_per_s"])
    return {key: geometric_mean(values) for key, values in by_prompt.items()}


def compare(runs):
    """Per kind and over all: the first arm divided by each other, with the share of common leading tokens."""
    first = next(iter(runs))
    ours = speeds(runs[first])
    found = []
    for name in list(runs)[1:]:
        theirs = speeds(runs[name])
        for kind in [*dict.fromkeys(kind for kind, _ in ours), "all"]:
            keys = [key for key in ours if kind in (key[0], "all")]
            estimate = paired_ratio([ours[key] for key in keys], [theirs[key] for key in keys])
            found.append({"of": first, "to": name, "kind": kind, **asdict(estimate)})
    return found


def same_text(runs, first, name):
    """Prompts whose output ids are equal, of how many."""
    one, other = ({r["name"]: r["output_ids"] for r in runs[arm][0]["results"]} for arm in (first, name))
    return f"{sum(one[prompt] == other[prompt] for prompt in one)}/{len(one)}"


def table(runs, ratios):
    first = next(iter(runs))
    kinds = list(dict.fromkeys(kind for kind, _ in speeds(runs[first])))
    lines = [
        f"| arm | {' | '.join(kinds)} | prefill s | start s | text as {first} |",
        "|---" * (len(kinds) + 4) + "|",
    ]
    for name, arm_runs in runs.items():
        by_kind = speeds(arm_runs)
        cells = [f"{geometric_mean([v for (k, _), v in by_kind.items() if k == kind]):.1f}" for kind in kinds]
        prefill = geometric_mean([r["prefill_s"] for run in arm_runs for r in run["results"]])
        lines.append(
            f"| {name} | {' | '.join(cells)} | {prefill:.2f} | {start_of(arm_runs):.1f} "
            f"| {same_text(runs, first, name)} |"
        )
    lines.append("")
    for ratio in ratios:
        low, high = ((f"{ratio[end]:.2f}" if ratio[end] is not None else "?") for end in ("low", "high"))
        lines.append(f"{ratio['of']} / {ratio['to']}, {ratio['kind']}: {ratio['ratio']:.2f} [{low}, {high}]")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
