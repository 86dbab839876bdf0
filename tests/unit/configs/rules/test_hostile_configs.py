"""Configurations with values of any type: rules find, keep silent or say what is missing, and never fail."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.view import open_view
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.speculation import Deployment, Method, ModelRef, Speculation
from draftproof.core.errors import DraftproofError
from support.rules.building import QWEN, SPECIAL, TOKENS
from support.rules.eagle import eagle3
from support.tiny_views import write_view

KEYS = (
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings",
    "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "eos_token_id", "bos_token_id",
    "quantization_config", "num_nextn_predict_layers", "mtp_config", "speculators_config", "eagle_config",
    "eagle_aux_hidden_state_layer_ids", "draft_vocab_size", "target_hidden_size", "norm_before_fc", "dflash_config",
    "norm_before_residual", "fc_norm",
    "partial_rotary_factor", "speculators_model_type", "num_experts", "kv_lora_rank", "use_sliding_window",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.sampled_from((10**400, -(10**400)))
    | st.sampled_from(("", "eagle3", "mamba", "linear_attention", "yarn", "mtp", "fp8", "re:[", "\x1b[31m")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            (
                "verifier", "name_or_path", "revision", "factor", "ignore", "layer_ids", "dynamic", "rope_type",
                "original_max_position_embeddings", "partial_rotary_factor",
            )
        ),
        inner,
        max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip
CONFIGS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)
ENGINES = ("draftproof", "vllm", "sglang", "trtllm", "llamacpp", "transformers", "openvino", "fireworks")


SCALING = {"factor": math.inf, "original_max_position_embeddings": 4096}


@settings(max_examples=60, deadline=None)
@example({"rope_scaling": SCALING}, {"rope_scaling": SCALING}, "vllm", "eagle3")
@example({}, {"rope_scaling": SCALING | {"factor": math.nan}}, "vllm", "eagle3")
@example(
    {},
    {"rope_scaling": SCALING | {"factor": 1.5, "original_max_position_embeddings": 10**400}},
    "vllm",
    "eagle3",
)
@example({}, {"rope_scaling": {"rope_type": ["yarn"]}, "max_position_embeddings": 64}, "vllm", "eagle3")
@example({"partial_rotary_factor": 10**400}, {"partial_rotary_factor": 0.5}, "vllm", "eagle3")
@given(CONFIGS, CONFIGS, st.sampled_from(ENGINES), st.sampled_from(get_args(Method)))
def test_no_configuration_makes_a_rule_fail(
    target: dict[str, Any], drafter: dict[str, Any], engine: str, method: Method
) -> None:
    head = eagle3()
    with TemporaryDirectory() as folder:
        first = write_view(Path(folder) / "t", {**QWEN, **target}, tokens=TOKENS, special=SPECIAL)
        second = write_view(
            Path(folder) / "d", {**head.config, **drafter}, tensors=head.tensors, values=head.values
        )
        case = Case(
            deployment=Deployment(
                engine=engine,
                target=ModelRef(name="org/t"),
                speculation=Speculation(method=method, drafter=ModelRef(name="org/d"), depth=4),
            ),
            target_view=open_view(str(first)),
            drafter_view=open_view(str(second)),
        )
        try:
            judged = judge(case, rules_of())
        except DraftproofError:
            return
    json.dumps([finding.as_dict() for finding in judged.findings])
    told = {entry.code for entry in judged.not_checked}
    assert not told & set(judged.checked)
