"""The real OpenVINO GenAI judges what is written: DRAFTPROOF_OPENVINO_PYTHON=/path/to/venv/bin/python (2026.4.1).

One process of that Python runs every text with GenAI's own configuration classes and validator. Pipelines are replaced
by a recorder: no model is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, ModelRef, Speculation, Tree
from support.deployments import GOLDEN

PYTHON = os.environ.get("DRAFTPROOF_OPENVINO_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="no OpenVINO GenAI: name its Python in DRAFTPROOF_OPENVINO_PYTHON to let it judge",
    ),
]
OPENVINO = dialect("openvino")

JUDGE = """
import json, sys
import openvino_genai as genai
class Pipeline:
    def __init__(self, *arguments, **properties): self.looks_up = properties.get("prompt_lookup", False)
    def generate(self, prompt, config):
        config.max_new_tokens = 8
        config.validate()
        if self.looks_up: assert config.is_prompt_lookup(), "prompt look-up is not complete"
genai.LLMPipeline, genai.draft_model = Pipeline, lambda *arguments: arguments
found = []
for text in json.load(sys.stdin):
    try:
        exec(text, {"prompt": "text"})
        found.append("")
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}"[-300:])
print("VERDICTS" + json.dumps(found))
"""


def judged(texts: list[str]) -> list[str]:
    """Per text what GenAI says against it, or nothing."""
    assert PYTHON is not None
    run = subprocess.run(
        [PYTHON, "-c", JUDGE],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "VERDICTS" in run.stdout, run.stderr[-2000:]
    found = json.loads(run.stdout.partition("VERDICTS")[2])
    assert isinstance(found, list)
    return found


def deployments() -> list[Deployment]:
    drafter, head = ModelRef(name="draft"), ModelRef(name="eagle3-head")
    speculations = [
        Speculation(),
        *(Speculation(method="draft_model", drafter=drafter, depth=depth) for depth in (1, 5)),
        Speculation(method="draft_model", drafter=drafter, min_confidence=0.4),
        Speculation(method="ngram", depth=4, lookup=LookUp(min_ngram=1, max_ngram=3)),
        *(Speculation(method="eagle3", drafter=model, depth=3) for model in (drafter, head)),
        *(
            Speculation(
                method="eagle3", drafter=head, tree=Tree(depth=depth, branching=width, num_nodes=nodes)
            )
            for depth, width, nodes in ((1, 2, 2), (3, 2, 10), (4, 8, 15))
        ),
    ]
    around: dict[str, Any] = {"prefix_caching": True, "max_num_seqs": 8, "max_num_batched_tokens": 512}
    return [
        Deployment(engine="elsewhere", target=ModelRef(name="main"), speculation=speculation, **around)
        for speculation in speculations
    ]


def test_it_takes_what_is_written_for_it() -> None:
    texts = [OPENVINO.render(deployment).artifacts[0].text for deployment in deployments()]
    for golden in GOLDEN.values():
        rendered = OPENVINO.render(
            dialect(golden.engine).parse(golden.text, read=golden.files.get).deployment
        )  # type: ignore[arg-type]  # the files that it names are there
        texts += [artifact.text for artifact in rendered.artifacts]
    for text, verdict in zip(texts, judged(texts), strict=True):
        assert verdict == "", text


@pytest.mark.parametrize(
    "arguments",
    [
        "prompt_lookup=True, num_assistant_tokens=5",
        "prompt_lookup=True, max_ngram_size=3",
        'draft_model="d", num_assistant_tokens=2, tree_depth=3, branching_factor=2',
        'draft_model="d", tree_depth=3, branching_factor=2',
        'draft_model="d", num_assistant_tokens=6, tree_depth=3, branching_factor=2, do_sample=True',
    ],
)
def test_it_refuses_what_is_called_refused_here(arguments: str) -> None:
    assert any(remark.effect == "refused" for remark in OPENVINO.parse(arguments).remarks)
    kept = dict(part.split("=") for part in arguments.split(", ") if not part.startswith("draft_model"))
    looks_up = kept.pop("prompt_lookup", "False")
    lines = [
        "import openvino_genai", f"pipe = openvino_genai.LLMPipeline('m', 'CPU', prompt_lookup={looks_up})",
        "config = openvino_genai.GenerationConfig()", *(f"config.{name} = {value}" for name, value in kept.items()),
        "pipe.generate(prompt, config)",
    ]  # fmt: skip
    assert judged(["\n".join(lines)]) != [""]
