"""Turn prompts.json into token ids with one model's tokenizer and template: every engine gets the same ids."""

import argparse
import json
from pathlib import Path

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.models.template import load_template
from draftproof.models.tokenizer import load_tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a directory or a GGUF file with a tokenizer and a chat template")
    parser.add_argument("prompts", help="JSON list of {name, kind, messages}")
    parser.add_argument("output", help="JSON list of {name, kind, ids} to write")
    args = parser.parse_args()

    checkpoint = open_checkpoint(Path(args.model))
    tokenizer, template = load_tokenizer(checkpoint), load_template(checkpoint)
    prompts = json.loads(Path(args.prompts).read_text(encoding="utf-8"))
    result = []
    for prompt in prompts:
        ids = tokenizer.encode(template.render(prompt["messages"]))
        result.append({"name": prompt["name"], "kind": prompt["kind"], "ids": ids})
        print(f"{prompt['name']}: {len(ids)} tokens")
    Path(args.output).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
