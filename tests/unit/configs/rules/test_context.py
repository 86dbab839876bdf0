"""What vLLM does beyond a head's positions depends on its kind of rope, whichever key says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof.checkpoints.rope import ROPE_KEYS
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rule
from support.rules.context import LLAMA3, YARN, run, short


@pytest.mark.parametrize("key", ROPE_KEYS)
@pytest.mark.parametrize(
    ("settings", "effect"),
    [
        (YARN, "lowers the served context"),
        (
            {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}},
            "lowers the served context",
        ),
        (LLAMA3, "lengthens"),
        ({"rope_type": "mrope"}, "lengthens"),
    ],
)
def test_the_kind_decides(key: str, settings: dict[str, Any], effect: str, tmp_path: Path) -> None:
    [finding] = judge(run(drafter=short(settings, key))(tmp_path), [rule("CONTEXT-01")]).findings
    assert effect in finding.detail
