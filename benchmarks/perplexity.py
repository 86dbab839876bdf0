"""Perplexity of a model on a text, in any of the forms its weights can take.

    python benchmarks/perplexity.py MODEL TEXT_FILE [--weights native,float] [--dtype float32] [--context 512]
                                    [--chunks 4] [--threads N] [--json FILE]

The text is cut into chunks of `context` tokens; in each the tokens of the second half are predicted, each from all
before it in the chunk, as llama.cpp's `llama-perplexity` does, so that on the same file the numbers can be compared.
A chunk's first token is replaced by the beginning-of-text token where the model's tokenizer adds one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch

from draftproof.core.provenance import birth_certificate, command_line
from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.base import ForwardBatch, Segment
from draftproof.models.loading import LoadedModel, load_model

ROWS_PER_PASS = 256


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    text = Path(options.text).read_text(encoding="utf-8")
    results = []
    for weights in options.weights.split(","):
        loaded = load_model(options.model, dtype=options.dtype, weights=weights)
        start = time.perf_counter()
        losses = chunk_losses(loaded, text, options.context, options.chunks)
        every = torch.cat(losses)
        results.append(
            {
                "weights": weights,
                "weight_types": dict(loaded.weight_types),
                "kernels": loaded.model.kernels,
                "num_tokens": len(every),
                "perplexity": math.exp(every.mean()),
                "standard_error": math.exp(every.mean()) * float(every.std()) / len(every) ** 0.5,
                "seconds": time.perf_counter() - start,
                "chunk_losses": [float(loss.mean()) for loss in losses],
            }
        )
        result = results[-1]
        print(
            f"{weights:>8}: perplexity {result['perplexity']:.4f} ± {result['standard_error']:.4f} over "
            f"{result['num_tokens']} tokens, {result['seconds']:.0f} s"
        )
    if options.json:
        certificate = birth_certificate(command_line(), {}, vars(options))
        document = {"birth_certificate": certificate, "results": results}
        Path(options.json).write_text(json.dumps(document, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--weights", default="native,float")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="float32")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="also write everything to this file")
    return parser.parse_args()


def chunk_losses(loaded: LoadedModel, text: str, context: int, num_chunks: int) -> list[torch.Tensor]:
    """-ln p of each token in the second half of each chunk, float64."""
    tokens = loaded.tokenizer.encode(text, add_special=True)
    bos = loaded.config.bos_token_id
    has_bos = bool(tokens) and tokens[0] == bos
    cache = loaded.model.new_cache(BlockPool.blocks_for(context))
    losses = []
    for start in range(0, min(num_chunks * context, len(tokens) - context + 1), context):
        chunk = tokens[start : start + context]
        if has_bos and bos is not None:
            chunk[0] = bos
        logits = torch.cat([pass_of(loaded, cache, chunk, row) for row in range(0, context, ROWS_PER_PASS)])
        half = context // 2
        logprobs = logits[half : context - 1].double().log_softmax(-1)
        losses.append(-logprobs.gather(1, torch.tensor(chunk[half + 1 :])[:, None])[:, 0])
    return losses


def pass_of(loaded: LoadedModel, cache: KVCache, chunk: list[int], first: int) -> torch.Tensor:
    tokens = torch.tensor(chunk[first : first + ROWS_PER_PASS])
    rows = torch.arange(len(tokens))
    blocks = list(range(BlockPool.blocks_for(len(chunk))))
    segment = Segment(blocks, first, 0, len(tokens))
    return loaded.model.forward(ForwardBatch(tokens, first + rows, [segment], rows), cache)


if __name__ == "__main__":
    main()
