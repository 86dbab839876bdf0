"""Cases of the MTP family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

PLAIN = {"model.layers.0.mlp.up_proj.weight": (128, 64), "model.layers.3.mlp.up_proj.weight": (128, 64)}
MIMO = {"model.mtp_layers.0.input_proj.weight": (64, 128), "model.mtp_layers.0.mlp.up_proj.weight": (128, 64)}
DEEPSEEK = {"model.layers.4.eh_proj.weight": (64, 128), "model.layers.4.mlp.up_proj.weight": (128, 64)}


def target(tensors: dict[str, Any], **changes: Any) -> Checkpoint:
    return Checkpoint({**QWEN, "model_type": "mimo", **changes}, tensors=tensors)


def run(target: Checkpoint, engine: str = "vllm", depth: int = 1) -> Build:
    return case(engine, Speculation(method="mtp", depth=depth), target)


DECLARED = {"num_nextn_predict_layers": 1}
GPTQ = {"quant_method": "gptq", "bits": 4}
KEPT = {**GPTQ, "modules_to_not_convert": ["mtp"]}
GOOD = target({**PLAIN, **MIMO}, **DECLARED)
QUANTISED = {"model.layers.0.mlp.up_proj.qweight": ("I32", (16, 128))}

FIXTURES = {
    "MTP-01": Fixtures(
        positive=(run(target(PLAIN, **DECLARED)), run(target(PLAIN, mtp_num_hidden_layers=1), "sglang")),
        negative=(run(GOOD), run(target({**PLAIN, **DEEPSEEK}, **DECLARED))),
    ),
    "MTP-02": Fixtures(
        positive=(run(target(PLAIN)), run(Checkpoint(QWEN)), run(Checkpoint(QWEN), "sglang")),
        negative=(run(GOOD), run(target({**PLAIN, "mtp.fc.weight": (64, 128)}))),
    ),
    "MTP-03": Fixtures(
        positive=(run(target({**QUANTISED, **MIMO}, quantization_config=GPTQ, **DECLARED)),),
        negative=(
            run(GOOD),
            run(target({**QUANTISED, **MIMO}, quantization_config=KEPT, **DECLARED)),
            run(target({**QUANTISED, **MIMO}, quantization_config={**GPTQ, "dynamic": {"-:.*mtp.*": {}}}, **DECLARED)),
            run(
                target(
                    {**QUANTISED, **DEEPSEEK},
                    quantization_config={"quant_method": "fp8", "ignored_layers": ["model.layers.4"]},
                    **DECLARED,
                )
            ),
        ),
    ),
    "MTP-04": Fixtures(
        positive=(run(target({**PLAIN, **MIMO}, **{**DECLARED, "model_type": "novel"})),),
        negative=(run(GOOD), run(target({**PLAIN, **MIMO}, **{**DECLARED, "model_type": "qwen3_5_moe_text"}))),
    ),
    "MTP-05": Fixtures(
        positive=(run(GOOD, depth=2), run(target({**PLAIN, **MIMO}, num_nextn_predict_layers=2), depth=3)),
        negative=(run(GOOD), run(target({**PLAIN, **MIMO}, num_nextn_predict_layers=3), depth=2)),
    ),
}  # fmt: skip
