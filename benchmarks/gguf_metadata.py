"""What llama.cpp's converter writes of tiny models with layers of several kinds: the judge of how GGUF files are read.

Run it with a Python that has PyTorch and Transformers, and the path of a llama.cpp source tree:

    python benchmarks/gguf_metadata.py LLAMA_CPP tests/unit/checkpoints/data/gguf_metadata.json

Each model is generated from its configuration, converted by `convert_hf_to_gguf.py`'s classes without a tokenizer, and
the metadata and the shapes of its tensors are kept beside the configuration. Nothing of draftproof is needed here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "intermediate_size": 96, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24}
NEMOTRON_H = {
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 24, "n_groups": 2, "head_dim": 16,
}  # fmt: skip
LAYERS = ["mamba", "attention", "mamba", "attention"]

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", {"head_dim": 32, "sliding_window": 64, "num_hidden_layers": 7}),
    "gemma3n": ("gemma3n_text", "Gemma3nForCausalLM", {
        "num_hidden_layers": 10, "head_dim": 16, "num_kv_shared_layers": 4, "vocab_size_per_layer_input": 300,
        "hidden_size_per_layer_input": 12, "laurel_rank": 6, "altup_num_inputs": 4, "sliding_window": 64,
        "activation_sparsity_pattern": [0.95] * 10,
    }),
    "gemma4": ("gemma4_text", "Gemma4ForConditionalGeneration", {
        "num_hidden_layers": 6, "head_dim": 16, "global_head_dim": 32, "sliding_window": 64,
        "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 300, "num_kv_shared_layers": 0,
    }),
    "llama4": ("llama4_text", "Llama4ForCausalLM", {
        "num_local_experts": 8, "head_dim": 16, "attention_chunk_size": 8192, "intermediate_size_mlp": 112,
        "interleave_moe_layer_step": 2,
    }),
    "gpt-oss": ("gpt_oss", "GptOssForCausalLM", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 64,
        "intermediate_size": 64,
    }),
    "granite hybrid": ("granitemoehybrid", "GraniteMoeHybridForCausalLM", MAMBA_2 | {
        "num_local_experts": 8, "shared_intermediate_size": 40, "layer_types": LAYERS,
        "position_embedding_type": "nope",
    }),
    "granite hybrid without experts": ("granitemoehybrid", "GraniteMoeHybridForCausalLM", MAMBA_2 | {
        "num_local_experts": 0, "shared_intermediate_size": 40, "layer_types": LAYERS,
        "position_embedding_type": "nope",
    }),
    "jamba": ("jamba", "JambaForCausalLM", {"num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1}),
    "lfm2": ("lfm2", "Lfm2ForCausalLM", {
        "layer_types": ["conv", "full_attention", "conv", "conv"], "block_multiple_of": 16,
    }),
    "lfm2 with experts": ("lfm2_moe", "Lfm2MoeForCausalLM", EXPERTS | {
        "num_experts": 8, "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv", "conv"],
    }),
    "nemotron-h": ("nemotron_h", "NemotronHForCausalLM", NEMOTRON_H | {"hybrid_override_pattern": "M-M*"}),
    "nemotron-h with experts": ("nemotron_h", "NemotronHForCausalLM", NEMOTRON_H | EXPERTS | {
        "hybrid_override_pattern": "MEM*E", "moe_shared_expert_intermediate_size": 40, "n_routed_experts": 8,
        "n_group": 1, "topk_group": 1,
    }),
    "falcon-h1": ("falcon_h1", "FalconH1ForCausalLM", MAMBA_2 | {
        "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_rms_norm": True, "head_dim": 16,
    }),
    "mamba": ("mamba", "MambaForCausalLM", {"state_size": 16, "intermediate_size": 128, "time_step_rank": 4}),
    "mamba 2": ("mamba2", "Mamba2ForCausalLM", {
        "num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 24, "intermediate_size": 128,
    }),
}  # fmt: skip


def record(name: str, directory: Path) -> dict[str, Any]:
    import gguf
    import torch
    from conversion import get_model_class
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type, architecture, changes = MODELS[name]
    config = CONFIG_MAPPING[model_type](**(TINY | changes))
    kind = AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModel
    torch.manual_seed(0)
    kind.from_config(config).to(torch.float32).save_pretrained(directory)
    whole = json.loads((directory / "config.json").read_text()) | {"architectures": [architecture]}
    if "E" not in str(changes.get("hybrid_override_pattern", "E")):
        whole.pop("n_routed_experts")  # as published files of models without experts say nothing of them
    if changes.get("layer_types") == LAYERS:
        whole["layer_types"] = (
            LAYERS  # Transformers 5 writes other words, published files and the converter have these
        )
    (directory / "config.json").write_text(json.dumps(whole))
    tokens = {
        "model": {"vocab": {str(token): token for token in range(whole["vocab_size"])}},
        "added_tokens": [],
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokens))  # Gemma's converter counts it
    converter = get_model_class(architecture)
    converter.set_vocab = lambda self: self.gguf_writer.add_vocab_size(whole["vocab_size"])
    out = directory / "out.gguf"
    with torch.inference_mode():
        converter(directory, gguf.LlamaFileType.ALL_F32, out, model_name=name).write()
    reader = gguf.GGUFReader(out)
    metadata = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    shapes = {tensor.name: [int(size) for size in reversed(tensor.shape)] for tensor in reader.tensors}
    return {"name": name, "config": whole, "metadata": metadata, "tensors": shapes}


def main() -> None:
    source, out, wanted = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    sys.path[:0] = [str(source / "gguf-py"), str(source)]
    records = []
    for name in MODELS:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                records.append(record(name, Path(directory)))
            except Exception as fault:  # one model that cannot be converted leaves the others
                print(f"{name}: {type(fault).__name__}: {fault}", file=sys.stderr)
    document = {
        "provenance": {
            "made_by": "benchmarks/gguf_metadata.py", "llama.cpp": "build 11434",
            "versions": {package: version(package) for package in ("torch", "transformers")},
        },
        "records": records,
    }  # fmt: skip
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
