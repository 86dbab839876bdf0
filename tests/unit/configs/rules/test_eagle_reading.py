"""What the rules on a head's layers advise does what they say: done as told, nothing is left to say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.rules.facts.heads import NESTED, TOP, default_layers, head_reading
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rule
from support.rules.eagle import LAYERS, eagle3, nested, run


@pytest.mark.parametrize(
    ("engine", "config", "passed"),
    [
        ("vllm", nested(1, 3, 5), [2, 4, 6]),
        ("sglang", LAYERS, [2, 4, 6]),
        ("trtllm", LAYERS, [2, 4, 6]),
        ("trtllm", nested(1, 3, 5), [2, 4, 6]),
    ],
)
def test_the_remedy_silences_the_rule(
    engine: str, config: dict[str, Any], passed: list[int], tmp_path: Path
) -> None:
    [finding] = judge(run(engine, "eagle3", eagle3(**config))(tmp_path / "a"), [rule("EAGLE-15")]).findings
    if engine == "trtllm":
        found = re.search(r"eagle3_layers_to_capture: (\[[\d, ]+\])", finding.remedy)
        assert found is not None
        layers = json.loads(found[1])
        assert [layer + 1 for layer in layers] == passed
        again = run(
            engine,
            "eagle3",
            eagle3(**config),
            said={"extras": {"trtllm.eagle3_layers_to_capture": tuple(layers)}},
        )
    else:
        found = re.search(r"Write (.*?) into", finding.remedy)
        assert found is not None
        again = run(engine, "eagle3", eagle3(**config, **json.loads("{" + found[1] + "}")))
    assert judge(again(tmp_path / "b"), [rule("EAGLE-15")]).findings == ()


def test_engines_count_the_same_states_in_their_own_way() -> None:
    assert default_layers(36) == (2, 18, 33)
    for engine in ("vllm", "sglang", "trtllm", "llamacpp"):
        assert head_reading(engine, None) is not None
    known = head_reading("sglang", None)
    assert known is not None
    assert known.layers == ((NESTED, 1),)
    assert head_reading("vllm", "V1") != head_reading("vllm", "V2")
    assert TOP in NESTED


@pytest.mark.parametrize(
    ("engine", "rows", "extra", "severity"),
    [
        ("vllm", 16 + 4096, None, "error"),  # more than padding
        ("vllm", 16 + 64, None, "warning"),
        ("vllm", 12, {"embed_tokens.weight": (12, 64)}, "error"),  # ids of the target beyond the embedding
        ("sglang", 12, {"embed_tokens.weight": (12, 64)}, "warning"),  # which takes the target's embedding
        ("vllm", 12, None, "warning"),
    ],
)
def test_how_bad_another_vocabulary_is(
    engine: str, rows: int, extra: dict[str, Any] | None, severity: str, tmp_path: Path
) -> None:
    case = run(engine, "eagle3", eagle3(vocab_size=rows, extra=extra))(tmp_path)
    [finding] = judge(case, [rule("EAGLE-10")]).findings
    assert finding.severity.value == severity
