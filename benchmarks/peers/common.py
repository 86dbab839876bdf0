"""What the runners share: arguments, the stop tokens of a model, and the JSON that they print."""

import argparse
import json
import pathlib
import sys


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--model", required=True, help="model folder or file")
    result.add_argument(
        "--prompts", required=True, help="JSON list of {name, kind, ids} from tokenize_prompts.py"
    )
    result.add_argument("--max-new-tokens", type=int, default=128)
    result.add_argument("--threads", type=int, default=2)
    result.add_argument("--repeat", type=int, default=1, help="go through all prompts this many times")
    return result


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


def measure(args, generate, **about):
    """Run every prompt through generate(ids, max_new_tokens) and print one JSON object.

    generate returns a dict with output_ids, prefill_s (until the first token), decode_s (from the first
    token to the last) and anything else worth keeping. One short run on part of a prompt comes first,
    uncounted.
    """
    prompts = load_prompts(args.prompts)
    generate(prompts[0]["ids"][:32], 4)
    results = []
    for repetition in range(args.repeat):
        for prompt in prompts:
            result = generate(prompt["ids"], args.max_new_tokens)
            later = len(result["output_ids"]) - 1
            decode_s = result.pop("decode_s")
            entry = {
                "name": prompt["name"],
                "kind": prompt["kind"],
                "repetition": repetition,
                "prompt_tokens": len(prompt["ids"]),
                "new_tokens": later + 1,
                "prefill_s": round(result.pop("prefill_s"), 4),
                "decode_tokens_per_s": round(later / decode_s, 2) if later and decode_s else None,
                **result,
            }
            results.append(entry)
            print(
                f"{entry['name']}: {entry['new_tokens']} tokens, prefill {entry['prefill_s']} s, "
                f"{entry['decode_tokens_per_s']} tokens/s",
                file=sys.stderr,
            )
    print(
        json.dumps(
            {**about, "model": pathlib.Path(args.model).name, "threads": args.threads, "results": results}
        )
    )
