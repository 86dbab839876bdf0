"""FORMAT: whether the engine reads the format of the files that are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Hit, Reading, Rule
from draftproof.configs.speculation import ModelRef
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources and documentation of the engines", read="2026-11")

Format = Literal["GGUF", "Hugging Face"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unread:
    """What an engine makes of a format. `made`: the files can be converted, so that files alone are no error yet."""

    engine: str
    format: Format
    effect: str
    remedy: str
    severity: Severity
    reading: Reading
    made: bool = False


_UNREAD = (
    _Unread(
        engine="vllm",
        format="GGUF",
        effect="vLLM reads GGUF with the package vllm-gguf-plugin alone, and does not start without it",
        remedy="Install vllm-gguf-plugin where vLLM runs, or name the checkpoint that the file was made of.",
        severity=Severity.WARNING,
        reading=Reading(
            "vllm",
            ">=0.32,<=0.33.0",
            Source(name="vLLM 0.32.0 and 0.33.0 source, docs/features/quantization/gguf.md", read="2026-11"),
        ),
    ),
    _Unread(
        engine="trtllm",
        format="GGUF",
        effect="TensorRT-LLM loads Hugging Face directories and has no reader for GGUF",
        remedy="Name the checkpoint that the file was made of.",
        severity=Severity.ERROR,
        reading=read.TRTLLM,
    ),
    _Unread(
        engine="llamacpp",
        format="Hugging Face",
        effect="llama.cpp loads GGUF files alone",
        remedy="Convert it with llama.cpp's convert_hf_to_gguf.py, or name a GGUF file of it.",
        severity=Severity.ERROR,
        reading=read.LLAMACPP,
        made=True,
    ),
    _Unread(
        engine="openvino",
        format="Hugging Face",
        effect="OpenVINO GenAI loads models in OpenVINO's own format",
        remedy="Convert it with `optimum-cli export openvino`, and name that directory.",
        severity=Severity.ERROR,
        reading=read.OPENVINO,
        made=True,
    ),
)


def _format(model: ModelRef, view: CheckpointView | None, engine: str) -> Format | None:
    """Of the files that the engine would open: a view of other files than the named ones does not tell."""
    if model.name.lower().endswith(".gguf"):
        return "GGUF"
    if view is None or not view.reference.startswith(model.name):
        return None
    if view.kind == "config":
        return (
            "Hugging Face" if engine == "llamacpp" else None
        )  # OpenVINO's directories have a config.json, too
    return "GGUF" if view.kind == "gguf" else "Hugging Face"


def _not_read(case: Case) -> Iterator[Hit]:
    for model, view, whose in (
        (case.deployment.target, case.target_view, "target"),
        (case.speculation.drafter, case.drafter_view, "drafter"),
    ):
        found = None if model is None else _format(model, view, case.engine)
        for fact in _UNREAD:
            if model is None or found is None or (fact.engine, fact.format) != (case.engine, found):
                continue
            yield Hit(
                detail=f"The {whose} is in the format of {found}: {fact.effect}.",
                evidence=(Evidence(where=model.name, key="format", found=found),),
                severity=Severity.WARNING if fact.made and case.is_files_alone else fact.severity,
                remedy=fact.remedy,
                reading=fact.reading,
            )


RULES = (
    Rule(
        code="FORMAT-01",
        title="Files of a format that the engine does not load",
        severity=Severity.ERROR,
        about=(
            "llama.cpp loads GGUF files, OpenVINO GenAI its own format, the others directories in the format of "
            "Hugging Face. Files alone, which can be converted, are a warning."
        ),
        remedy="Name files of the engine's own format.",
        source=_SOURCE,
        judge=_not_read,
        readings=tuple({fact.engine: fact.reading for fact in _UNREAD}.values()),
    ),
)
