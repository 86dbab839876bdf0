"""Whether the head's shapes, tables and layers fit the target and one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from draftproof.checkpoints.head_tables import captured_layers, find_faults
from draftproof.checkpoints.heads import has_embedding
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.eagle.shared import EAGLE, EAGLE3, SHAPES, fc_of, kind_of
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Hit, MissingError, Rule, on_command
from draftproof.core.finding import Evidence, Severity, Source

_MAPPING = Source(name="vLLM 0.33.0 source; verl-SpeCo pull request 66, SpecForge 76 and 478", read="2026-11")


_UNSAID_LAYERS = 3
"""What vLLM, SGLang, TensorRT-LLM and llama.cpp capture where a head does not say how many layers it reads."""
_WIDTHS = Source(
    name="vLLM 0.33.0 source (llama_eagle3.py, spec_decode/eagle/utils.py), SGLang 0.5.23 source (llama_eagle3.py)",
    read="2026-11",
)


def _own_width(case: Case, hidden: int, declared: int | None) -> Iterator[Hit]:
    """A head that is wider or narrower than its target: it needs an embedding of its own, and has to say so."""
    fc = fc_of(case)
    rows = fc.info.shape[0]
    has_own = has_embedding(case.drafter)
    if rows == hidden or (
        has_own is not False and (declared == hidden or case.engine not in ("vllm", "sglang"))
    ):
        return
    why = (
        "it has no embedding of its own, and the target's has another width"
        if has_own is False
        else f"without target_hidden_size {case.title} takes its own width for the target's"
    )
    yield Hit(
        detail=f"The head is {rows} wide and the target {hidden}: {why}.",
        evidence=(
            Evidence(
                where=fc.info.where, key=fc.name, found=str(list(fc.info.shape)), expected=f"[{hidden}, …]"
            ),
        ),
        remedy="Use a head that was trained for this target."
        if has_own is False
        else f"Write target_hidden_size {hidden} into the head's config.json, or use a head of this width.",
        reading=replace(known, source=_WIDTHS) if (known := read.BY_ENGINE.get(case.engine)) else None,
    )


def _target_width(case: Case) -> Iterator[Hit]:
    kind, fc = kind_of(case), fc_of(case)
    hidden = case.whole(case.target, "hidden_size", "target")
    columns = fc.info.shape[1]
    declared = whole(case.drafter.language_config, "target_hidden_size")
    if kind == "eagle":
        fits, expected = columns == 2 * hidden, f"[…, {2 * hidden}]: 2 × the target's hidden size of {hidden}"
    else:
        layers = captured_layers(case.drafter.config)
        count = len(layers[1]) if layers else whole(case.drafter.language_config, "num_aux_hidden_states")
        count = count or _UNSAID_LAYERS
        fits = columns == count * hidden
        expected = f"[…, {count * hidden}]: {count} captured layers × the target's hidden size of {hidden}"
    if fits and declared in (None, hidden):
        yield from _own_width(case, hidden, declared)
        return
    if fits:
        expected = f"target_hidden_size {hidden}"
    yield Hit(
        detail=f"The head was made for a target of another shape: {fc.name} takes {columns} features.",
        evidence=(
            Evidence(where=fc.info.where, key=fc.name, found=str(list(fc.info.shape)), expected=expected),
            *(
                (Evidence(where="config.json", key="target_hidden_size", found=str(declared)),)
                if declared is not None
                else ()
            ),
        ),
    )


def _table_name(case: Case, name: str) -> str | None:
    names = case.names(case.drafter, "drafter")
    return next((found for found in sorted(names) if found == name or found.endswith(f".{name}")), None)


def _draft_vocabulary(case: Case) -> int | None:
    return whole(case.drafter.config, "draft_vocab_size") or whole(
        case.drafter.language_config, "draft_vocab_size"
    )


def _no_mapping(case: Case) -> Iterator[Hit]:
    draft, target = _draft_vocabulary(case), case.whole(case.target, "vocab_size", "target")
    if draft is None or draft == target or _table_name(case, "d2t") is not None:
        return
    yield Hit(
        detail=(
            f"The head drafts {draft} of {target} tokens and has no d2t that says which: its rows are taken for the "
            f"ids 0 to {draft - 1}."
        ),
        evidence=(
            Evidence(where="config.json", key="draft_vocab_size", found=str(draft)),
            Evidence(
                where=case.drafter.reference, key="d2t", found="no such tensor", expected=f"[{draft}], int64"
            ),
        ),
    )


def _tables(case: Case) -> Iterator[Hit]:
    name = _table_name(case, "d2t")
    if name is None:
        return
    d2t = case.drafter.integers(name)
    if d2t is None:
        raise MissingError(f"the values of {name}")
    other = _table_name(case, "t2d")
    target = None if case.target_view is None else whole(case.target_view.language_config, "vocab_size")
    t2d = None if other is None else case.drafter.integers(other)
    for fault in find_faults(d2t, t2d, _draft_vocabulary(case), target):
        yield Hit(
            detail=f"{fault.tensor}: {fault.found}; expected {fault.expected}.",
            evidence=(
                Evidence(
                    where=case.drafter.reference,
                    key=other if fault.tensor == "t2d" and other else name,
                    found=fault.found,
                    expected=fault.expected,
                ),
            ),
        )


_HEAD = re.compile(r"(?:^|\.)lm_head\.weight$|^output\.weight$")


def _output_rows(case: Case) -> Iterator[Hit]:
    tensors = case.tensors(case.drafter, "drafter")
    draft = _draft_vocabulary(case)
    name = next((name for name in sorted(tensors) if _HEAD.search(name)), None)
    if name is None or draft is None or tensors[name].shape[0] == draft:
        return
    yield Hit(
        detail=f"draft_vocab_size says {draft}, and the head's output has {tensors[name].shape[0]} rows.",
        evidence=(
            Evidence(
                where=tensors[name].where,
                key=name,
                found=str(list(tensors[name].shape)),
                expected=f"[{draft}, …]",
            ),
        ),
    )


_PADDING = 2048
"""Rows by which published heads and targets of one tokenizer differ at most: padding and added tokens."""


def _target_rows(case: Case) -> Iterator[Hit]:
    ours = case.whole(case.target, "vocab_size", "target")
    theirs = whole(case.drafter.language_config, "vocab_size")
    if theirs is None or theirs == ours or theirs == _draft_vocabulary(case):
        return
    if _draft_vocabulary(case) is None:
        why = ", and it drafts with all of it"
    elif case.engine == "vllm" and theirs < ours and has_embedding(case.drafter):
        why = ", and its own embedding has no row for the target's last tokens"
    elif abs(theirs - ours) > _PADDING:
        why = ", more than rows of padding: its tokens are those of another tokenizer"
    else:
        why = ""
    yield Hit(
        detail=f"The head was made for a vocabulary of {theirs}, and the target's has {ours}{why}.",
        evidence=(
            Evidence(where=case.drafter.reference, key="vocab_size", found=str(theirs), expected=str(ours)),
        ),
        severity=Severity.ERROR if why else Severity.WARNING,
    )


def _layers_fit(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    found = captured_layers(case.drafter.config)
    if found is None:
        return
    key, layers = found
    num_layers = case.whole(case.target, "num_hidden_layers", "target")
    outside = [layer for layer in layers if not -1 <= layer <= num_layers]
    if outside or len(set(layers)) != len(layers):
        yield on_command(
            f"The head reads layers {', '.join(map(str, layers))} of the target, which has {num_layers} layers"
            f"{'' if outside else ', and names one twice'}.",
            key,
            list(layers),
            f"0 to {num_layers}",
            where="config.json",
        )


RULES = (
    Rule(
        code="EAGLE-05",
        title="The head was made for a target of another width",
        severity=Severity.ERROR,
        about=(
            "fc takes the target's hidden states: 2 × hidden in EAGLE-1/2 (embedding and one state), captured "
            "layers (three, unless it says how many) × the target's hidden size in EAGLE-3. Another width means "
            "another target. A head of another width than the target needs its own embedding and target_hidden_size."
        ),
        remedy="Use a head that was trained for this target.",
        source=SHAPES,
        judge=_target_width,
        methods=EAGLE,
    ),
    Rule(
        code="EAGLE-07",
        title="A smaller draft vocabulary without its map",
        severity=Severity.ERROR,
        about=(
            "A head with fewer rows than the target has tokens needs d2t. Without it, rows are taken for the first "
            "ids: training loss and accuracy look fine, and serving accepts next to nothing."
        ),
        remedy="Export the head with d2t and t2d, or train it with the whole vocabulary.",
        source=_MAPPING,
        judge=_no_mapping,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-08",
        title="The draft vocabulary's tables contradict each other",
        severity=Severity.ERROR,
        about=(
            "d2t[i] is the offset from draft id to target id in today's engines; target ids ascend and lie within "
            "the target's vocabulary; t2d marks exactly these tokens, draft_vocab_size of them. A table of another "
            "run or size maps drafts to other tokens."
        ),
        remedy="Export the head again with the tables of its own training run.",
        source=_MAPPING,
        judge=_tables,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-09",
        title="The head's output has other rows than draft_vocab_size",
        severity=Severity.ERROR,
        about="The output matrix has one row per token that the head can draft.",
        remedy="Get configuration and weights from the same source.",
        source=_MAPPING,
        judge=_output_rows,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-10",
        title="The head was made for another vocabulary",
        severity=Severity.ERROR,
        about=(
            "A head shares the target's embedding and ids. Another vocab_size than the target's says that it was "
            "trained for another model, or for another padding of this one."
        ),
        remedy="Use a head that was trained for this target.",
        source=SHAPES,
        judge=_target_rows,
        methods=EAGLE,
    ),
    Rule(
        code="EAGLE-11",
        title="The head reads layers that the target does not have",
        severity=Severity.ERROR,
        about=(
            "EAGLE-3 heads read hidden states at certain layers; one beyond the target's depth is of another "
            "target."
        ),
        remedy="Use a head that was trained for this target, or correct the list of layers.",
        source=Source(name="SGLang pull request 32334, vLLM pull request 43671", read="2026-11"),
        judge=_layers_fit,
        methods=EAGLE | {"dflash", "dspark"},
    ),
)
