"""Small generated checkpoints for tests: a directory as Transformers writes it, or a GGUF file.

What they are made of: `specs`. The same `Spec` gives the same weights in both formats (up to the GGUF type's rounding).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from support.specs import BOS_ID, EOS_ID, GGUF_NAMES, TINY, Spec, build_weights, hf_config

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if tools %}{{ 'tools: ' + tools | tojson + '\\n' }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TRAINING_TEXT = (
    "def add(first, second):\n    return first + second\n\n\nclass Reader:\n    def __init__(self, path):\n"
    "        self.path = path\n\nThe quick brown fox jumps over the lazy dog. It was the best of times. "
    "Der schnelle braune Fuchs springt über den faulen Hund. Ein Beispiel für die Straße. 0123456789 "
    "for index in range(10): print(index)\nif value is None: raise ValueError('value')\n"
)


@functools.cache
def build_tokenizer(vocab: int) -> Tokenizer:
    """A byte-level BPE with the GPT-2 pre-tokenizer: every text encodes, with at most `vocab` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TRAINING_TEXT], trainer)
    return tokenizer


def write_checkpoint(directory: Path, spec: Spec = TINY, **changes: Any) -> Path:
    """Writes a safetensors directory with tokenizer and chat template; `changes` are fields of `Spec`."""
    spec = replace(spec, **changes)
    directory.mkdir(parents=True, exist_ok=True)
    _write_weights(directory, spec)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[BOS_ID],
        "eos_token": SPECIAL_TOKENS[EOS_ID],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    documents = {
        "config.json": hf_config(spec),
        "generation_config.json": {"bos_token_id": BOS_ID, "eos_token_id": [EOS_ID]},
        "tokenizer_config.json": tokenizer_config,
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document, indent=1), encoding="utf-8")
    build_tokenizer(spec.vocab).save(str(directory / "tokenizer.json"))
    return directory


