"""What engines read of an EAGLE-3 head's configuration: which of its flags, and where they look for its layers.

A state of the target is counted here by the layers that were passed before it: 2 is the input of the third layer.
vLLM, SGLang and the converter of llama.cpp take 2, half and the third from the end where they find no list, and so does
TensorRT-LLM, which counts from 0 by the layer that puts a state out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from draftproof.configs.rules.facts.runners import Runner
from draftproof.configs.rules.rule import Reading
from draftproof.core.finding import Source

TOP = "eagle_aux_hidden_state_layer_ids"
NESTED = f"eagle_config.{TOP}"

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "use_aux_norm", "norm_output")
"""norm_before_residual: the residual is taken behind the norm of the hidden states. norm_before_fc: one norm over all
captured states before fc. fc_norm (use_aux_norm is its older name): one norm for each of them. norm_output: the next
step is fed the state behind the last norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadReading:
    """`flags`: where a flag is read, "" the top of the configuration. `layers`: keys of the list, in their order, and
    what is added to its numbers to count passed layers. `own_layers`: the engine's setting in place of both."""

    reading: Reading
    flags: Mapping[str, tuple[str, ...]]
    layers: tuple[tuple[str, int], ...]
    own_layers: str = ""


def _reading(engine: str, versions: str, name: str) -> Reading:
    return Reading(engine, versions, Source(name=name, read="2026-11"))


_VLLM = _reading("vllm", ">=0.32,<=0.33.0", "vLLM 0.32.0 and 0.33.0 source: llama_eagle3.py, eagle3_utils.py")
_BOTH, _TOP = ("eagle_config", ""), ("",)
_VLLM_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"norm_before_residual": _TOP, "norm_before_fc": _BOTH, "fc_norm": _TOP, "norm_output": _TOP}
)
_VLLM_RUNNERS: Mapping[Runner, HeadReading] = MappingProxyType(
    {
        "V2": HeadReading(reading=_VLLM, flags=_VLLM_FLAGS, layers=((TOP, 0), ("eagle_config.layer_ids", 0))),
        "V1": HeadReading(reading=_VLLM, flags=_VLLM_FLAGS, layers=((TOP, 0), (NESTED, 0))),
    }
)
_OTHERS: Mapping[str, HeadReading] = MappingProxyType(
    {
        "sglang": HeadReading(
            reading=_reading("sglang", "==0.5.23", "SGLang 0.5.23 source: llama_eagle3.py, spec_aux_hidden_state.py"),
            flags=MappingProxyType(
                {"norm_before_fc": _BOTH, "fc_norm": _TOP, "use_aux_norm": _TOP, "norm_output": _TOP}
            ),
            layers=((NESTED, 1),),
        ),
        "trtllm": HeadReading(
            reading=_reading("trtllm", ">=1.3,<1.4", "TensorRT-LLM, main branch of mid-2026: modeling_speculative.py"),
            flags=MappingProxyType({"norm_before_fc": ("eagle_config",), "fc_norm": _TOP, "norm_output": _TOP}),
            layers=(),
            own_layers="eagle3_layers_to_capture",
        ),
        "llamacpp": HeadReading(
            reading=_reading("llamacpp", "==11434", "llama.cpp build 11434: conversion/llama.py, models/eagle3.cpp"),
            flags=MappingProxyType({"norm_before_residual": _TOP, "norm_before_fc": _TOP}),
            layers=((TOP, 0),),
        ),
    }
)  # fmt: skip


def head_reading(engine: str, runner: Runner | None) -> HeadReading | None:
    """None: not read. vLLM without a known runner: as runner V2, its default, reads."""
    return _VLLM_RUNNERS[runner or "V2"] if engine == "vllm" else _OTHERS.get(engine)


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Passed layers that every engine takes where it finds no list."""
    return (2, num_layers // 2, num_layers - 3)
