"""What the engine reads of an EAGLE-3 head's configuration: its layers, its norms, and flags that it passes over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from draftproof.checkpoints.head_tables import captured_layers
from draftproof.checkpoints.view import TensorInfo
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.eagle.shared import EAGLE, EAGLE3, fc_of, kind_of
from draftproof.configs.rules.facts.heads import (
    FLAGS,
    NESTED,
    TOP,
    HeadReading,
    default_layers,
    head_reading,
)
from draftproof.configs.rules.facts.runners import runner
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.core.finding import Evidence, Severity, Source

_LAYERS = Source(name="SGLang pull request 32334, vLLM pull request 43671", read="2026-11")
_NORMS = Source(
    name="SGLang pull request 32334; sources of vLLM, SGLang, TensorRT-LLM, llama.cpp", read="2026-11"
)
_FC_NORM = re.compile(r"(?:^|\.)(?:fc_norm\.\d+|aux_norm_(?:low|mid|high))\.weight$")


def _at(config: Mapping[str, object], path: str) -> object:
    """The value under a key, or under a key of a group: "eagle_config.layer_ids"."""
    group, dot, key = path.rpartition(".")
    inner = config.get(group) if dot else config
    return inner.get(key) if isinstance(inner, Mapping) else None


def _listed(config: Mapping[str, object], path: str) -> tuple[int, ...] | None:
    found = _at(config, path)
    is_list = isinstance(found, list) and found and all(type(layer) is int for layer in found)
    return tuple(found) if is_list else None  # type: ignore[arg-type]  # a list, as was just seen


def _words(layers: Iterable[int]) -> str:
    return ", ".join(map(str, layers))


def _layers_unsaid(case: Case) -> Iterator[Hit]:
    if kind_of(case) != "eagle3" or captured_layers(case.drafter.config) is not None:
        return
    if case.engine == "trtllm" and case.extra("eagle3_layers_to_capture") is not None:
        return
    passed = default_layers(case.whole(case.target, "num_hidden_layers", "target"))
    if head_reading(case.engine, None) is None:
        taken = "a default of the engine's own is taken"
    else:
        taken = (
            f"by default what comes out of the first {_words(passed)} layers is taken (TensorRT-LLM numbers them "
            f"{_words(layer - 1 for layer in passed)})"
        )
    yield on_command(
        f"The head does not say which of the target's layers it reads; {taken}, which need not be those of the "
        "training.",
        TOP,
        "not there",
        where="config.json",
    )


def _layers_elsewhere(case: Case) -> Iterator[Hit]:
    """A list that the engine does not read, where what it takes instead is in no reading of the list."""
    known = head_reading(case.engine, runner(case))
    if known is None or kind_of(case) != "eagle3" or (known.own_layers and case.extra(known.own_layers)):
        return
    config = case.drafter.config
    top, nested = _listed(config, TOP), _listed(config, NESTED)
    if top is None and nested is None:
        return
    num_layers = case.whole(case.target, "num_hidden_layers", "target")
    taken = layers_taken(known, config, num_layers)
    passed = [top] if top else []
    passed += [tuple(layer + shift for layer in nested) for shift in (0, 1)] if nested else []
    if taken in passed:
        return
    key, written = (TOP, top) if top else (NESTED, nested)
    assert written is not None
    meant = passed[-1]
    yield Hit(
        detail=(
            f"The head lists layers {_words(written)} under {key}, where {case.title} does not look: the head gets "
            f"what comes out of the first {_words(taken)} layers instead."
        ),
        evidence=(
            Evidence(where=case.drafter.reference, key=key, found=_words(written)),
            Evidence(where=case.engine, key="layers passed", found=_words(taken)),
        ),
        remedy=_layers_remedy(known, meant),
        reading=known.reading,
    )


def layers_taken(known: HeadReading, config: Mapping[str, object], num_layers: int) -> tuple[int, ...]:
    """Passed layers whose states the engine feeds into the head."""
    for path, shift in known.layers:
        listed = _listed(config, path)
        if listed is not None:
            return tuple(layer + shift for layer in listed)
    return default_layers(num_layers)


def _layers_remedy(known: HeadReading, passed: tuple[int, ...]) -> str:
    if known.own_layers:
        return f"Set {known.own_layers}: [{_words(layer - 1 for layer in passed)}] in speculative_config."
    path, shift = known.layers[0]
    numbers = f"[{_words(layer - shift for layer in passed)}]"
    group, _, key = path.rpartition(".")
    written = f'"{group}": {{"{key}": {numbers}}}' if group else f'"{key}": {numbers}'
    return (
        f"Write {written} into a copy of the head's config.json, and compare the "
        "acceptance of the first draft token with the head's card."
    )


def _norms(case: Case) -> Iterator[Hit]:
    fc, config = fc_of(case), case.drafter.config
    tensors = case.tensors(case.drafter, "drafter")
    said = next(
        (
            found
            for group in ("eagle_config.", "")
            if (found := _at(config, f"{group}norm_before_fc")) is not None
        ),
        None,
    )
    width = fc.info.shape[1]
    norm = next((name for name, info in sorted(tensors.items()) if info.shape == (width,)), None)
    yield from _disagreement("norm_before_fc", said is True, norm, tensors, f"a norm of shape [{width}]")
    key = (
        "fc_norm"
        if config.get("fc_norm") is not None or config.get("use_aux_norm") is None
        else "use_aux_norm"
    )
    norm = next((name for name in sorted(tensors) if _FC_NORM.search(name)), None)
    refused = case.engine == "vllm"
    yield from _disagreement(
        key, config.get(key) is True, norm, tensors, "fc_norm.0.weight and its like", refused
    )
    bias = fc.name.removesuffix("weight") + "bias"
    if bias in tensors and config.get("bias") is False:
        yield on_command(
            f"The configuration says that fc has no bias, and the head holds {bias}.",
            "bias",
            "false",
            "true",
            where="config.json",
            severity=Severity.WARNING,
        )


def _disagreement(
    flag: str,
    is_set: bool,
    norm: str | None,
    tensors: Mapping[str, TensorInfo],
    wanted: str,
    refused: bool = False,
) -> Iterator[Hit]:
    if is_set and norm is None:
        yield Hit(
            detail=f"{flag} is set, and the head holds no such norm: engines run with one that was never trained.",
            evidence=(
                Evidence(where="config.json", key=flag, found="true"),
                Evidence(where="the head's tensors", found="no such tensor", expected=wanted),
            ),
            severity=Severity.WARNING,
        )
    elif norm is not None and not is_set:
        what = "vLLM refuses to load it" if refused else "engines leave it out"
        yield Hit(
            detail=f"The head holds a norm before fc that its configuration does not ask for ({flag}): {what}.",
            evidence=(
                Evidence(where=tensors[norm].where, key=norm, found=str(list(tensors[norm].shape))),
                Evidence(where="config.json", key=flag, found="not set", expected="true"),
            ),
            severity=Severity.ERROR if refused else Severity.WARNING,
            remedy=f'Write "{flag}": true into the head\'s config.json, as the weights are.',
        )


_EFFECTS = {
    "norm_before_residual": "the residual is taken before the norm of the hidden states instead of behind it",
    "norm_before_fc": "the captured states reach fc without the norm that was trained",
    "fc_norm": "each captured state reaches fc without its norm",
    "use_aux_norm": "each captured state reaches fc without its norm",
    "norm_output": "the next draft step is fed the state before the last norm instead of behind it",
}


def _unread_flags(case: Case) -> Iterator[Hit]:
    known = head_reading(case.engine, runner(case))
    if known is None or kind_of(case) != "eagle3":
        return
    config = case.drafter.config
    for flag in FLAGS:
        places = [group for group in ("eagle_config", "") if _at(config, _path(group, flag)) is True]
        read = () if _is_dropped(case, flag) else known.flags.get(flag, ())
        if not places or set(places) & set(read):
            continue
        where = _path(places[0], flag)
        yield Hit(
            detail=f"The head is made with {where}, and {case.title} does not read it there: {_EFFECTS[flag]}.",
            evidence=(Evidence(where=case.drafter.reference, key=where, found="true"),),
            remedy=(
                f"Write it as {_path(read[0], flag)} in a copy of the head's config.json."
                if read
                else _NOT_BUILT.get((case.engine, flag))
            ),
            reading=known.reading,
        )


def _path(group: str, key: str) -> str:
    return f"{group}.{key}" if group else key


def _is_dropped(case: Case, flag: str) -> bool:
    """Of P-EAGLE heads in the speculators format vLLM takes over fewer flags."""
    is_parallel = case.drafter.config.get("speculators_model_type") == "peagle"
    return case.engine == "vllm" and is_parallel and flag in ("fc_norm", "norm_output")


_NOT_BUILT = {
    ("vllm", "use_aux_norm"): "Write it as fc_norm, its name today, in a copy of the head's config.json."
}


def _llamacpp_bounds(case: Case) -> Iterator[Hit]:
    if kind_of(case) != "eagle3":
        return
    config = case.drafter.config
    listed = next(
        (
            (key, len(found))
            for key, found in config.items()
            if key.endswith(".target_layers") and isinstance(found, list)
        ),
        None,
    )
    if listed is None and (top := _listed(config, TOP)) is not None:
        listed = TOP, len(top)
    if listed is not None and listed[1] != 3:
        yield _out_of_bounds(case, listed[0], listed[1], "captured layers", 3)
    layers = whole(case.drafter.language_config, "num_hidden_layers")
    if layers is not None and layers != 1:
        yield _out_of_bounds(case, "num_hidden_layers", layers, "layers of its own", 1)


def _out_of_bounds(case: Case, key: str, found: int, what: str, expected: int) -> Hit:
    return Hit(
        detail=f"The head has {found} {what}, and llama.cpp runs EAGLE-3 heads with {expected} alone.",
        evidence=(Evidence(where=case.drafter.reference, key=key, found=str(found), expected=str(expected)),),
    )


_BOUNDS = Source(name="llama.cpp build 11434: src/models/eagle3.cpp, conversion/llama.py", read="2026-11")

RULES = (
    Rule(
        code="EAGLE-12",
        title="The head does not say which layers it reads",
        severity=Severity.INFO,
        about=(
            "Which layers a head was trained on is part of it: one and the same head accepted 2.68, 2.22 or 1.92 "
            "tokens with three sets of layers, and an index that was off by one cost three quarters of the first "
            "token's acceptance."
        ),
        remedy="Compare the acceptance of the first draft token with what the head's card reports.",
        source=_LAYERS,
        judge=_layers_unsaid,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-13",
        title="Norm or bias of the head and its configuration disagree",
        severity=Severity.ERROR,
        about=(
            "Generations of heads differ by a norm before fc, one norm or several, a bias. Engines build what the "
            "configuration says; tensors without a flag are left unread or refused, a flag without tensors gives a "
            "norm that nobody trained: it runs, with less acceptance."
        ),
        remedy="Set the flag as the weights are (norm_before_fc, fc_norm, bias), or get both from the same source.",
        source=_NORMS,
        judge=_norms,
        methods=EAGLE,
    ),
    Rule(
        code="EAGLE-15",
        title="The head's list of layers stands where this engine does not read it",
        severity=Severity.WARNING,
        about=(
            "vLLM and llama.cpp read a list at the top of the head's config.json and count passed layers; SGLang reads "
            "the one in eagle_config and counts layers from 0; TensorRT-LLM reads neither. A head that lists its "
            "layers for one engine is fed other states by another, and says nothing of it."
        ),
        remedy="Write the list where this engine reads it, in its way of counting.",
        source=_LAYERS,
        judge=_layers_elsewhere,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-16",
        title="A flag of the head that this engine does not read",
        severity=Severity.WARNING,
        about=(
            "Norms of a head are switched by flags of its configuration, and engines know different ones. What an "
            "engine does not know it runs without: the head answers, with less acceptance."
        ),
        remedy="Run this head with an engine that reads the flag, or use a head that was trained without it.",
        source=_NORMS,
        judge=_unread_flags,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-17",
        title="An EAGLE-3 head of a size that llama.cpp does not run",
        severity=Severity.ERROR,
        about=(
            "llama.cpp is written for heads of one layer that read three layers of the target. A file with another "
            "number of captured layers is not loaded, one with more layers ends the program when it drafts."
        ),
        remedy="Run this head with another engine, or use a head of one layer that reads three.",
        source=_BOUNDS,
        judge=_llamacpp_bounds,
        methods=EAGLE3,
        readings=(Reading("llamacpp", "==11434", _BOUNDS),),
    ),
)
