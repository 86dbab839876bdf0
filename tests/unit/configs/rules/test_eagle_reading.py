"""What the rules on a head's layers advise does what they say: done as told, nothing is left to say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.rules.eagle.reading import layers_taken
from draftproof.configs.rules.facts.heads import default_layers, head_reading
from draftproof.configs.rules.facts.runners import Runner
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


@pytest.mark.parametrize(
    ("engine", "on", "config", "expected"),
    [
        ("vllm", "V2", {"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}, (2, 18, 33)),
        ("vllm", "V2", {"eagle_config": {"layer_ids": [2, 18, 33]}}, (2, 18, 33)),
        ("vllm", "V2", nested(2, 18, 33), None),
        ("vllm", "V1", nested(2, 18, 33), (2, 18, 33)),
        ("vllm", "V1", {"eagle_config": {"layer_ids": [2, 18, 33]}}, None),
        ("sglang", None, nested(1, 17, 32), (2, 18, 33)),
        ("sglang", None, {"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}, None),
        ("llamacpp", None, {"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}, (2, 18, 33)),
        ("llamacpp", None, nested(2, 18, 33), None),
        ("trtllm", None, nested(2, 18, 33), None),
    ],
)
def test_engines_look_for_the_list_in_their_own_places(
    engine: str, on: Runner | None, config: dict[str, Any], expected: tuple[int, ...] | None
) -> None:
    """`expected`: passed layers; None: the engine does not look there and takes its default."""
    known = head_reading(engine, on)
    assert known is not None
    assert layers_taken(known, config, num_layers=36) == (expected or default_layers(36))
    assert layers_taken(known, config, num_layers=40) == (expected or (2, 20, 37))


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
