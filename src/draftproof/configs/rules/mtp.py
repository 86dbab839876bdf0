"""MTP: layers that predict further tokens, declared and there, in a form and a family that the engine can run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.checkpoints.heads import find_mtp
from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.engines.vllm.facts import MTP_FAMILIES
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Hit, MissingError, Reading, Rule, on_command
from draftproof.configs.speculation import Method
from draftproof.core.finding import Evidence, Severity, Source

_MTP: frozenset[Method] = frozenset({"mtp"})
_DROPPED = Source(
    name="ms-swift issue 9802, auto-round pull request 1526, GPTQModel issue 2643, omlx issue 1779",
    read="2026-11",
)
_QUANTISED = Source(
    name="vLLM issues 36954, 37667, 41789, 43304; pull requests 39475, 44333, 47828, 48814", read="2026-11"
)
_VLLM = Reading("vllm", "==0.33.0", Source(name="vLLM 0.33.0 source", read="2026-11"))


def _declared_but_gone(case: Case) -> Iterator[Hit]:
    if case.has_drafter:
        return
    found = find_mtp(case.target)
    if found.declared is None:
        return
    if found.tensors is None:
        raise MissingError(_no_names(case.target))
    if not found.tensors:
        key, count = found.declared
        yield Hit(
            detail=(
                f"The configuration declares {count} MTP layer{'s' * (count > 1)}, and no tensor of them is "
                "there."
            ),
            evidence=(
                Evidence(where="config.json", key=key, found=str(count)),
                Evidence(
                    where=case.target.reference,
                    key="mtp.*",
                    found="no such tensors",
                    expected="the layers' tensors",
                ),
            ),
        )


def _no_names(view: CheckpointView) -> str:
    return f"the target's tensor names: {'; '.join(view.remarks) or 'no weights at hand'}"


_UNDECLARED = ("qwen3_next",)
"""Families that have MTP layers and do not say so in their configuration."""


def _none_at_all(case: Case) -> Iterator[Hit]:
    if case.has_drafter:
        return
    found = find_mtp(case.target)
    if found.declared is not None or found.tensors:
        return
    model_type = case.target.language_config.get("model_type")
    if found.tensors is None and model_type in _UNDECLARED:
        raise MissingError(_no_names(case.target))
    named = case.target.config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else "this target"
    yield on_command(
        f"The method is MTP, and {architecture} has no MTP layers: the configuration declares none"
        f"{', and no tensor of them is there' if found.tensors is not None else ''}.",
        "num_nextn_predict_layers (or its like)",
        "not there",
        "a number of layers",
        where="config.json",
    )


_EXCLUSIONS = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
    "dynamic",
)
_FLOATS = frozenset({"BF16", "F16", "F32"})


def _not_quantised(case: Case) -> Iterator[Hit]:
    quantisation = case.target.quantization_config
    if not quantisation or case.has_drafter:
        return
    names = find_mtp(case.target).tensors
    if names is None:
        raise MissingError(_no_names(case.target))
    tensors = case.tensors(case.target, "target") if names else {}
    plain = [
        name
        for name in names
        if name.endswith(".weight") and len(tensors[name].shape) >= 2 and tensors[name].dtype in _FLOATS
        and re.search(r"\.(mlp|self_attn|experts|block_sparse_moe)\.", name)
    ]  # fmt: skip
    of_mtp = frozenset(names)
    is_quantised = any(info.dtype not in _FLOATS for name, info in tensors.items() if name not in of_mtp)
    if any(tensors[name].dtype not in _FLOATS for name in names):
        return  # quantised like the rest
    if plain and is_quantised and not _is_excluded(plain[0], quantisation):
        method = quantisation.get("quant_method", quantisation.get("quant_algo", "a quantisation"))
        yield Hit(
            detail=(
                f"The MTP layers are stored as {tensors[plain[0]].dtype}, and the checkpoint's quantisation "
                f"({method}) is declared for all layers: engines that apply it to them fail to load or accept next "
                "to nothing."
            ),
            evidence=(
                Evidence(where=tensors[plain[0]].where, key=plain[0], found=tensors[plain[0]].dtype),
                Evidence(
                    where="config.json",
                    key="quantization_config",
                    found="no exclusion of the MTP layers",
                    expected="modules_to_not_convert or its like with them",
                ),
            ),
            remedy=_exclusion_remedy(plain[0], str(method)),
        )


def _exclusion_remedy(name: str, method: str) -> str | None:
    """The exception as the quantisation's own format writes it; None where it is not known."""
    module = re.split(r"\.(?:mlp|self_attn|experts|block_sparse_moe)\.", name)[0]
    escaped = re.escape(module)
    written = {
        "gptq": {"dynamic": {f"-:{escaped}\\..*": {}}},
        "compressed-tensors": {"ignore": [f"re:{escaped}\\..*"]},
        "fp8": {"modules_to_not_convert": [module]},
        "awq": {"modules_to_not_convert": [module]},
    }.get(method.lower())
    if written is None:
        return None
    return (
        f"Add {json.dumps(written)[1:-1]} to quantization_config in a copy of config.json, or take a checkpoint that "
        "has it; then look at acceptance first."
    )


