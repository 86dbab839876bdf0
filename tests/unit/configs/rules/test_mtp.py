"""What MTP-03 advises is an exception that the quantisation's format knows: done as told, nothing is left to say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rule
from draftproof.configs.speculation import Speculation
from draftproof.core.finding import Severity
from support.reports import QUANTISED
from support.rules.building import Checkpoint, case
from support.rules.mtp import family


@pytest.mark.parametrize("method", ["gptq", "fp8", "awq", "compressed-tensors"])
def test_the_remedy_silences_the_rule(method: str, tmp_path: Path) -> None:
    quantisation = {"quant_method": method}

    def judged(place: str) -> tuple[str, ...]:
        files = Checkpoint(
            {**QUANTISED.config, "quantization_config": quantisation}, tensors=QUANTISED.tensors
        )
        build = case("vllm", Speculation(method="mtp", depth=1), files)
        return tuple(finding.remedy for finding in judge(build(tmp_path / place), [rule("MTP-03")]).findings)

    [remedy] = judged("before")
    found = re.search(r"Add (.*) to quantization_config", remedy)
    assert found is not None
    quantisation |= json.loads("{" + found[1] + "}")
    assert judged("after") == ()


@pytest.mark.parametrize(
    ("model_type", "severity"), [("novel", Severity.INFO), ("deepseek_v41", Severity.ERROR)]
)
def test_what_vllm_refuses_is_an_error_and_what_is_not_known_a_note(
    model_type: str, severity: Severity, tmp_path: Path
) -> None:
    [finding] = judge(family(model_type)(tmp_path), [rule("MTP-04")]).findings
    assert finding.severity == severity
