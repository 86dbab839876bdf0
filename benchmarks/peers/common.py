"""What the runners share: arguments, the stop tokens of a model, and the JSON that they print."""

import argparse
import itertools
import json
import pathlib
import sys
import time


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--model", required=True, help="model folder or file")
    result.add_argument(
        "--prompts", required=True, help="JSON list of {name, kind, ids} from tokenize_prompts.py"
    )
    result.add_argument("--max-new-tokens", type=int, default=128)
    result.add_argument("--threads", type=int, default=2)
    result.add_argument("--repeat", type=int, default=1, help="go through all prompts this many times")
    result.add_argument(
        "--concurrency", type=loads, default=(), help="such as 1,4,16: so many requests at once instead"
    )
    return result


def loads(text):
    return tuple(int(load) for load in text.split(","))


def most_at_once(args):
    return max(args.concurrency, default=1)


def load_prompts(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def stop_tokens(folder):
    """The end-of-text tokens that generation_config.json, else config.json, names."""
    for name in ("generation_config.json", "config.json"):
        path = pathlib.Path(folder, name)
        ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        if ends is not None:
            return ends if isinstance(ends, list) else [ends]
    return []


def measure(args, generate, generate_many, **about):
    """Run every prompt through generate(ids, max_new_tokens), or with --concurrency the prompts in turn through
    generate_many(list of ids, max_new_tokens), and print one JSON object.

    generate returns a dict with output_ids, prefill_s (until the first token), decode_s (from the first
    token to the last) and anything else worth keeping; generate_many a list of output ids. One short run on part of
    a prompt comes first, uncounted.
    """
    prompts = load_prompts(args.prompts)
    generate(prompts[0]["ids"][:32], 4)
    runs = (
        under_load(args, prompts, generate_many) if args.concurrency else one_by_one(args, prompts, generate)
    )
    results = []
    for entry in runs:
        results.append(entry)
        print(
            f"{entry['kind']}, {entry['name']}: {entry['new_tokens']} tokens, {entry['decode_tokens_per_s']} tokens/s",
            file=sys.stderr,
        )
    print(
        json.dumps(
            {**about, "model": pathlib.Path(args.model).name, "threads": args.threads, "results": results}
        )
    )


def one_by_one(args, prompts, generate):
    for repetition in range(args.repeat):
        for prompt in prompts:
            result = generate(prompt["ids"], args.max_new_tokens)
            later = len(result["output_ids"]) - 1
            decode_s = result.pop("decode_s")
            yield {
                "name": prompt["name"],
                "kind": prompt["kind"],
                "repetition": repetition,
                "prompt_tokens": len(prompt["ids"]),
                "new_tokens": later + 1,
                "prefill_s": round(result.pop("prefill_s"), 4),
                "decode_tokens_per_s": round(later / decode_s, 2) if later and decode_s else None,
                **result,
            }


def under_load(args, prompts, generate_many):
    """Tokens of all answers per second from the first request to the last answer, prompts included."""
    for repetition in range(args.repeat):
        for load in args.concurrency:
            batch = [prompt["ids"] for prompt in itertools.islice(itertools.cycle(prompts), load)]
            start = time.perf_counter()
            answers = generate_many(batch, args.max_new_tokens)
            seconds = time.perf_counter() - start
            num_tokens = sum(map(len, answers))
            yield {
                "name": f"batch {repetition + 1}",
                "kind": f"{load} at once",
                "prompt_tokens": sum(map(len, batch)),
                "new_tokens": num_tokens,
                "output_ids": answers,
                "prefill_s": seconds,  # the whole run: compare.py shows it in its column
                "decode_tokens_per_s": round(num_tokens / seconds, 2),
            }
