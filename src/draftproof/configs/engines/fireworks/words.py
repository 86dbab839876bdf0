"""Fields of a Fireworks deployment that mean something to speculation, and the flags of `firectl`. Data.

From the SDK fireworks-ai 1.2.30, and the documentation of `firectl deployment create` and of speculative decoding.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.reading.options import Option
from draftproof.core.finding import Source

VERSION = "1.2.30"
KNOWN_VERSIONS = ">=1.2.30,<1.3"
SOURCE = Source(
    name=f"fireworks-ai {VERSION} and Fireworks' documentation",
    read="2026-11",
    url="https://docs.fireworks.ai/deployments/speculative-decoding",
)

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
    "maxContextLength": Option("--max-context-length", "int"),
    "enableAddons": Option("--enable-addons", "flag"),
    PRECISION: Option("--precision"),
    OFF: Option("--disable-speculative-decoding", "flag"),
}
"""Field → flag of the command; `enableMtp` has none."""
FILE = Option("--file")
"""JSON of the fields that no flag says."""
_SWITCHES = "wait dry-run validate-only long-prompt enable-session-affinity"
_VALUES = (
    "accelerator-count accelerator-type cluster-id deployment-id deployment-shape deployment-template description "
    "direct-route-api-keys direct-route-type display-name load-targets max-concurrency-per-replica max-replica-count "
    "max-with-revocable-replica-count min-replica-count region scale-down-window scale-to-zero-window scale-up-window "
    "wait-timeout output account-id api-key profile"
)
_SHORT = {"cluster-id": "-c", "output": "-o", "account-id": "-a", "profile": "-p"}
OTHERS = (
    *(Option(f"--{name}", "flag") for name in _SWITCHES.split()),
    *(
        Option(f"--{name}", aliases=(_SHORT[name],) if name in _SHORT else (), carried=True)
        for name in _VALUES.split()
    ),
)
"""Flags that say nothing about speculation, by whether they take a value."""
TABLE: Mapping[str, Option] = {
    spelling: option
    for option in (*FLAGS.values(), FILE, *OTHERS)
    for spelling in (option.name, *option.aliases)
}
COMMANDS = (("deployment", "create"), ("create", "deployment"))
