"""What a forward pass costs over its linear layers alone, and how close both come to the machine's memory.

    python benchmarks/forward.py MODEL [--weights native] [--dtype bfloat16] [--rows 1,2,4,8,16] [--context 200]
                                 [--threads N] [--repetitions 30] [--json FILE]

MODEL is a directory, a GGUF file or a name of the catalogue. Each repetition times, one after the other: a plain
read of memory, and for every number of rows the whole pass (embedding to logits of all rows, through the Python
interface) and the same pass's matrix products alone on the same packed weights. Printed are medians; the ratio is
the median of the pairs' ratios. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.core.provenance import birth_certificate, command_line
from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.base import ForwardBatch, Segment
from draftproof.models.blocks import BlockTensor
from draftproof.models.catalogue import resolve
from draftproof.models.loading import load_weights
from draftproof.models.native import NativeModel
from draftproof.models.native.library import read_memory
from draftproof.models.precision import Form, FormedWeights, check_form
from draftproof.models.weights import Weights

READ_BYTES = 256 << 20
"""Far more than a last-level cache holds."""

Times = dict[str, list[float]]


def main() -> None:
    options = parse()
    start = time.perf_counter()
    config, stored = load_weights(open_checkpoint(resolve(options.model)))
    dtype = getattr(torch, options.dtype)
    torch.set_num_threads(options.threads)
    weights = CountedWeights(stored, check_form(options.weights), dtype.itemsize)
    model = NativeModel(config, weights, dtype, options.threads)
    load_s = time.perf_counter() - start
    torch.set_num_threads(1)  # its threads would spin beside ours
    rows = [int(count) for count in options.rows.split(",")]
    times = measure(model, rows, options.context, options.repetitions)
    results = [result(count, times, weights.num_bytes, weights.num_weights) for count in rows]
    read_rate = READ_BYTES / statistics.median(times["read"]) / 1e9
    report = {
        "birth_certificate": birth_certificate(command_line(), {}, vars(options)),
        "load_s": load_s,
        "weight_types": dict(weights.types),
        "weight_bytes": weights.num_bytes,
        "memory_read_gb_per_s": read_rate,
        "results": results,
    }
    types = ", ".join(f"{count} {name}" for name, count in weights.types.items())
    print(f"{options.model}: {types}; {options.dtype}, {options.threads} threads, context {options.context}")
    print(
        f"loaded in {load_s:.1f} s; matrices {weights.num_bytes / 1e6:.0f} MB; plain read {read_rate:.1f} GB/s"
    )
    print(f"{'rows':>5} {'forward ms':>11} {'linears ms':>11} {'ratio':>6} {'GB/s':>6} {'GFLOP/s':>8}")
    for line in results:
        print(
            f"{line['rows']:5.0f} {line['forward_ms']:11.2f} {line['linears_ms']:11.2f} {line['ratio']:6.3f} "
            f"{line['linears_gb_per_s']:6.1f} {line['linears_gflop_per_s']:8.0f}"
        )
    if options.json:
        report["raw_s"] = times
        Path(options.json).write_text(json.dumps(report, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--weights", default="native")
    parser.add_argument("--rows", default="1,2,4,8,16")
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--json", help="also write everything, with each single time, to this file")
    return parser.parse_args()


def measure(model: NativeModel, rows: list[int], context: int, repetitions: int) -> Times:
    """Seconds of every single call, by name: `read`, `forward N`, `linears N`."""
    block_ids = list(range(BlockPool.blocks_for(context + max(rows))))
    cache = filled_cache(model, block_ids, context)
    memory = torch.ones(READ_BYTES // 4)
    times: Times = {}
    for repetition in range(repetitions + 1):  # the first one warms up
        calls: list[tuple[str, Callable[[], object]]] = [
            ("read", lambda: read_memory(memory, model.num_threads))
        ]
        for count in rows:
            batch = chain(count, context, block_ids)
            calls.append((f"forward {count}", lambda batch=batch: model.forward(batch, cache)))  # type: ignore[misc]
            calls.append((f"linears {count}", lambda count=count: model.linears_only(count)))  # type: ignore[misc]
        for name, call in calls:
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            if repetition > 0:
                times.setdefault(name, []).append(elapsed)
    return times


def filled_cache(model: NativeModel, block_ids: list[int], context: int) -> KVCache:
    """A cache whose first `context` slots a prompt has been written to."""
    cache = model.new_cache(len(block_ids))
    for start in range(0, context, 256):
        model.forward(chain(min(256, context - start), start, block_ids), cache)
    return cache


def chain(num_rows: int, context: int, block_ids: list[int]) -> ForwardBatch:
    rows = torch.arange(num_rows)
    tokens = 1000 + rows * 7
    return ForwardBatch(tokens, context + rows, [Segment(block_ids, context, 0, num_rows)], rows)


class CountedWeights(FormedWeights):
    """Counts the weights that one pass reads: all matrices, a tied embedding once, another one not at all."""

    def __init__(self, weights: Weights, form: Form, itemsize: int) -> None:
        super().__init__(weights, form)
        self._itemsize = itemsize
        self._is_tied = "lm_head.weight" not in weights
        self.num_bytes = self.num_weights = 0

    def __getitem__(self, name: str) -> Tensor | BlockTensor:
        tensor = super().__getitem__(name)
        if len(tensor.shape) == 2 and (self._is_tied or name != "model.embed_tokens.weight"):
            count = tensor.shape[0] * tensor.shape[1]
            self.num_weights += count
            self.num_bytes += (
                tensor.data.nbytes if isinstance(tensor, BlockTensor) else count * self._itemsize
            )
        return tensor


def result(count: int, times: Times, weight_bytes: int, num_weights: int) -> dict[str, float]:
    forward, linears = times[f"forward {count}"], times[f"linears {count}"]
    seconds = statistics.median(linears)
    num_flops = 2 * count * num_weights
    return {
        "rows": count,
        "forward_ms": statistics.median(forward) * 1e3,
        "linears_ms": seconds * 1e3,
        "ratio": statistics.median(a / b for a, b in zip(forward, linears, strict=True)),
        "linears_gb_per_s": weight_bytes / seconds / 1e9,
        "linears_gflop_per_s": num_flops / seconds / 1e9,
    }


if __name__ == "__main__":
    main()
