"""Small generated checkpoints for tests: a directory as Transformers writes it, or a GGUF file.

Weights are random but scaled so that attention is peaked, no layer fades and greedy text wanders instead of
repeating one token. The same `Spec` gives the same weights in both formats (up to the GGUF type's rounding).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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

YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

_TRAINING_TEXT = (
    "def add(first, second):\n    return first + second\n\n\nclass Reader:\n    def __init__(self, path):\n"
    "        self.path = path\n\nThe quick brown fox jumps over the lazy dog. It was the best of times. "
    "Der schnelle braune Fuchs springt über den faulen Hund. Ein Beispiel für die Straße. 0123456789 "
    "for index in range(10): print(index)\nif value is None: raise ValueError('value')\n"
)


Family = Literal["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3moe", "smollm3", "gemma3", "phi3"]
"""Names as in `ModelConfig.architecture`."""

HF_NAMES: dict[Family, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral": ("MistralForCausalLM", "mistral"),
    "mixtral": ("MixtralForCausalLM", "mixtral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
}
GGUF_NAMES: dict[Family, str] = {"mistral": "llama", "mixtral": "llama"}
"""Where they are other names."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, family and seed of a generated checkpoint. Lengths are counts of elements or tokens."""

    family: Family = "llama"
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
    rotary_dim: int | None = None
    """Elements of a head that are rotated, where not all are."""
    window: int | None = None
    """Of those layers that the family's rule gives one."""
    experts: int = 4
    used_experts: int = 2
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys of config.json."""

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
    """Float32 weights by the names that the family's checkpoints use."""
    generator = torch.Generator().manual_seed(spec.seed)
    family, hidden, inner = spec.family, spec.hidden, spec.intermediate

    def normal(*shape: int, gain: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * gain / shape[-1] ** 0.5

    def bias(length: int) -> Tensor:
        return torch.randn(length, generator=generator) * 0.1

    def norm(length: int = hidden) -> Tensor:
        return (0.0 if family == "gemma3" else 1.0) + 0.1 * torch.randn(length, generator=generator)

    q_size, kv_size = spec.heads * spec.resolved_head_dim, spec.kv_heads * spec.resolved_head_dim
    # Gemma multiplies its embeddings with the square root of their length.
    embedding_gain = 0.4 if family == "gemma3" else 0.4 * hidden**0.5
    weights = {"model.embed_tokens.weight": normal(spec.vocab, hidden, gain=embedding_gain)}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": normal(q_size, hidden, gain=2.0),
            prefix + "self_attn.k_proj.weight": normal(kv_size, hidden, gain=2.0),
            prefix + "self_attn.v_proj.weight": normal(kv_size, hidden, gain=2.0),
            prefix + "self_attn.o_proj.weight": normal(hidden, q_size, gain=2.0),
            prefix + "post_attention_layernorm.weight": norm(),
        }
        if family == "gemma3":
            weights |= {prefix + f"{name}_feedforward_layernorm.weight": norm() for name in ("pre", "post")}
        if family in ("gemma3", "qwen3", "qwen3moe"):
            weights |= {prefix + f"self_attn.{n}_norm.weight": norm(spec.resolved_head_dim) for n in "qk"}
        moe = {"mixtral": "block_sparse_moe", "qwen3moe": "mlp"}.get(family)
        names = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        mlps = [prefix + "mlp."]
        if moe is not None:
            weights[f"{prefix}{moe}.gate.weight"] = normal(spec.experts, hidden, gain=2.0)
            mlps = [f"{prefix}{moe}.experts.{expert}." for expert in range(spec.experts)]
        for mlp in mlps:
            weights |= {
                f"{mlp}{names[0]}.weight": normal(inner, hidden, gain=1.5),
                f"{mlp}{names[1]}.weight": normal(inner, hidden, gain=1.5),
                f"{mlp}{names[2]}.weight": normal(hidden, inner, gain=2.0),
            }
        if family == "phi3":
            for fused, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
                stem = fused.split(".")[0]
                pieces = [weights.pop(f"{prefix}{stem}.{part}_proj.weight") for part in parts]
                weights[f"{prefix}{fused}_proj.weight"] = torch.cat(pieces)
        if spec.attention_bias or family == "qwen2":
            weights |= {prefix + f"self_attn.{name}_proj.bias": bias(size)
                        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size))}  # fmt: skip
        if spec.attention_bias and family != "qwen2":
            weights[prefix + "self_attn.o_proj.bias"] = bias(hidden)
        if spec.mlp_bias:
            sizes = (("gate", inner), ("up", inner), ("down", hidden))
            weights |= {prefix + f"mlp.{name}_proj.bias": bias(size) for name, size in sizes}
    weights["model.norm.weight"] = norm()
    if not spec.tie:
        weights["lm_head.weight"] = normal(spec.vocab, hidden, gain=2.0)
    return weights


def hf_config(spec: Spec) -> dict[str, Any]:
    """The content of config.json."""
    architecture, model_type = HF_NAMES[spec.family]
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": spec.context,
        "tie_word_embeddings": spec.tie,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": str(spec.dtype).removeprefix("torch."),
    }
    if spec.head_dim is not None or spec.family in ("qwen3", "qwen3moe", "gemma3"):
        config["head_dim"] = spec.resolved_head_dim
    if spec.family in ("llama", "qwen3", "qwen3moe", "smollm3", "gemma3"):
        config["attention_bias"] = spec.attention_bias
    if spec.family in ("llama", "smollm3"):
        config["mlp_bias"] = spec.mlp_bias
    if spec.family == "gemma3":
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24}
    else:
        config["hidden_act"] = "silu"
    if spec.family == "phi3":  # its defaults lie beyond the small vocabulary
        config |= {"pad_token_id": EOS_ID, "original_max_position_embeddings": 64}
    if spec.family == "smollm3":
        config["pad_token_id"] = EOS_ID
    if spec.family == "mixtral":
        config |= {"num_local_experts": spec.experts, "num_experts_per_tok": spec.used_experts}
    if spec.family == "qwen3moe":
        config |= {"num_experts": spec.experts, "num_experts_per_tok": spec.used_experts}
        config |= {"moe_intermediate_size": spec.intermediate, "norm_topk_prob": True}
    if spec.family in ("mistral", "mixtral", "phi3", "gemma3"):
        config["sliding_window"] = spec.window
    elif spec.window is not None:
        config |= {"sliding_window": spec.window, "use_sliding_window": True}
    if spec.family in ("qwen2", "qwen3") and spec.window is not None:
        config["max_window_layers"] = 1
    if spec.rotary_dim is not None:
        config["partial_rotary_factor"] = spec.rotary_dim / spec.resolved_head_dim
    if spec.config_style == "transformers5":
        scaling = dict(spec.rope_scaling) if spec.rope_scaling else {"rope_type": "default"}
        config["rope_parameters"] = scaling | {"rope_theta": spec.rope_theta}
    else:
        config |= {"rope_theta": spec.rope_theta, "rope_scaling": dict(spec.rope_scaling or {}) or None}
    return config | dict(spec.extra)


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
    writer = gguf.GGUFWriter(str(path), arch=GGUF_NAMES.get(spec.family, spec.family))
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
