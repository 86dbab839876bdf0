"""Greedy generation with vLLM's CPU build.

Speculation is vLLM's own JSON, for example
  --speculative '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
  --speculative '{"method": "suffix", "num_speculative_tokens": 16}'
The suffix method remembers earlier outputs: use --repeat 1 with it.
"""

import json
import os
import time

from common import measure, most_at_once, parser, stop_tokens


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments.add_argument("--context", type=int, default=2048)
    arguments.add_argument("--speculative", type=json.loads, help="vLLM's speculative configuration, as JSON")
    arguments.add_argument("--eager", action="store_true", help="do not compile the model")
    args = arguments.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    import vllm

    start = time.perf_counter()
    engine = vllm.LLM(
        args.model,
        dtype=args.dtype,
        max_model_len=args.context,
        max_num_seqs=most_at_once(args),
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        enforce_eager=args.eager,
        disable_log_stats=False,
        speculative_config=args.speculative,
    )
    start_s = time.perf_counter() - start
    ends = stop_tokens(args.model)

    def counters():
        wanted = {
            "vllm:spec_decode_num_draft_tokens": "drafted",
            "vllm:spec_decode_num_accepted_tokens": "accepted",
        }
        return (
            {wanted[m.name]: m.value for m in engine.get_metrics() if m.name in wanted}
            if args.speculative
            else {}
        )

    def outputs(prompts, max_new_tokens):
        sampling = vllm.SamplingParams(
            temperature=0, max_tokens=max_new_tokens, stop_token_ids=ends, detokenize=False
        )
        return engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)

    def generate(ids, max_new_tokens):
        before = counters()
        [output] = outputs([ids], max_new_tokens)
        times = output.metrics
        return {
            "output_ids": list(output.outputs[0].token_ids),
            "prefill_s": times.first_token_ts - times.scheduled_ts,
            "decode_s": times.last_token_ts - times.first_token_ts,
            **{name: value - before[name] for name, value in counters().items()},
        }

    def generate_many(prompts, max_new_tokens):
        return [list(output.outputs[0].token_ids) for output in outputs(prompts, max_new_tokens)]

    measure(
        args,
        generate,
        generate_many,
        peer="vllm",
        mode=json.dumps(args.speculative) if args.speculative else "plain",
        dtype=args.dtype,
        version=f"vllm {vllm.__version__}",
        start_s=round(start_s, 2),
    )


if __name__ == "__main__":
    main()
