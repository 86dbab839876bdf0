"""Greedy generation with Draftproof's own engine, in the form of the other runners.

--speculative '{"method": "auto"}'
"""

import time

from common import measure, most_at_once, parser


def main():
    start = time.perf_counter()
    arguments = parser(__doc__)
    arguments.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments.add_argument("--kernels", choices=("auto", "native", "python"), default="auto")
    arguments.add_argument("--context", type=int, default=2048)
    arguments.add_argument("--speculative", help="the speculation object, as JSON")
    args = arguments.parse_args()

    from draftproof import Engine, SamplingParams, __version__
    from draftproof.core.intent import NoSpeculation, parse_intent
    from draftproof.engine.config import EngineConfig

    config = EngineConfig(max_num_seqs=most_at_once(args), max_model_len=args.context)
    engine = Engine.load(
        args.model, dtype=args.dtype, kernels=args.kernels, threads=args.threads, config=config
    )
    start_s = time.perf_counter() - start
    intent = parse_intent(args.speculative) if args.speculative else NoSpeculation()

    def finished(prompts, max_new_tokens):
        params = SamplingParams(temperature=0.0, max_tokens=max_new_tokens)
        # Nothing may be remembered from one prompt to the next: each has its own scope.
        requests = [
            engine.make_request(ids, params, intent=intent, scope=str(time.perf_counter())) for ids in prompts
        ]
        done = {
            event.req_id: event.finished for event in engine.stream(requests) if event.finished is not None
        }
        return [done[request.req_id] for request in requests]

    def generate(ids, max_new_tokens):
        [output] = finished([ids], max_new_tokens)
        costs = engine.take_round_costs()
        rounds_s = sum(cost.draft_s + cost.verify_s + cost.coordination_s for cost in costs)
        return {
            "output_ids": list(output.token_ids),
            "prefill_s": output.prefill_s,
            "decode_s": output.decode_s,
            "drafted": output.stats.proposed,
            "accepted": output.stats.accepted,
            "rounds": output.stats.rounds,
            "coordination_share": sum(cost.coordination_s for cost in costs) / rounds_s,
            "draft_share": sum(cost.draft_s for cost in costs) / rounds_s,
        }

    def generate_many(prompts, max_new_tokens):
        outputs = finished(prompts, max_new_tokens)
        engine.take_round_costs()
        return [list(output.token_ids) for output in outputs]

    measure(
        args,
        generate,
        generate_many,
        peer="draftproof",
        mode=args.speculative or "plain",
        dtype=args.dtype,
        version=f"draftproof {__version__}, {engine.describe()['kernels']} kernels",
        start_s=round(start_s, 2),
    )


if __name__ == "__main__":
    main()
