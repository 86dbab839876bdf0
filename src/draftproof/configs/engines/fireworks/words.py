"""Fields of a Fireworks deployment that mean something to speculation, and the flags of `firectl`. Data.

From the SDK fireworks-ai 1.2.30 and the documentation of `firectl deployment create`.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.reading.options import Option
from draftproof.core.finding import Source

VERSION = "1.2.30"
KNOWN_VERSIONS = ">=1.2.30,<1.3"
SOURCE = Source(name=f"fireworks-ai {VERSION}", read="2026-11")

PLAIN: Mapping[str, tuple[str, str]] = {
    "baseModel": ("target", "str"),
    "draftModel": ("speculation.drafter", "str"),
    "draftTokenCount": ("speculation.depth", "int"),
    "ngramSpeculationLength": ("speculation.lookup.max_ngram", "int"),
    "maxContextLength": ("max_model_len", "int"),
    "enableAddons": ("lora", "bool"),
}
"""Field → neutral setting and kind."""
OFF = "disableSpeculativeDecoding"
MTP = "enableMtp"
PRECISION = "precision"
PRECISIONS: Mapping[str, str] = {"FP16": "float16", "BF16": "bfloat16"}
SPELLINGS: Mapping[str, str] = {
    name: field
    for field in (*PLAIN, OFF, MTP, PRECISION)
    for name in (field, "".join(f"_{char.lower()}" if char.isupper() else char for char in field))
}
"""As the API and as the SDK's Python arguments write it → as the API does."""
FLAGS: Mapping[str, Option] = {
    "draftModel": Option("--draft-model"),
    "draftTokenCount": Option("--draft-token-count", "int"),
    "ngramSpeculationLength": Option("--ngram-speculation-length", "int"),
}
TABLE: Mapping[str, Option] = {option.name: option for option in FLAGS.values()}
COMMANDS = (("deployment", "create"), ("create", "deployment"))
