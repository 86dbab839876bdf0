"""Cases of the FORMAT family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from draftproof.configs.rules.case import Case
from draftproof.configs.speculation import ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

WEIGHTS = {"model.embed_tokens.weight": (16, 64)}


def named(engine: str, name: str) -> Build:
    """By its name alone."""
    return case(engine, Speculation(method="ngram"), target=ModelRef(name=name))


def opened(engine: str, weights: bool = True, name: str | None = None, is_drafter: bool = False) -> Build:
    """A directory of Hugging Face's, as the command names it or standing for `name`."""
    files = Checkpoint(QWEN, tensors=WEIGHTS if weights else None)

    def build(directory: Path) -> Case:
        made = case(engine, Speculation(method="draft_model"), files, files)(directory)
        assert made.target_view is not None
        assert made.drafter_view is not None
        target = ModelRef(name="there.gguf" if is_drafter else name or made.target_view.reference)
        drafter = ModelRef(name=made.drafter_view.reference if is_drafter else "there.gguf")
        speculation = replace(made.speculation, drafter=drafter)
        return replace(made, deployment=replace(made.deployment, target=target, speculation=speculation))

    return build


FIXTURES = {
    "FORMAT-01": Fixtures(
        positive=(
            opened("llamacpp"),
            opened("llamacpp", weights=False),
            opened("llamacpp", is_drafter=True),
            opened("openvino"),
            named("trtllm", "/models/x.gguf"),
            named("vllm", "/models/x.GGUF"),
        ),
        negative=(
            named("llamacpp", "/models/x.gguf"),
            opened("llamacpp", name="/srv/x.gguf"),
            named("llamacpp", "org/x-GGUF"),
            named("openvino", "/models/ov"),
            named("vllm", "org/x"),
            named("trtllm", "org/x"),
            named("sglang", "/models/x.gguf"),
        ),
    ),
}
