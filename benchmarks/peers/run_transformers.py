"""Plain greedy generation with Transformers on the CPU."""

import time

import torch
import transformers
from common import measure, parser, stop_tokens
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class Clock(StoppingCriteria):
    """Notes the time after each token and never stops anything."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    args = arguments.parse_args()
    torch.set_num_threads(args.threads)
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    start_s = time.perf_counter() - start
    ends = stop_tokens(args.model)

    def generate(ids, max_new_tokens):
        clock = Clock()
        prompt = torch.tensor([ids])
        start = time.perf_counter()
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends,
            pad_token_id=ends[0],
            stopping_criteria=StoppingCriteriaList([clock]),
        )
        return {
            "output_ids": output[0, len(ids) :].tolist(),
            "prefill_s": clock.times[0] - start,
            "decode_s": clock.times[-1] - clock.times[0],
        }

    def generate_many(prompts, max_new_tokens):
        """As a static batch: Transformers pads to the longest, and all wait for the last."""
        width = max(map(len, prompts))
        padded = torch.tensor([[ends[0]] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        output = model.generate(
            padded,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        return [until_end(row) for row in output[:, width:].tolist()]

    def until_end(ids):
        at = next((index for index, token in enumerate(ids) if token in ends), len(ids) - 1)
        return ids[: at + 1]

    with torch.inference_mode():
        measure(
            args,
            generate,
            generate_many,
            peer="transformers",
            mode="plain",
            dtype=args.dtype,
            version=f"transformers {transformers.__version__}, torch {torch.__version__}",
            start_s=round(start_s, 2),
        )


if __name__ == "__main__":
    main()
