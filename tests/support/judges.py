"""Engines as judges of what is written for them: a process of the engine's own Python, and models without weights."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from draftproof.configs.speculation import ModelRef

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float32", "hidden_act": "silu",
}  # fmt: skip


def verdicts(python: str, judge: str, question: object, place: Path | None = None) -> list[Any]:
    """What `judge`, a script, prints as JSON behind the word VERDICTS when it is asked on standard input; it runs in
    `place`, and no hub is asked."""
    done = subprocess.run(
        [python, "-c", judge],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=place,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": ""},
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("VERDICTS")), None)
    assert line is not None, done.stderr[-2000:]
    found = json.loads(line.removeprefix("VERDICTS"))
    assert isinstance(found, list)
    return found


def models(place: Path, **changes: Any) -> dict[str, ModelRef]:
    """Directories that hold a configuration and nothing else: a target, a smaller model, heads. `changes` to all."""
    shapes: dict[str, dict[str, Any]] = {
        "target": {},
        "small": {"num_hidden_layers": 1},
        "eagle-head": {"num_hidden_layers": 1},
        "eagle3-head": {
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "draft_vocab_size": 320,
        },
    }
    for name, shape in shapes.items():
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps(LLAMA | changes | shape), encoding="utf-8")
    return {name: ModelRef(name=str(place / name)) for name in shapes}


VLLM_REFUSES: tuple[dict[str, Any], ...] = (
    {"num_speculative_tokens": 1, "rejection_sample_method": "fly"},
    {"rejection_sample_method": "fly", "fly_window_size": 3},
    {"rejection_sample_method": "synthetic"},
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2, "synthetic_acceptance_rates": [1, 1, 0]},
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5},
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.4]},
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.6, 0.4]},
    {"synthetic_acceptance_length": 2.0},
    {"synthetic_acceptance_rates": [0.5, 0.4, 0.3]},
    {"method": "draft_model", "model": "small", "dspark_draft_topk": 8},
    {"method": "draft_model", "model": "small", "xpress_topc": 8},
    {"index_share_for_mtp_iteration": True},
    {"draft_lm_head_quantization": "fp8"},
    {
        "method": "draft_model", "model": "small", "enable_adaptive_verification": True,
        "use_local_argmax_reduction": True,
    },
)  # fmt: skip
"""Combinations of keys of its speculative_config that vLLM refuses; n-gram and three draft tokens where unsaid."""
