"""Cases of the CONFIG family."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from draftproof.configs.speculation import BatchRange, Method, ModelRef, Speculation, Tree
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

DRAFTER = ModelRef(name="org/drafter")


def run(
    engine: str, method: Method, files: Checkpoint | None = None, fields: Any = None, **said: Any
) -> Build:
    if files is not None:
        said = {"drafter": DRAFTER, **said}
    return case(engine, Speculation(method=method, **said), None, files, **(fields or {}))


def served(config: dict[str, Any], method: Method = "none", version: str | None = None) -> Build:
    return case("vllm", Speculation(method=method), Checkpoint(config, tokens=None), version=version)


SPECULATORS = {
    **QWEN,
    "speculators_model_type": "eagle3",
    "speculators_config": {"verifier": {"name_or_path": "org/Target-8B"}},
}
SCHEDULE = (BatchRange(low=1, high=8, depth=4), BatchRange(low=9, high=None, depth=0))
PLAIN = Checkpoint({**QWEN}, tokens=None)
MASKED = Checkpoint({**QWEN, "mask_token_id": 3}, tokens=None, tensors={"a.weight": (2, 2)})
HIDDEN = Checkpoint({**QWEN, "ptd_token_id": 3}, tokens=None, tensors={"mask_hidden": (2,)})
V1 = {"extras": MappingProxyType({"vllm.env": MappingProxyType({"VLLM_USE_V2_MODEL_RUNNER": "0"})})}
V2 = {"extras": MappingProxyType({"vllm.env": MappingProxyType({"VLLM_USE_V2_MODEL_RUNNER": "1"})})}
FOUR = {"tensor_parallel": 4}
PARSE = Checkpoint({**QWEN, "architectures": ["ParseAuxMTPModel"]}, tokens=None)
STEP5 = Checkpoint({**QWEN, "architectures": ["Step5ForCausalLM"]}, tokens=None)


def dflash(**changes: Any) -> Checkpoint:
    return Checkpoint({**QWEN, "mask_token_id": 3, **changes}, tokens=None)


V2_DRAFTERS = (
    dflash(architectures=["DFlash2DraftModel"]),
    dflash(architectures=["LiLiCorrDraftModel"]),
    dflash(architectures=["Qwen3XPressModel"]),
    dflash(speculators_model_type="dflash2"),
    dflash(layer_types=["sliding_attention", "full_attention"]),
)
"""What only model runner V2 drafts with."""
REJECTION = MappingProxyType({"sglang.use-rejection-sampling": True})

ASSISTANT = Checkpoint({**QWEN, "architectures": ["Gemma4AssistantForCausalLM"]}, tokens=None)


def drawn(
    method: Method, rows: int | None = None, architecture: str = "Qwen2ForCausalLM", **said: Any
) -> Build:
    """SGLang draws the drafts of a head that drafts `rows` of the target's 16 tokens."""
    speculation = {
        "method": method,
        "drafter": DRAFTER,
        "depth": 3,
        "draft_sampling": "probabilistic",
        **said,
    }
    target = Checkpoint({**QWEN, "architectures": [architecture]}, tokens=None)
    head = Checkpoint({**QWEN, "draft_vocab_size": rows}, tokens=None)
    return case("sglang", Speculation(**speculation), target, head)