def _is_excluded(name: str, quantisation: Mapping[str, Any]) -> bool:
    for key in _EXCLUSIONS:
        entries = quantisation.get(key)
        for entry in entries if isinstance(entries, list | dict) else ():
            if isinstance(entry, str) and _matches(entry, name):
                return True
    return False


def _matches(entry: str, name: str) -> bool:
    plain = entry.removeprefix("-:").removeprefix("re:")
    if "mtp" in plain.lower() and "mtp" in name.lower():
        return True
    if plain.rstrip(".*") and (name.startswith(plain.rstrip(".*")) or f".{plain.strip('.*')}." in f".{name}"):
        return True
    try:
        return len(plain) <= 300 and re.search(plain, name) is not None if entry != plain else False
    except re.error:
        return False


_VLLM_FAMILIES = frozenset(name for names in MTP_FAMILIES.values() for name in names)


def _family(case: Case) -> Iterator[Hit]:
    """Judged by what vLLM looks at: model_type and the first architecture, both of the outermost configuration."""
    config = case.target.config
    declared, model_type, named = (
        find_mtp(case.target).declared,
        config.get("model_type"),
        config.get("architectures"),
    )
    if case.has_drafter or declared is None or not isinstance(model_type, str):
        return
    if model_type == "deepseek_v41":
        yield on_command(
            "DeepSeek V4.1 carries DSpark stages under mtp.*, no layers that MTP could run: vLLM refuses it.",
            "model_type",
            model_type,
            where="config.json",
            severity=Severity.ERROR,
            remedy="Write dspark as the method.",
        )
        return
    first = named[0] if isinstance(named, list) and named else None
    is_known = model_type in _VLLM_FAMILIES or first in _VLLM_FAMILIES or "exaone4_5" in model_type
    if is_known or declared[0] == "num_mtp_layers":
        return
    yield on_command(
        f"{model_type} is not among the families whose MTP layers vLLM is known to run.",
        "model_type",
        model_type,
        where="config.json",
        severity=Severity.INFO,
    )


def _depth(case: Case) -> Iterator[Hit]:
    declared = find_mtp(case.target).declared
    depth = case.speculation.depth
    if declared is None or depth is None or depth <= declared[1]:
        return
    key, layers = declared
    divides = depth % layers == 0
    yield on_command(
        f"{depth} draft tokens with {layers} MTP layer{'s' * (layers > 1)}: "
        + (
            "the layers run again for the later tokens, which are accepted less often."
            if divides
            else f"vLLM refuses a number that {layers} does not divide."
        ),
        key,
        layers,
        f"a divisor of {depth}",
        where="config.json",
        severity=Severity.INFO if divides else Severity.ERROR,
    )


RULES = (
    Rule(
        code="MTP-01",
        title="MTP layers are declared and not there",
        severity=Severity.ERROR,
        about=(
            "Merging an adapter or quantising often drops the MTP layers: the tools load the model without them "
            "and save what they loaded. The configuration still declares them."
        ),
        remedy=(
            "Use a checkpoint that kept them, or copy the mtp tensors from the base model and measure: after "
            "fine-tuning they are accepted less often."
        ),
        source=_DROPPED,
        judge=_declared_but_gone,
        methods=_MTP,
    ),
    Rule(
        code="MTP-02",
        title="The target has no MTP layers",
        severity=Severity.ERROR,
        about=(
            "MTP drafts with layers of the target's own checkpoint. A configuration for another model does not "
            "carry over."
        ),
        remedy="Choose a method for this target (`draftproof pairs TARGET`), such as a draft model or ngram.",
        source=Source(name="vLLM 0.33.0 source: Unsupported speculative method: 'mtp'", read="2026-11"),
        judge=_none_at_all,
        methods=_MTP,
    ),
    Rule(
        code="MTP-03",
        title="MTP layers in 16 bits under a quantisation that claims them",
        severity=Severity.WARNING,
        about=(
            "Quantised checkpoints mostly keep MTP layers in 16 bits. Where the quantisation's list of exceptions "
            "does not name them, engines build them quantised: loading ends in a KeyError, or acceptance is 0."
        ),
        remedy=(
            "Add the MTP modules to the quantisation's exceptions (modules_to_not_convert, ignore) in a copy of the "
            "configuration, or take a checkpoint that has them; then look at acceptance first."
        ),
        source=_QUANTISED,
        judge=_not_quantised,
        methods=_MTP,
    ),
    Rule(
        code="MTP-04",
        title="A family that vLLM is not known to run MTP for",
        severity=Severity.ERROR,
        about=(
            "Each family's MTP layers need code of their own in the engine. Layers under num_mtp_layers may run by "
            "Transformers' code."
        ),
        remedy="Start it once and look for the number of draft tokens in the log before you rely on it.",
        source=_VLLM.source,
        judge=_family,
        methods=_MTP,
        readings=(_VLLM,),
    ),
    Rule(
        code="MTP-05",
        title="More draft tokens than MTP layers",
        severity=Severity.ERROR,
        about=(
            "One MTP layer predicts one further token. For more, vLLM runs the same layers again, and asks for a "
            "multiple of their number."
        ),
        remedy="Start with as many draft tokens as there are layers.",
        source=read.VLLM_BOTH.source,
        judge=_depth,
        methods=_MTP,
        readings=(read.VLLM_BOTH,),
    ),
)
