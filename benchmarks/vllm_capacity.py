"""What a real vLLM says its cache holds, for tiny checkpoints and several settings: the judge of `draftproof plan`.

Run it with the Python of an environment that has vLLM (a CPU build is enough) and Transformers:

    python benchmarks/vllm_capacity.py tests/unit/planning/data/vllm_capacity.json

Each setting generates a checkpoint with random weights, starts vLLM with it, and keeps the line about the size of the
cache that it prints at the start, with the configuration files and the versions. The tests compare the planner with
the recorded figures; nothing of draftproof is needed here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

LINE = re.compile(
    r"(\w+) KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)

LLAMA = {
    "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 512, "vocab_size": 2048, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
SMALL = LLAMA | {"hidden_size": 128, "num_hidden_layers": 3, "head_dim": 32}
QWEN = LLAMA | {"num_key_value_heads": 4, "num_hidden_layers": 4}
GEMMA = LLAMA | {
    "num_hidden_layers": 8,
    "sliding_window": 256,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
HEAD = LLAMA | {"num_hidden_layers": 1, "draft_vocab_size": 512, "architectures": ["LlamaForCausalLMEagle3"]}

Setting = dict[str, Any]
SETTINGS: dict[str, Setting] = {
    "plain, pages of 128": {
        "target": ("llama", LLAMA), "space": 1, "arguments": {"max_model_len": 2048},
    },
    "plain, float32, pages of 32": {
        "target": ("llama", LLAMA), "space": 1,
        "arguments": {"max_model_len": 1000, "block_size": 32, "dtype": "float32"},
    },
    "n-gram": {
        "target": ("llama", LLAMA), "space": 1,
        "arguments": {"max_model_len": 2048, "block_size": 64},
        "speculative": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3},
    },
    "draft model with shorter heads, pages of 32": {
        "target": ("llama", LLAMA), "draft": ("llama", SMALL), "space": 2,
        "arguments": {"max_model_len": 2048, "block_size": 32},
        "speculative": {"method": "draft_model", "num_speculative_tokens": 3},
    },
    "draft model, qwen3": {
        "target": ("qwen3", QWEN), "draft": ("qwen3", SMALL), "space": 1,
        "arguments": {"max_model_len": 3000, "block_size": 64},
        "speculative": {"method": "draft_model", "num_speculative_tokens": 5},
    },
    "eagle3, pages of 64": {
        "target": ("llama", LLAMA), "draft": ("llama", HEAD), "space": 1,
        "arguments": {"max_model_len": 2048, "block_size": 64},
        "speculative": {"method": "eagle3", "num_speculative_tokens": 2},
    },
    "windows in every other layer": {
        "target": ("gemma2", GEMMA), "space": 1,
        "arguments": {"max_model_len": 4096, "block_size": 32, "max_num_batched_tokens": 1024},
    },
    "two stages": {
        "target": ("llama", LLAMA), "space": 1, "arguments": {"max_model_len": 2048, "pipeline_parallel_size": 2},
    },
    "three stages, seven layers": {
        "target": ("llama", LLAMA | {"num_hidden_layers": 7}), "space": 1,
        "arguments": {"max_model_len": 2048, "block_size": 64, "pipeline_parallel_size": 3},
    },
    "two stages of two and four layers": {
        "target": ("llama", LLAMA), "space": 1, "partition": "2,4",
        "arguments": {"max_model_len": 2048, "block_size": 64, "pipeline_parallel_size": 2},
    },
    "two stages with windows in every other layer": {
        "target": ("gemma2", GEMMA), "space": 1, "partition": "3,5",
        "arguments": {
            "max_model_len": 4096, "block_size": 32, "max_num_batched_tokens": 1024, "pipeline_parallel_size": 2,
        },
    },
    "two stages with an eagle3 head": {
        "target": ("llama", LLAMA), "draft": ("llama", HEAD), "space": 1,
        "arguments": {"max_model_len": 2048, "block_size": 64, "pipeline_parallel_size": 2},
        "speculative": {"method": "eagle3", "num_speculative_tokens": 2},
    },
    "two stages of two devices": {
        "target": ("llama", LLAMA), "space": 1,
        "arguments": {"max_model_len": 2048, "pipeline_parallel_size": 2, "tensor_parallel_size": 2},
    },
}  # fmt: skip


def write_checkpoint(directory: Path, model_type: str, config: dict[str, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**config)).to(torch.bfloat16)
    model.save_pretrained(directory)


def write_head(directory: Path, config: dict[str, Any]) -> None:
    """An EAGLE-3 head with random weights under the names of published ones."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["draft_vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {
        "fc.weight": (hidden, 3 * hidden), "midlayer.self_attn.q_proj.weight": (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * hidden), "midlayer.self_attn.v_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries), "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden), "midlayer.mlp.down_proj.weight": (hidden, inner),
        "midlayer.hidden_norm.weight": (hidden,), "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,), "norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }  # fmt: skip
    tensors = {name: torch.randn(shape).mul(0.02).to(torch.bfloat16) for name, shape in shapes.items()}
    tensors["d2t"] = torch.arange(vocab, dtype=torch.int64)
    is_kept = torch.zeros(config["vocab_size"], dtype=torch.bool)
    is_kept[::2][:vocab] = True
    tensors["t2d"] = is_kept
    directory.mkdir(parents=True)
    save_file(tensors, directory / "model.safetensors")
    whole = {
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    } | config
    (directory / "config.json").write_text(json.dumps(whole))


