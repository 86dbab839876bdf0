"""Cases of the EAGLE family. Shapes as published heads have them, in small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.configs.engines.base import Remark
from draftproof.configs.speculation import Method, ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

H, V, DRAFT = 64, 16, 8
TARGET = Checkpoint({**QWEN, "num_hidden_layers": 8})

T2D = [1 if token in (0, 2, 3, 5, 8, 9, 12, 15) else 0 for token in range(V)]
IDS = [token for token, flag in enumerate(T2D) if flag]
D2T = [target - draft for draft, target in enumerate(IDS)]


def eagle(**changes: Any) -> Checkpoint:
    config = {**QWEN, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"], **changes}
    tensors = {
        "embed_tokens.weight": (V, H),
        "fc.weight": (H, 2 * H),
        "layers.0.self_attn.q_proj.weight": (H, H),
        "layers.0.self_attn.k_proj.weight": (H // 2, H),
    }
    return Checkpoint(config, tensors=tensors, tokens=None)


def eagle3(
    width: int = 3 * H,
    d2t: list[int] | None = D2T,
    t2d: list[int] | None = T2D,
    extra: Mapping[str, Any] | None = None,
    rows: int = DRAFT,
    attention: int = 2 * H,
    **changes: Any,
) -> Checkpoint:
    config = {
        **QWEN, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "draft_vocab_size": DRAFT, **changes,
    }  # fmt: skip
    tensors = {
        "fc.weight": (H, width),
        "midlayer.self_attn.q_proj.weight": (H, attention),
        "midlayer.self_attn.k_proj.weight": (H // 2, attention),
        "lm_head.weight": (rows, H),
        **(extra or {}),
    }
    values: dict[str, tuple[str, list[int]]] = {}
    if d2t is not None:
        values["d2t"] = ("I64", d2t)
    if t2d is not None:
        values["t2d"] = ("BOOL", t2d)
    return Checkpoint(config, tensors=tensors, values=values, tokens=None)


NARROW = Checkpoint({**QWEN, "hidden_size": 32})
OWN = {"embed_tokens.weight": (V, H)}
"""An embedding of the head's own width."""

