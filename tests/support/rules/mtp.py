"""Cases of the MTP family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

PLAIN = {"model.layers.0.mlp.up_proj.weight": (128, 64), "model.layers.3.mlp.up_proj.weight": (128, 64)}
MIMO = {"model.mtp_layers.0.input_proj.weight": (64, 128), "model.mtp_layers.0.mlp.up_proj.weight": (128, 64)}
DEEPSEEK = {"model.layers.4.eh_proj.weight": (64, 128), "model.layers.4.mlp.up_proj.weight": (128, 64)}


def target(tensors: dict[str, Any], **changes: Any) -> Checkpoint:
    named = {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    return Checkpoint({**QWEN, **named, **changes}, tensors=tensors)


def family(model_type: str, architecture: str = "NovelForCausalLM", **declared: Any) -> Build:
    changes = {"model_type": model_type, "architectures": [architecture], **(declared or DECLARED)}
    return run(target({**PLAIN, **MIMO}, **changes))


def run(target: Checkpoint, engine: str = "vllm", depth: int = 1, version: str | None = None) -> Build:
    return case(engine, Speculation(method="mtp", depth=depth), target, version=version)


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
        positive=tuple(
            family(name) for name in ("novel", "gpt_oss", "hunyuan_v3", "deepseek_v41", "qwen3_5x", "mimo", "step3")
        ),
        negative=(
            run(GOOD),
            *(
                family(name)
                for name in ("qwen3_5_moe_text", "glm5_next", "step5", "step5_vl", "deepseek_v4", "qwen4_exp_text")
            ),
            family("novel", "Step5ForCausalLM"),
            family("novel", num_mtp_layers=1),
        ),
    ),
    "MTP-05": Fixtures(
        positive=(
            run(GOOD, depth=2),
            run(GOOD, depth=2, version="0.32.0"),
            run(target({**PLAIN, **MIMO}, num_nextn_predict_layers=2), depth=3),
        ),
        negative=(run(GOOD), run(target({**PLAIN, **MIMO}, num_nextn_predict_layers=3), depth=2)),
    ),
}  # fmt: skip
