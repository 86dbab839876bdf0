"""What some architectures say and weigh in ways that no field of a row tells: a function each, named by the rows.

Facts of the model code in Transformers 5.24; of Nemotron NAS, for which it has no class, in vLLM 0.33.
"""

from __future__ import annotations

from draftproof.checkpoints import layouts
from draftproof.checkpoints.layers import KeyValues, Layer, Paired
from draftproof.checkpoints.reading import Values
from draftproof.checkpoints.states import StateKind, mamba, mamba2

_MULTIPLE = 256


def zamba_sizes(values: Values) -> Values:
    """Heads of twice the width, and defaults that follow from it."""
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    groups = values.count("num_key_value_heads", heads)
    found = {"num_key_value_heads": groups, "head_dim": values.count("head_dim", max(1, 2 * hidden // heads))}
    found["intermediate_size"] = values.count("intermediate_size", 4 * hidden)
    return values.changed(found)


def zamba(values: Values, layer: Layer) -> tuple[int, int]:
    """A layer's own: Mamba, and where the shared block comes before it, the matrix behind that."""
    return _behind_shared(values, layer, mamba)


def zamba2(values: Values, layer: Layer) -> tuple[int, int]:
    """The same with Mamba-2, and the narrow matrices beside the shared block's."""
    matrices, vectors = _behind_shared(values, layer, mamba2)
    if isinstance(layer, Paired):
        hidden, rank = values.count("hidden_size"), values.count("adapter_rank", 128)
        matrices += rank * (hidden + 2 * values.count("intermediate_size"))
        if values.flag("use_shared_attention_adapter"):
            matrices += 3 * 2 * rank * 2 * hidden
    return matrices, vectors


def _behind_shared(values: Values, layer: Layer, state: StateKind) -> tuple[int, int]:
    own = state(values)
    joining = values.count("hidden_size") ** 2 if isinstance(layer, Paired) else 0
    return own.matrices + joining, own.vectors


def block_sizes(values: Values) -> Values:
    """Nemotron NAS: heads and widths of each layer out of `block_configs`."""
    num, heads = values.count("num_hidden_layers"), values.count("num_attention_heads")
    hidden = values.count("hidden_size")
    groups, widths = [], []
    kinds, feeds = layouts.blocks_attention(values, num), layouts.blocks_feed(values, num)
    for block, kind, feed in zip(values.items("block_configs", num), kinds, feeds, strict=True):
        attention, own = (
            Values(values.reference, block["attention"], {}),
            Values(values.reference, block["ffn"], {}),
        )
        groups.append(1 if kind == "none" else max(1, heads // attention.count("n_heads_in_group")))
        if feed == "none":
            widths.append(1)
        elif own.has("intermediate_size"):
            widths.append(own.count("intermediate_size"))
        else:
            wide = int(2 * own.factor("ffn_mult", 0.0) * hidden / 3)
            widths.append(max(1, -(-wide // _MULTIPLE) * _MULTIPLE))
    return values.changed({"num_key_value_heads": groups, "intermediate_size": widths})


def of_block(values: Values, layer: Layer) -> tuple[int, int]:
    """Attention, or the matrix that takes its place, and the matrix in place of a feed-forward; no norm before what is
    left out."""
    block, hidden = values.raw("block_configs"), values.count("hidden_size")
    matrices = vectors = 0
    for part in (block["attention"], block["ffn"]):
        if part.get("no_op") is True:
            vectors -= hidden
        elif part.get("replace_with_linear") is True:
            matrices += hidden * hidden
    if isinstance(layer, KeyValues):
        heads = values.count("num_attention_heads")
        matrices += hidden * layer.key_dim * 2 * (heads + layer.num_kv_heads)
    return matrices, vectors


def laguna(values: Values) -> Values:
    """Laguna: `gating` is a switch or a word, and each layer has a number of heads of its own."""
    told, heads = values.raw("gating"), values.raw("num_attention_heads_per_layer")
    per_head = told in (None, True, "per-head")
    found: dict[str, object] = {"gate_per_head": per_head, "gate_per_element": not per_head}
    if isinstance(heads, list):
        found["per_layer_config"] = {
            str(layer): {"num_attention_heads": num} for layer, num in enumerate(heads)
        }
    return values.changed(found)