def _write_weights(directory: Path, spec: Spec) -> None:
    weights = {name: tensor.to(spec.dtype) for name, tensor in build_weights(spec).items()}
    if spec.num_shards == 1:
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(weights)
    weight_map: dict[str, str] = {}
    for shard in range(spec.num_shards):
        file = f"model-{shard + 1:05d}-of-{spec.num_shards:05d}.safetensors"
        part = names[shard :: spec.num_shards]
        save_file({name: weights[name] for name in part}, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in weights.values())},
        "weight_map": weight_map,
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def write_gguf(
    path: Path,
    spec: Spec = TINY,
    types: str | Mapping[str, str] = "F32",
    part_tensors: int = 0,
    **changes: Any,
) -> Path:
    """Writes a GGUF file with its tokenizer; with `part_tensors` split into parts of as many tensors, the first of
    which is returned.

    `types` is one type for all matrices or one by GGUF name.

    Names in a mapping may leave out the block, e.g. {"ffn_down.weight": "Q6_K"}; others are F32. K-quants are
    random blocks of that type, not the spec's weights: gguf's writer cannot quantise to them.
    """
    spec = replace(spec, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    arch = GGUF_NAMES.get(spec.family, spec.family)
    writer = gguf.GGUFWriter(str(path), arch, split_max_tensors=part_tensors)
    _add_metadata(writer, spec)
    random = np.random.default_rng(spec.seed)
    for name, weight in gguf_weights(spec):
        kind = types if isinstance(types, str) else _lookup(types, name)
        if weight.ndim == 1 or kind == "F32":
            writer.add_tensor(name, weight)
            continue
        quant_type = gguf.GGMLQuantizationType[kind]
        if kind in _K_QUANT_SCALES:
            data = random_k_quant(random, weight.shape, kind, float(weight.std()))
        else:
            data = gguf.quants.quantize(weight, quant_type)
        writer.add_tensor(name, data, raw_dtype=quant_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf")) if part_tensors else path


def _lookup(types: Mapping[str, str], name: str) -> str:
    short = name.split(".", 2)[2] if name.startswith("blk.") else name
    return types.get(name, types.get(short, "F32"))


def _add_metadata(writer: gguf.GGUFWriter, spec: Spec) -> None:
    writer.add_name("generated")
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_rope_dimension_count(spec.rotary_dim or spec.resolved_head_dim)
    if spec.head_dim is not None or spec.family == "gemma3":
        writer.add_key_length(spec.resolved_head_dim)
        writer.add_value_length(spec.resolved_head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    _add_rope_scaling(writer, dict(spec.rope_scaling or {}))
    if spec.window is not None or spec.family == "phi3":
        writer.add_sliding_window(spec.window or 0)
    if spec.family in ("mixtral", "qwen3moe"):
        writer.add_expert_count(spec.experts)
        writer.add_expert_used_count(spec.used_experts)
    if spec.family == "qwen3moe":
        writer.add_expert_feed_forward_length(spec.intermediate)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(spec.vocab)
    document = json.loads(build_tokenizer(spec.vocab).to_str())
    by_id = {token_id: token for token, token_id in document["model"]["vocab"].items()}
    tokens = [by_id.get(token_id, f"[PAD{token_id}]") for token_id in range(spec.vocab)]
    token_types = [
        gguf.TokenType.CONTROL if token in SPECIAL_TOKENS
        else gguf.TokenType.NORMAL if token_id in by_id
        else gguf.TokenType.UNUSED
        for token_id, token in enumerate(tokens)
    ]  # fmt: skip
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(token_types)
    writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_rope_scaling(writer: gguf.GGUFWriter, rule: dict[str, Any]) -> None:
    kind = rule.get("rope_type", rule.get("type"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rule["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
    if kind == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(rule["attention_factor"])


_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_GEMMA_GGUF_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GGUF_EXPERTS = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}  # fmt: skip


def gguf_weights(spec: Spec) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The spec's weights under GGUF names, as its converter writes them: query and key rows of some families
    interleaved, Gemma's norms with their 1, experts stacked."""
    names = _GGUF_NAMES | (_GEMMA_GGUF_NAMES if spec.family == "gemma3" else {})
    stacks: dict[str, list[Tensor]] = {}
    for name, tensor in build_weights(spec).items():
        stem, kind = name.removeprefix("model.layers.").rsplit(".", 1)
        block = ""
        if name.startswith("model.layers."):
            layer, stem = stem.split(".", 1)
            block = f"blk.{layer}."
        if ".experts." in stem:
            stacks.setdefault(f"{block}{_GGUF_EXPERTS[stem.rsplit('.', 1)[1]]}.weight", []).append(tensor)
            continue
        if spec.family == "gemma3" and stem.endswith("norm"):
            tensor = tensor + 1
        is_paired = spec.family in ("llama", "mistral", "mixtral", "smollm3")
        if is_paired and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            num_heads = spec.heads if "q_proj" in stem else spec.kv_heads
            halves = tensor.reshape(num_heads, 2, spec.resolved_head_dim // 2, *tensor.shape[1:])
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        yield f"{block}{names[stem]}.{kind}", tensor.contiguous().numpy()
    for name, stack in stacks.items():
        yield name, torch.stack(stack).numpy()
    rule = dict(spec.rope_scaling or {})
    kind = rule.get("rope_type", rule.get("type"))
    if kind == "llama3":
        yield "rope_freqs.weight", _rope_freqs(spec)
    if kind == "longrope":
        for length in ("short", "long"):
            yield f"rope_factors_{length}.weight", np.array(rule[f"{length}_factor"], np.float32)


def _rope_freqs(spec: Spec) -> NDArray[np.float32]:
    """Divisors of the inverse frequencies, [head_dim / 2], by Llama 3's rule."""
    rule = spec.rope_scaling
    assert rule is not None
    dim = spec.resolved_head_dim
    wavelengths = 2 * np.pi * spec.rope_theta ** (np.arange(0, dim, 2) / dim)
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    smooth = (rule["original_max_position_embeddings"] / wavelengths - low) / (high - low)
    smooth = np.clip(smooth, 0.0, 1.0)
    return (1.0 / ((1 - smooth) / rule["factor"] + smooth)).astype(np.float32)


_K_QUANT_SCALES: dict[str, tuple[int, int | None, float]] = {
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0.0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0.0),
}
"""Byte offsets of the two half-precision scales in a block, and their ratio for values around zero."""


def random_k_quant(
    random: np.random.Generator, shape: tuple[int, ...], kind: str, std: float
) -> NDArray[np.uint8]:
    """Random blocks of a K-quant whose values have about the given standard deviation, [rows, row_bytes]."""
    quant_type = gguf.GGMLQuantizationType[kind]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    rows, columns = shape
    blocks = random.integers(0, 256, (rows * columns // block_size, block_bytes), dtype=np.uint8)
    scale_at, minimum_at, ratio = _K_QUANT_SCALES[kind]

    def set_scale(scale: float) -> None:
        blocks[:, scale_at : scale_at + 2] = np.array([scale], np.float16).view(np.uint8)
        if minimum_at is not None:
            blocks[:, minimum_at : minimum_at + 2] = np.array([scale * ratio], np.float16).view(np.uint8)

    set_scale(1.0)
    set_scale(std / float(gguf.quants.dequantize(blocks, quant_type).std()))
    return blocks.reshape(rows, -1)
