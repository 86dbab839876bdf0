"""How long the commands that judge files take: fresh processes over generated checkpoints of Qwen2.5's shape.

    python benchmarks/commands.py --runs 5 [--gguf TARGET.gguf DRAFTER.gguf]

The files have the headers, vocabularies (151,643 byte-level tokens with their merges) and configurations of real ones;
their weights are holes, for no command here reads them. Every command runs once before it is timed, so that Python has
its bytecode, as an installed package has it. Prints least and median wall time, and least processor time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draftproof.checkpoints.vocabulary import byte_of_character

NUM_TOKENS = 151_643
NUM_TENSORS = 100_000
TARGET = {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "intermediate_size": 8960}
DRAFTER = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "intermediate_size": 4864}
COMMON = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 2, "vocab_size": 151_936,
    "max_position_embeddings": 32_768, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def vocabulary(seed: int) -> tuple[list[str], list[str]]:
    """Tokens that grow out of pairs of earlier ones, and the merges that say so."""
    draw = random.Random(seed)
    tokens, merges = list(byte_of_character()), []
    known = set(tokens)
    while len(tokens) < NUM_TOKENS:
        left, right = (tokens[draw.randrange(min(len(tokens), 4000))] for _ in range(2))
        if left + right not in known and len(left + right) <= 16:
            known.add(left + right)
            tokens.append(left + right)
            merges.append(f"{left} {right}")
    return tokens, merges


def shapes(config: dict[str, Any]) -> dict[str, list[int]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shared = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        rows = {"q": hidden, "k": shared, "v": shared}
        parts = {f"self_attn.{name}_proj.weight": [num, hidden] for name, num in rows.items()}
        parts |= {f"self_attn.{name}_proj.bias": [num] for name, num in rows.items()}
        parts |= {f"mlp.{name}_proj.weight": [inner, hidden] for name in ("gate", "up")}
        parts |= {"self_attn.o_proj.weight": [hidden, hidden], "mlp.down_proj.weight": [hidden, inner]}
        parts |= {"input_layernorm.weight": [hidden], "post_attention_layernorm.weight": [hidden]}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return found


def write_directory(path: Path, sizes: dict[str, int], tokens: list[str], merges: list[str]) -> Path:
    config = COMMON | sizes
    added = [
        {"id": len(tokens) + rank, "content": text, "special": True} for rank, text in enumerate(SPECIAL)
    ]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = {
        "added_tokens": added,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    write_tensors(path, config, shapes(config))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    return path


def write_tensors(path: Path, config: dict[str, Any], tensors: dict[str, list[int]]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path


def write_gguf(path: Path, tokens: list[str], merges: list[str], tensors: dict[str, list[int]]) -> Path:
    """A model of 64-row tensors in F32 under the names of Qwen2's metadata."""

    def string(text: str) -> bytes:
        return struct.pack("<Q", len(content := text.encode())) + content

    def strings(texts: list[str]) -> tuple[int, bytes]:
        return 9, struct.pack("<IQ", 8, len(texts)) + b"".join(map(string, texts))

    sizes = {
        "block_count": "num_hidden_layers", "embedding_length": "hidden_size",
        "context_length": "max_position_embeddings", "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    }  # fmt: skip
    config = COMMON | DRAFTER
    values = {
        "general.architecture": (8, string("qwen2")),
        **{f"qwen2.{ours}": (4, struct.pack("<I", config[theirs])) for ours, theirs in sizes.items()},
        "tokenizer.ggml.model": (8, string("gpt2")),
        "tokenizer.ggml.tokens": strings(tokens),
        "tokenizer.ggml.merges": strings(merges),
    }
    parts, end = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values))], 0
    parts += [string(key) + struct.pack("<I", kind) + value for key, (kind, value) in values.items()]
    for name, shape in tensors.items():
        parts.append(string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, end))
        end += 4 * math.prod(shape)
    header = b"".join(parts)
    with path.open("wb") as file:
        file.write(header + bytes(-len(header) % 32))
        file.truncate(file.tell() + end)
    return path


