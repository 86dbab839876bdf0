"""Cases of the QUANT family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(target: str | None, drafter: str | None = None, engine: str = "sglang", **config: Any) -> Build:
    return case(
        engine,
        Speculation(
            method="draft_model", depth=4, drafter=ModelRef(name="org/drafter", quantization=drafter)
        ),
        Checkpoint(QWEN),
        Checkpoint({**QWEN, **config}),
        target=ModelRef(name="org/target", quantization=target),
    )


FIXTURES = {
    "QUANT-01": Fixtures(
        positive=(run("fp8"),),
        negative=(
            run(None),
            run("fp8", "unquant"),
            run("awq", quantization_config={"quant_method": "awq"}),
            run("fp8", engine="vllm"),
        ),
    ),
}
