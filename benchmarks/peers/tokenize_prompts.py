"""Turn prompts.json into token ids with one model's tokenizer and template: every engine gets the same ids."""

import argparse
import json

from transformers import AutoTokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder with tokenizer.json and a chat template")
    parser.add_argument("prompts", help="JSON list of {name, kind, messages}")
    parser.add_argument("output", help="JSON list of {name, kind, ids} to write")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    with open(args.prompts, encoding="utf-8") as file:
        prompts = json.load(file)
    result = []
    for prompt in prompts:
        text = tokenizer.apply_chat_template(prompt["messages"], add_generation_prompt=True, tokenize=False)
        ids = tokenizer.encode(text, add_special_tokens=False)
        result.append({"name": prompt["name"], "kind": prompt["kind"], "ids": ids})
        print(f"{prompt['name']}: {len(ids)} tokens")
    with open(args.output, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
