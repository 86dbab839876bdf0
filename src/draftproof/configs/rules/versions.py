"""Engine versions: how each engine writes them, which were read, and whether one lies in a range.

Called by `judging` and by the commands. A version is text as users write it: "0.33.0", "v0.5.23", "b11434".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from draftproof.core.errors import DraftproofError

READ: Mapping[str, str] = MappingProxyType(
    {
        "vllm": "0.33.0",
        "sglang": "0.5.23",
        "trtllm": "1.3.0",
        "llamacpp": "11434",
        "transformers": "5.24.0",
        "openvino": "2026.4.1",
    }
)
"""The version that stands in where the user names none. TensorRT-LLM: its main branch of mid-2026, which became 1.3."""

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "draftproof": "draftproof",
        "vllm": "vLLM",
        "sglang": "SGLang",
        "trtllm": "TensorRT-LLM",
        "llamacpp": "llama.cpp",
        "transformers": "Transformers",
        "openvino": "OpenVINO GenAI",
        "fireworks": "Fireworks",
    }
)
"""As engines are called in sentences."""

_LOCAL = re.compile(
    r"[-+](?:cu|rocm|cpu|xpu|ubuntu|py|devel|runtime|post-|server|full|light).*$", re.IGNORECASE
)


def parse_version(engine: str, text: str) -> Version:
    """As it is compared, a pre-release as its release. Raises DP112 for text that is no version of the engine."""
    plain = text.strip().removeprefix("v")
    if engine == "llamacpp":
        plain = plain.removeprefix("b")
    try:
        if len(plain) > 60:
            raise InvalidVersion
        return Version(Version(_LOCAL.sub("", plain)).base_version)
    except InvalidVersion:
        raise DraftproofError(
            "DP112",
            "--engine",
            text[:80],
            f"a version of {engine} such as {READ.get(engine, '1.0')}",
            "Write it as the engine itself does, or leave it out.",
        ) from None


def is_range(text: str) -> bool:
    """Whether it is written as pip writes ranges."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def is_within(version: Version, versions: str) -> bool:
    """Whether a range, as pip writes it, holds the version; pre-releases count, and "" holds every one."""
    return SpecifierSet(versions).contains(version, prereleases=True)
