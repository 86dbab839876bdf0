"""Lists of names against the source that they were read from: DRAFTPROOF_VLLM_SOURCE=/path/to/vllm, the package's
directory of the version read. Nothing is imported from it."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from draftproof.configs.engines.vllm import variables
from draftproof.configs.engines.vllm.facts import METHODS, MTP_FAMILIES
from draftproof.configs.rules.facts.runners import CANDIDATE_HEADS, STEP5, XPRESS

SOURCE = os.environ.get("DRAFTPROOF_VLLM_SOURCE")
pytestmark = pytest.mark.skipif(SOURCE is None, reason="no vLLM: name its source in DRAFTPROOF_VLLM_SOURCE")


def tree(name: str) -> ast.Module:
    assert SOURCE is not None
    return ast.parse((Path(SOURCE) / "config" / name).read_text())


def strings(node: ast.AST) -> set[str]:
    return {
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def assigned(module: ast.Module, name: str) -> set[str]:
    [value] = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == name
    ]
    return strings(value)


def function(module: ast.Module, name: str) -> ast.FunctionDef:
    [found] = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found


NOT_MTP = {
    "deepseek_v41",  # has DSpark stages alone
    "MistralLarge3ForCausalLM",  # an EAGLE head
    "muse_glimmer_assistant",  # a DFlash drafter
}
NO_NAMES = {
    "architectures",
    "decoder",
    "causal_vision_prefix",
    "quantization_config",
    "num_nextn_predict_layers",
    "num_kv_shared_layers",
}
"""Attributes that the conditions read."""


def test_the_names_of_mtp_and_the_families_behind_them() -> None:
    module = tree("speculative.py")
    assert assigned(module, "MTPModelTypes") == set(MTP_FAMILIES)
    override = function(module, "hf_config_override")
    asked = set().union(*(strings(node.test) for node in ast.walk(override) if isinstance(node, ast.If)))
    families = {name for names in MTP_FAMILIES.values() for name in names}
    assert asked - NO_NAMES - NOT_MTP - set(MTP_FAMILIES) == families
    assert asked >= NOT_MTP


def test_the_other_methods() -> None:
    module = tree("speculative.py")
    named = {"SpeculativeMethod", "EagleModelTypes", "NgramGPUTypes", "DFlashModelTypes", "DSparkModelTypes"}
    assert set().union(*(assigned(module, name) for name in named)) | {"mtp"} == set(METHODS)


def test_what_one_runner_has_alone() -> None:
    module = tree("vllm.py")
    assert assigned(tree("speculative.py"), "XPRESS_ARCHITECTURES") == XPRESS
    heads = strings(function(module, "_is_dflash_candidate_draft"))
    assert {name for name in heads if name.endswith("DraftModel")} == CANDIDATE_HEADS
    lacking = strings(function(module, "_get_v1_model_runner_unsupported_features"))
    assert {name for name in lacking if name.startswith("Step5For")} == STEP5


def test_variables() -> None:
    assert SOURCE is not None
    module = ast.parse((Path(SOURCE) / "envs.py").read_text())
    [table] = [
        node.value
        for node in module.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "environment_variables"
    ]
    assert isinstance(table, ast.Dict)
    names = {key.value for key in table.keys if isinstance(key, ast.Constant)}
    assert {name for name in names if str(name).startswith("VLLM_")} <= variables.NAMES
    assert not set(variables.TODAY) & names
