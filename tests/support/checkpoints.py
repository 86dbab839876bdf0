"""Small generated checkpoints for tests: a directory as Transformers writes it, or a GGUF file.

Weights are random but scaled so that attention is peaked, no layer fades and greedy text wanders instead of
repeating one token. The same `Spec` gives the same weights in both formats (up to the GGUF type's rounding).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID, START_ID, EOS_ID = 0, 1, 2

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if tools %}{{ 'tools: ' + tools | tojson + '\\n' }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LLAMA3_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

_TRAINING_TEXT = (
    "def add(first, second):\n    return first + second\n\n\nclass Reader:\n    def __init__(self, path):\n"
    "        self.path = path\n\nThe quick brown fox jumps over the lazy dog. It was the best of times. "
    "Der schnelle braune Fuchs springt über den faulen Hund. Ein Beispiel für die Straße. 0123456789 "
    "for index in range(10): print(index)\nif value is None: raise ValueError('value')\n"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, family and seed of a generated checkpoint. Lengths are counts of elements or tokens."""

    family: Literal["llama", "qwen2"] = "llama"
    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    """None: hidden // heads, and not written into config.json."""
    vocab: int = 384
    """Model rows; the tokenizer has at most so many tokens, so a few ids may stand for no text."""
    tie: bool = False
    dtype: torch.dtype = torch.float32
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    context: int = 512
    seed: int = 0
    num_shards: int = 1
    config_style: Literal["transformers4", "transformers5"] = "transformers4"

    @property
    def resolved_head_dim(self) -> int:
        return self.head_dim or self.hidden // self.heads


TINY = Spec()
"""Milliseconds per pass; use it wherever the shape does not matter."""

WIDE = Spec(hidden=128, intermediate=1536, layers=2, heads=4, kv_heads=2)
"""One inner dimension of 1536, where kernels begin to treat a single row differently."""

WIDE_HIDDEN = Spec(hidden=1536, intermediate=2048, layers=2, heads=12, kv_heads=2, vocab=512)
"""Every linear layer has an inner dimension of at least 1536."""

K_QUANT = Spec(hidden=256, intermediate=512, layers=2, heads=4, kv_heads=2)
"""Every row length is a multiple of 256, as K-quants need."""


def build_weights(spec: Spec) -> dict[str, Tensor]:
    """Float32 weights by their Transformers names."""
    generator = torch.Generator().manual_seed(spec.seed)

    def normal(*shape: int, gain: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * gain / shape[-1] ** 0.5

    def bias(length: int) -> Tensor:
        return torch.randn(length, generator=generator) * 0.1

    def norm() -> Tensor:
        return 1.0 + 0.1 * torch.randn(spec.hidden, generator=generator)

    q_size, kv_size = spec.heads * spec.resolved_head_dim, spec.kv_heads * spec.resolved_head_dim
    embedding_gain = 0.4 * spec.hidden**0.5
    weights = {"model.embed_tokens.weight": normal(spec.vocab, spec.hidden, gain=embedding_gain)}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": normal(q_size, spec.hidden, gain=2.0),
            prefix + "self_attn.k_proj.weight": normal(kv_size, spec.hidden, gain=2.0),
            prefix + "self_attn.v_proj.weight": normal(kv_size, spec.hidden, gain=2.0),
            prefix + "self_attn.o_proj.weight": normal(spec.hidden, q_size, gain=2.0),
            prefix + "post_attention_layernorm.weight": norm(),
            prefix + "mlp.gate_proj.weight": normal(spec.intermediate, spec.hidden, gain=1.5),
            prefix + "mlp.up_proj.weight": normal(spec.intermediate, spec.hidden, gain=1.5),
            prefix + "mlp.down_proj.weight": normal(spec.hidden, spec.intermediate, gain=2.0),
        }
        if spec.attention_bias or spec.family == "qwen2":
            weights |= {prefix + f"self_attn.{name}_proj.bias": bias(size)
                        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size))}  # fmt: skip
        if spec.attention_bias and spec.family == "llama":
            weights[prefix + "self_attn.o_proj.bias"] = bias(spec.hidden)
        if spec.mlp_bias:
            sizes = (("gate", spec.intermediate), ("up", spec.intermediate), ("down", spec.hidden))
            weights |= {prefix + f"mlp.{name}_proj.bias": bias(size) for name, size in sizes}
    weights["model.norm.weight"] = norm()
    if not spec.tie:
        weights["lm_head.weight"] = normal(spec.vocab, spec.hidden, gain=2.0)
    return weights


def hf_config(spec: Spec) -> dict[str, Any]:
    """The content of config.json."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM" if spec.family == "llama" else "Qwen2ForCausalLM"],
        "model_type": spec.family,
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": spec.context,
        "tie_word_embeddings": spec.tie,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": str(spec.dtype).removeprefix("torch."),
    }
    if spec.head_dim is not None:
        config["head_dim"] = spec.head_dim
    if spec.family == "llama":
        config |= {"attention_bias": spec.attention_bias, "mlp_bias": spec.mlp_bias}
    if spec.config_style == "transformers5":
        scaling = dict(spec.rope_scaling) if spec.rope_scaling else {"rope_type": "default"}
        config["rope_parameters"] = scaling | {"rope_theta": spec.rope_theta}
    else:
        config |= {"rope_theta": spec.rope_theta, "rope_scaling": dict(spec.rope_scaling or {}) or None}
    return config


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


def write_gguf(path: Path, spec: Spec = TINY, types: str | Mapping[str, str] = "F32", **changes: Any) -> Path:
    """Writes a GGUF file with its tokenizer; `types` is one type for all matrices or one by GGUF name.

    Names in a mapping may leave out the block, e.g. {"ffn_down.weight": "Q6_K"}; others are F32. K-quants are
    random blocks of that type, not the spec's weights: gguf's writer cannot quantise to them.
    """
    spec = replace(spec, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), arch=spec.family)
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
    return path


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
    writer.add_rope_dimension_count(spec.resolved_head_dim)
    if spec.head_dim is not None:
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
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


_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def gguf_weights(spec: Spec) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The spec's weights under GGUF names, as its converter writes them (query and key rows interleaved)."""
    for name, tensor in build_weights(spec).items():
        stem, kind = name.removeprefix("model.layers.").rsplit(".", 1)
        block = ""
        if name.startswith("model.layers."):
            layer, stem = stem.split(".", 1)
            block = f"blk.{layer}."
        if spec.family == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            num_heads = spec.heads if "q_proj" in stem else spec.kv_heads
            halves = tensor.reshape(num_heads, 2, spec.resolved_head_dim // 2, *tensor.shape[1:])
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        yield f"{block}{_GGUF_NAMES[stem]}.{kind}", tensor.contiguous().numpy()
    if spec.rope_scaling is not None:
        yield "rope_freqs.weight", _rope_freqs(spec)


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