START = """
import json, sys
from vllm import LLM
if __name__ == "__main__":
    LLM(**json.loads(sys.argv[1]))
"""


def run(name: str, setting: Setting, directory: Path) -> dict[str, Any]:
    target, draft = directory / "target", directory / "draft-eagle3"
    write_checkpoint(target, *setting["target"])
    arguments = {
        "model": str(target), "skip_tokenizer_init": True, "enforce_eager": True, "max_num_seqs": 4,
        **setting["arguments"],
    }  # fmt: skip
    record: dict[str, Any] = {
        "name": name, "kv_cache_space_gib": setting["space"], "arguments": setting["arguments"] | {"max_num_seqs": 4},
        "speculative": setting.get("speculative"), "target": json.loads((target / "config.json").read_text()),
    }  # fmt: skip
    if "draft" in setting:
        model_type, config = setting["draft"]
        if "draft_vocab_size" in config:
            write_head(draft, config)
        else:
            draft = directory / "draft"
            write_checkpoint(draft, model_type, config)
        record["draft"] = json.loads((draft / "config.json").read_text())
    if "speculative" in setting:
        arguments["speculative_config"] = setting["speculative"] | (
            {"model": str(draft)} if "draft" in setting else {}
        )
    program = directory / "start.py"
    program.write_text(START)
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": str(setting["space"]), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if "partition" in setting:
        record["partition"] = environment["VLLM_PP_LAYER_PARTITION"] = setting["partition"]
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(arguments)],
        capture_output=True, text=True, env=environment, timeout=600, check=False,
    )  # fmt: skip
    found = LINE.search(done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"{name}: vLLM printed no size of its cache\n{(done.stdout + done.stderr)[-4000:]}")
    device, tokens, length, times = found.groups()
    record["printed"] = {
        "line": found.group(0), "device": device, "tokens": int(tokens.replace(",", "")),
        "max_model_len": int(length.replace(",", "")), "concurrency": float(times),
    }  # fmt: skip
    return record


def main() -> None:
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    records = []
    for name, setting in SETTINGS.items():
        if wanted and not any(part in name for part in wanted):
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                records.append(run(name, setting, Path(directory)))
            except SystemExit as fault:
                print(fault, file=sys.stderr)
                continue
        print(name, records[-1]["printed"]["line"], file=sys.stderr, flush=True)
    versions = {
        package: version(package) for package in ("vllm-cpu", "vllm", "torch", "transformers") if has(package)
    }
    document = {
        "provenance": {"made_by": "benchmarks/vllm_capacity.py", "versions": versions},
        "records": records,
    }
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def has(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError

    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