def commands(folder: Path, gguf: list[Path]) -> Iterator[tuple[str, list[str]]]:
    tokens, merges = vocabulary(1)
    target = write_directory(folder / "target", TARGET, tokens, merges)
    same = write_directory(folder / "same", DRAFTER, tokens, merges)
    other = write_directory(folder / "other", DRAFTER, *vocabulary(2))
    names = [
        f"model.layers.{number // 1000}.mlp.experts.{number % 1000}.w.weight" for number in range(NUM_TENSORS)
    ]
    many = write_tensors(folder / "many", COMMON | DRAFTER, {name: [64, 32] for name in names})
    few = {"token_embd.weight": [64, 32]}
    one = write_gguf(folder / "one.gguf", tokens, merges, few)
    two = write_gguf(folder / "two.gguf", *vocabulary(2), few)
    much = write_gguf(folder / "many.gguf", tokens, merges, {name: [64, 32] for name in names})
    ngram = json.dumps({"method": "ngram", "num_speculative_tokens": 4})
    serve = f"vllm serve Qwen/Qwen3-8B --speculative-config '{ngram}'"

    def pair(target: Path, drafter: Path) -> list[str]:
        speculation = {"method": "draft_model", "model": str(drafter), "num_speculative_tokens": 4}
        return [str(target), "--draft", str(drafter), "--speculative-config", json.dumps(speculation)]

    room = ["--memory", "24GiB", "--context", "8192"]
    yield "--help", ["--help"]
    yield "probe --help", ["probe", "--help"]
    yield "pairs", ["pairs", "Qwen/Qwen3-8B"]
    yield "translate", ["translate", "--from", "vllm", "--to", "sglang", serve]
    yield "check: a command alone", ["check", "--command", serve]
    yield "check: directories, one tokenizer", ["check", *pair(target, same)]
    yield "check: directories, two tokenizers", ["check", *pair(target, other)]
    yield "plan", ["plan", *pair(target, same), *room]
    yield "advise", ["advise", str(target), "--engine", "vllm==0.33.0", "--require", "json_schema"]
    yield f"check: {NUM_TENSORS:,} tensors", ["check", str(many), "--speculative-config", ngram]
    yield f"plan: {NUM_TENSORS:,} tensors", ["plan", str(many), "--speculative-config", ngram, *room]
    yield "check: GGUF files, one vocabulary", ["check", *pair(one, one)]
    yield "check: GGUF files, two vocabularies", ["check", *pair(one, two)]
    yield f"check: GGUF, {NUM_TENSORS:,} tensors", ["check", str(much), "--speculative-config", ngram]
    yield f"plan: GGUF, {NUM_TENSORS:,} tensors", ["plan", str(much), "--speculative-config", ngram, *room]
    if gguf:
        yield "check: the two published GGUF files", ["check", *pair(*gguf)]
        yield "plan: the two published GGUF files", ["plan", *pair(*gguf), *room]


def measure(arguments: list[str], runs: int) -> tuple[list[float], list[float]]:
    """Seconds of wall clock and of the processor."""
    program = "from draftproof.cli.main import main; main()"
    wall, busy = [], []
    for run in range(-1, runs):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
        )
        if run >= 0:  # the first leaves bytecode and a warm file cache
            wall.append(time.perf_counter() - started)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        if done.returncode not in (0, 5):
            sys.exit(done.stderr)
    return wall, busy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gguf", type=Path, nargs=2, default=[])
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in list(commands(Path(folder), options.gguf)):
            wall, busy = measure(arguments, options.runs)
            print(f"{name:36} {min(wall):.2f} {statistics.median(wall):.2f}  {min(busy):.2f}", flush=True)


if __name__ == "__main__":
    main()