MODEL = Checkpoint(
    {**QWEN, "num_hidden_layers": 2},
    tensors={
        "model.embed_tokens.weight": (V, H),
        "model.layers.0.self_attn.q_proj.weight": (H, H),
        "model.layers.1.self_attn.q_proj.weight": (H, H),
    },
)
LAYERS = {"eagle_aux_hidden_state_layer_ids": [2, 4, 6]}
V1 = {"extras": {"vllm.env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}}


def nested(*layers: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}}


OF_STATES = {f"fc_norm.{number}.weight": (H,) for number in range(3)}
"""One norm for each captured state."""


def run(
    engine: str,
    method: Method,
    drafter: Checkpoint,
    target: Checkpoint = TARGET,
    name: str = "org/some-eagle3-head",
    remarks: tuple[Remark, ...] = (),
    said: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Build:
    speculation = Speculation(method=method, drafter=ModelRef(name=name), depth=4, **(said or {}))
    return case(engine, speculation, target, drafter, remarks=remarks, **fields)


DSPARK = Checkpoint(
    {**QWEN, "architectures": ["Qwen3DSparkModel"]}, tokens=None, tensors={"markov_w1.weight": (2, 2)}
)
GUESSED = (
    Remark(
        effect="inferred",
        setting="speculation.method",
        found="",
        today="draft_model",
        reason="no method is given",
    ),
)

SHIFTED = [offset + (1 if rank == 3 else 0) for rank, offset in enumerate(D2T)]
DESCENDING = [5, 2, *D2T[2:]]

FIXTURES = {
    "EAGLE-01": Fixtures(
        positive=(run("sglang", "eagle", eagle3()), run("vllm", "eagle", eagle3())),
        negative=(
            run("sglang", "eagle", eagle()),
            run("sglang", "eagle3", eagle3()),
            run("trtllm", "eagle", eagle3()),
        ),
    ),
    "EAGLE-02": Fixtures(
        positive=(
            run("trtllm", "eagle", eagle()),
            run("trtllm", "eagle3", eagle()),
            run("sglang", "eagle3", eagle()),
        ),
        negative=(
            run("trtllm", "eagle", eagle3()),
            run("sglang", "eagle", eagle()),
            run("vllm", "eagle3", eagle3()),
        ),
    ),
    "EAGLE-03": Fixtures(
        positive=(
            run("vllm", "draft_model", eagle3()),
            run("draftproof", "draft_model", eagle()),
            run("draftproof", "auto", eagle3()),
            run("trtllm", "mtp", eagle3()),
        ),
        negative=(run("vllm", "draft_model", MODEL), run("vllm", "eagle3", eagle3())),
    ),
    "EAGLE-04": Fixtures(
        positive=(run("vllm", "eagle", MODEL), run("sglang", "eagle3", MODEL)),
        negative=(run("vllm", "eagle", eagle()), run("vllm", "eagle3", eagle3())),
    ),
    "EAGLE-05": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(width=3 * 96)),
            run("vllm", "eagle3", eagle3(target_hidden_size=96)),
            run("vllm", "eagle3", eagle3(width=2 * H, **LAYERS)),
            run("vllm", "eagle", eagle(), Checkpoint({**QWEN, "hidden_size": 96})),
            run("vllm", "eagle3", eagle3(width=6 * 32), NARROW),
            run("llamacpp", "eagle3", eagle3(width=6 * 32), NARROW),
            run("vllm", "eagle3", eagle3(width=3 * 32, target_hidden_size=32), NARROW),
            run("vllm", "eagle3", eagle3(width=3 * 32, extra=OWN), NARROW),
            run("sglang", "eagle3", eagle3(width=3 * 32, extra=OWN), NARROW),
        ),
        negative=(
            run("vllm", "eagle3", eagle3()),
            run("vllm", "eagle3", eagle3(width=4 * H, num_aux_hidden_states=4)),
            run("vllm", "eagle", eagle()),
            run("vllm", "eagle3", eagle3(width=3 * 32, target_hidden_size=32, extra=OWN), NARROW),
            run("sglang", "eagle3", eagle3(width=3 * 32, target_hidden_size=32, extra=OWN), NARROW),
            run("vllm", "eagle3", eagle3(width=2 * H, eagle_aux_hidden_state_layer_ids=[2, 4])),
        ),
    ),
    "EAGLE-06": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(attention=H)),
            run("sglang", "eagle", eagle(architectures=["LlamaForCausalLMEagle3"])),
        ),
        negative=(run("vllm", "eagle3", eagle3()), run("vllm", "eagle", eagle()), run("vllm", "draft_model", MODEL)),
    ),
    "EAGLE-07": Fixtures(
        positive=(run("vllm", "eagle3", eagle3(d2t=None, t2d=None)), run("sglang", "eagle3", eagle3(d2t=None))),
        negative=(
            run("vllm", "eagle3", eagle3()),
            run("vllm", "eagle3", eagle3(d2t=None, t2d=None, draft_vocab_size=V, rows=V)),
        ),
    ),
    "EAGLE-08": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(d2t=D2T[:-1], t2d=None)),
            run("vllm", "eagle3", eagle3(d2t=SHIFTED)),
            run("vllm", "eagle3", eagle3(d2t=IDS)),
            run("vllm", "eagle3", eagle3(t2d=[*T2D[:-1], 0])),
            run("vllm", "eagle3", eagle3(d2t=[*D2T[:-1], 9], t2d=None)),
            run("vllm", "eagle3", eagle3(d2t=DESCENDING, t2d=None)),
        ),
        negative=(run("vllm", "eagle3", eagle3()), run("sglang", "eagle3", eagle3(t2d=None))),
    ),
    "EAGLE-09": Fixtures(
        positive=(run("vllm", "eagle3", eagle3(rows=DRAFT + 1)),),
        negative=(run("vllm", "eagle3", eagle3()),),
    ),
    "EAGLE-10": Fixtures(
        positive=(run("vllm", "eagle3", eagle3(vocab_size=24)), run("vllm", "eagle", eagle(vocab_size=24))),
        negative=(run("vllm", "eagle3", eagle3()), run("vllm", "eagle3", eagle3(vocab_size=DRAFT))),
    ),
    "EAGLE-11": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(eagle_aux_hidden_state_layer_ids=[2, 16, 29])),
            run("sglang", "eagle3", eagle3(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 2, 5]})),
        ),
        negative=(
            run("vllm", "eagle3", eagle3(**LAYERS)),
            run("vllm", "eagle3", eagle3(eagle_aux_hidden_state_layer_ids=[2, 4, 8])),
        ),
    ),
    "EAGLE-12": Fixtures(
        positive=tuple(run(engine, "eagle3", eagle3()) for engine in ("vllm", "sglang", "trtllm")),
        negative=(
            run("vllm", "eagle3", eagle3(**LAYERS)),
            run("llamacpp", "eagle3", eagle3(**{"eagle3.target_layers": [2, 4, 5]})),
            run("trtllm", "eagle3", eagle3(), said={"extras": {"trtllm.eagle3_layers_to_capture": (1, 3, 4)}}),
        ),
    ),
    "EAGLE-13": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(norm_before_fc=True)),
            run("vllm", "eagle3", eagle3(extra={"input_norm.weight": (3 * H,)})),
            run("vllm", "eagle3", eagle3(bias=False, extra={"fc.bias": (H,)})),
            run("vllm", "eagle3", eagle3(fc_norm=True)),
            run("vllm", "eagle3", eagle3(extra=OF_STATES)),
            run("sglang", "eagle3", eagle3(use_aux_norm=True)),
            run("sglang", "eagle3", eagle3(extra={"aux_norm_low.weight": (H,)})),
        ),
        negative=(
            run("vllm", "eagle3", eagle3()),
            run("vllm", "eagle3", eagle3(norm_before_fc=True, extra={"input_norm.weight": (3 * H,)})),
            run("vllm", "eagle3", eagle3(eagle_config={"norm_before_fc": True}, extra={"n.weight": (3 * H,)})),
            run("vllm", "eagle3", eagle3(fc_norm=True, extra=OF_STATES)),
            run("sglang", "eagle3", eagle3(use_aux_norm=True, extra={"aux_norm_low.weight": (H,)})),
        ),
    ),
    "EAGLE-14": Fixtures(
        positive=(
            run("vllm", "draft_model", eagle3(), name="/models/head", remarks=GUESSED),
            run("vllm", "eagle", eagle3(), name="org/eagle-head-for-q", remarks=GUESSED),
            run("vllm", "eagle3", DSPARK, name="org/eagle3-head", remarks=GUESSED),
        ),
        negative=(
            run("vllm", "eagle3", eagle3(), name="org/EAGLE3-head", remarks=GUESSED),
            run("vllm", "eagle3", eagle3(), name="/models/head"),
            run("vllm", "draft_model", MODEL, name="org/small", remarks=GUESSED),
            run("vllm", "dspark", DSPARK, name="/models/head", remarks=GUESSED),
        ),
    ),
    "EAGLE-15": Fixtures(
        positive=(
            run("vllm", "eagle3", eagle3(**nested(1, 3, 5))),
            run("sglang", "eagle3", eagle3(**LAYERS)),
            run("trtllm", "eagle3", eagle3(**LAYERS)),
            run("trtllm", "eagle3", eagle3(**nested(1, 3, 5))),
        ),
        negative=(
            run("vllm", "eagle3", eagle3(**LAYERS)),
            run("vllm", "eagle3", eagle3()),
            run("vllm", "eagle3", eagle3(**nested(1, 3, 4))),
            run("vllm", "eagle3", eagle3(**nested(1, 3, 5)), **V1),
            run("sglang", "eagle3", eagle3(**nested(1, 3, 5))),
            run("sglang", "eagle3", eagle3(eagle_aux_hidden_state_layer_ids=[2, 4, 5])),
            run("trtllm", "eagle3", eagle3(**LAYERS), said={"extras": {"trtllm.eagle3_layers_to_capture": (1, 3, 5)}}),
        ),
    ),
    "EAGLE-16": Fixtures(
        positive=(
            run("sglang", "eagle3", eagle3(norm_before_residual=True)),
            run("trtllm", "eagle3", eagle3(norm_before_residual=True)),
            run("trtllm", "eagle3", eagle3(norm_before_fc=True, extra={"n.weight": (3 * H,)})),
            run("vllm", "eagle3", eagle3(use_aux_norm=True)),
            run("vllm", "p_eagle", eagle3(speculators_model_type="peagle", norm_output=True)),
        ),
        negative=(
            run("vllm", "eagle3", eagle3(norm_before_residual=True, norm_output=True, fc_norm=True, extra=OF_STATES)),
            run("sglang", "eagle3", eagle3(norm_before_residual=False, norm_output=True, use_aux_norm=True)),
            run("trtllm", "eagle3", eagle3(eagle_config={"norm_before_fc": True}, norm_before_fc=True)),
        ),
    ),
    "EAGLE-17": Fixtures(
        positive=(
            run("llamacpp", "eagle3", eagle3(**{"eagle3.target_layers": [2, 4, 5, 7]})),
            run("llamacpp", "eagle3", eagle3(eagle_aux_hidden_state_layer_ids=[2, 5])),
            run("llamacpp", "eagle3", eagle3(num_hidden_layers=2)),
        ),
        negative=(
            run("llamacpp", "eagle3", eagle3()),
            run("llamacpp", "eagle3", eagle3(**{"eagle3.target_layers": [2, 4, 5]})),
            run("llamacpp", "eagle3", eagle3(**LAYERS)),
            run("vllm", "eagle3", eagle3(num_hidden_layers=2, eagle_aux_hidden_state_layer_ids=[2, 5])),
        ),
    ),
}  # fmt: skip