FIXTURES = {
    "CONFIG-01": Fixtures(
        positive=(
            run("vllm", "medusa"),
            run("vllm", "mlp_speculator"),
            run("vllm", "predicted"),
            run("sglang", "suffix"),
            run("trtllm", "lookahead"),
        ),
        negative=(
            run("vllm", "eagle3"),
            run("trtllm", "eagle"),
            run("vllm", "none"),
            run("vllm", "medusa", fields={"version": "0.32.0"}),
        ),
    ),
    "CONFIG-02": Fixtures(
        positive=(
            run("vllm", "eagle3", depth=3),
            run("trtllm", "draft_model", depth=3),
            run("llamacpp", "draft_model"),
            *(run("llamacpp", "eagle3", fields={"target": ModelRef(name=name)}) for name in ("a/b", "m.gguf", "./a")),
        ),
        negative=(run("vllm", "eagle3", drafter=DRAFTER), run("vllm", "mtp"), run("sglang", "ngram")),
    ),
    "CONFIG-03": Fixtures(
        positive=(
            run("vllm", "draft_model", drafter=DRAFTER),
            run("vllm", "ngram"),
            run("vllm", "mtp"),
            run("vllm", "dspark"),
            run("vllm", "custom", drafter=DRAFTER),
            run("vllm", "eagle3", schedule=SCHEDULE, drafter=DRAFTER),
            run("vllm", "eagle3", Checkpoint({**QWEN, "speculators_config": {}}, tokens=None)),
        ),
        negative=(
            run("vllm", "ngram", depth=4),
            run("vllm", "suffix"),
            run("vllm", "mtp", drafter=DRAFTER),
            run("vllm", "dspark", drafter=DRAFTER),
        ),
    ),
    "CONFIG-04": Fixtures(
        positive=(
            *(run("vllm", method, draft_tensor_parallel=2, fields=FOUR) for method in ("eagle3", "draft_model")),
            *(run("vllm", method, draft_tensor_parallel=1, fields=FOUR) for method in ("eagle3", "mtp", "pard")),
            run("vllm", "draft_model", draft_tensor_parallel=1, fields={**V1, **FOUR}),
            run("vllm", "draft_model", draft_tensor_parallel=1, different_vocabulary=True, fields=FOUR),
        ),
        negative=(
            *(run("vllm", method, draft_tensor_parallel=1, fields=FOUR) for method in ("draft_model", "dspark")),
            *(run("vllm", method, draft_tensor_parallel=4, fields=FOUR) for method in ("eagle3", "draft_model")),
        ),
    ),
    "CONFIG-05": Fixtures(
        positive=(
            run("sglang", "draft_model", schedule=SCHEDULE),
            run("llamacpp", "draft_model", schedule=SCHEDULE),
            run("vllm", "mtp", schedule=SCHEDULE, fields={"data_parallel": 2}),
            run("vllm", "mtp", schedule=SCHEDULE, fields={"data_parallel": 2, "version": "0.32.0"}),
        ),
        negative=(
            run("sglang", "eagle3", schedule=SCHEDULE),
            run("vllm", "mtp", schedule=SCHEDULE),
            run("llamacpp", "draft_model", depth=3),
        ),
    ),
    "CONFIG-06": Fixtures(
        positive=(
            run("sglang", "draft_model", adaptive=True),
            run("sglang", "eagle", adaptive=True, tree=Tree(depth=3, branching=4, num_nodes=9)),
            run("sglang", "eagle", adaptive=True, fields={"rest": ("--enable-dp-attention",)}),
            run("vllm", "mtp", adaptive=True, fields={"lora": True}),
            run("vllm", "mtp", adaptive=True, fields=V1),
            run("vllm", "mtp", adaptive=True, fields={"lora": True, "version": "0.32.0"}),
        ),
        negative=(run("sglang", "eagle3", adaptive=True), run("vllm", "mtp", adaptive=True), run("sglang", "eagle3")),
    ),
    "CONFIG-07": Fixtures(
        positive=(run("vllm", "dflash", PLAIN, depth=4), run("vllm", "p_eagle", MASKED, depth=4)),
        negative=(
            run("vllm", "dflash", MASKED, depth=4),
            run("vllm", "p_eagle", HIDDEN, depth=4),
            run("vllm", "dflash", Checkpoint({**QWEN, "dflash_config": {"mask_token_id": 9}}, tokens=None), depth=4),
        ),
    ),
    "CONFIG-08": Fixtures(
        positive=(
            run("sglang", "draft_model", extras=REJECTION),
            run("sglang", "eagle", extras=REJECTION, tree=Tree(depth=3, branching=4, num_nodes=9)),
            run("sglang", "ngram", verification="block"),
            drawn("eagle3", 8),
            drawn("eagle3", 8, draft_sampling=None, verification="block"),
            drawn("eagle3", depth=None, architecture="LlamaForCausalLM"),
            run("sglang", "eagle", depth=3, extras={**REJECTION, "sglang.token-map": "a.pt"}),
            run("sglang", "mtp", ASSISTANT, depth=3, extras=REJECTION),
            run("trtllm", "ngram", extras=MappingProxyType({"trtllm.use_rejection_sampling": True})),
        ),
        negative=(
            run("sglang", "eagle", extras=REJECTION, depth=3),
            run("sglang", "draft_model"),
            run("sglang", "dspark", verification="block"),
            drawn("eagle3", 16),
            drawn("eagle3", None),
            drawn("eagle3", 8, draft_sampling=None),
            drawn("eagle3", depth=None),
            drawn("eagle3", depth=None, adaptive=True, architecture="LlamaForCausalLM"),
            run("trtllm", "mtp", extras=MappingProxyType({"trtllm.use_rejection_sampling": True})),
        ),
    ),
    "CONFIG-09": Fixtures(
        positive=(
            served(SPECULATORS),
            served(SPECULATORS, version="0.32.0"),
            served({**SPECULATORS, "speculators_config": {}}),
        ),
        negative=(served({**QWEN}), served(SPECULATORS, "ngram")),
    ),
    "CONFIG-10": Fixtures(
        positive=(
            run("vllm", "suffix", fields=V2),
            run("vllm", "draft_model", fields=V2, different_vocabulary=True),
            run("vllm", "dspark", fields=V1),
            run("vllm", "mtp", fields=V1, extras=MappingProxyType({"vllm.draft_lm_head_quantization": "fp8"})),
            run("vllm", "eagle3", fields={**V2, "rest": ("--enable-dbo",)}),
            run("vllm", "mtp", fields={**V2, "rest": ("--ubatch-size", "2")}),
            run("vllm", "mtp", fields={**V1, "rest": ("--prefill-context-parallel-size", "2")}),
            run("vllm", "mtp", fields={**V1, "rest": ("-pcp", "2")}),
            run("vllm", "mtp", fields={**V1, "rest": ("--enable-batch-sharded-sampling",)}),
            run("vllm", "mtp", fields={**V1, "pipeline_parallel": 2, "rest": ("--async-scheduling",)}),
            *(run("vllm", "dflash", drafter, fields=V1) for drafter in V2_DRAFTERS),
            case("vllm", Speculation(method="mtp"), STEP5, **V1),
            run("vllm", "mtp", PARSE, fields=V1),
        ),
        negative=(
            run("vllm", "suffix"),
            run("vllm", "suffix", fields=V1),
            run("vllm", "dspark", fields=V2),
            run("vllm", "custom", fields=V2, extras=MappingProxyType({"vllm.method": "extract_hidden_states"})),
            run("vllm", "eagle3", fields=V1),
            run("vllm", "none", fields={**V2, "rest": ("--enable-dbo",)}),
            run("vllm", "eagle3", fields={"rest": ("--enable-dbo",)}),
            run("vllm", "eagle3", fields={**V2, "rest": ("--ubatch-size", "1")}),
            run("vllm", "mtp", fields={**V1, "rest": ("--prefill-context-parallel-size", "1")}),
            run("vllm", "mtp", fields={**V1, "rest": ("--async-scheduling",)}),
            run("vllm", "mtp", fields={**V1, "pipeline_parallel": 2}),
            run("vllm", "dflash", MASKED, fields=V1),
            run("vllm", "dflash", dflash(layer_types=["sliding_attention"] * 2), fields=V1),
            *(run("vllm", "dflash", drafter, fields=V2) for drafter in V2_DRAFTERS),
        ),
    ),
}  # fmt: skip
