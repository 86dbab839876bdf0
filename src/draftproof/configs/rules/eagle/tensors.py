"""Whether the head's shapes, tables and layers fit the target and one another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.checkpoints.head_tables import captured_layers, find_faults
from draftproof.checkpoints.heads import NamedTensor
from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.eagle.shared import EAGLE, EAGLE3, SHAPES, kind_of
from draftproof.configs.rules.rule import Hit, MissingError, Rule
from draftproof.core.finding import Evidence, Severity, Source

_MAPPING = Source(name="vLLM 0.33.0 source; verl-SpeCo pull request 66, SpecForge 76 and 478", read="2026-11")


def _fc(case: Case) -> NamedTensor:
    case.tensors(case.drafter, "drafter")
    if case.drafting.fc is None:
        raise MissingError("the head's fc.weight")
    return case.drafting.fc


def _target_width(case: Case) -> Iterator[Hit]:
    kind, fc = kind_of(case), _fc(case)
    hidden = case.whole(case.target, "hidden_size", "target")
    columns = fc.info.shape[1]
    declared = whole(case.drafter.language_config, "target_hidden_size")
    if kind == "eagle":
        fits, expected = columns == 2 * hidden, f"[…, {2 * hidden}]: 2 × the target's hidden size of {hidden}"
    else:
        layers = captured_layers(case.drafter.config)
        count = len(layers[1]) if layers else whole(case.drafter.language_config, "num_aux_hidden_states")
        fits = columns % hidden == 0 and columns // hidden in ((count,) if count else range(2, 9))
        expected = f"[…, {(count or 3) * hidden}]: {count or 3} captured layers × the target's hidden size of {hidden}"
    if fits and declared in (None, hidden):
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


def _target_rows(case: Case) -> Iterator[Hit]:
    ours = case.whole(case.target, "vocab_size", "target")
    theirs = whole(case.drafter.language_config, "vocab_size")
    if theirs is None or theirs == ours or theirs == _draft_vocabulary(case):
        return
    yield Hit(
        detail=f"The head was made for a vocabulary of {theirs}, and the target's has {ours}.",
        evidence=(
            Evidence(where=case.drafter.reference, key="vocab_size", found=str(theirs), expected=str(ours)),
        ),
        severity=Severity.ERROR if _draft_vocabulary(case) is None else Severity.WARNING,
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
        yield Hit(
            detail=(
                f"The head reads layers {', '.join(map(str, layers))} of the target, which has {num_layers} layers"
                f"{'' if outside else ', and names one twice'}."
            ),
            evidence=(
                Evidence(
                    where="config.json", key=key, found=str(list(layers)), expected=f"0 to {num_layers}"
                ),
            ),
        )


def _layers_unsaid(case: Case) -> Iterator[Hit]:
    if kind_of(case) != "eagle3" or captured_layers(case.drafter.config) is not None:
        return
    num_layers = case.whole(case.target, "num_hidden_layers", "target")
    default = (2, num_layers // 2, num_layers - 3)
    yield Hit(
        detail=(
            "The head does not say which of the target's layers it reads; the engine takes its default "
            f"(vLLM {default[0]}, {default[1]} and {default[2]}), which need not be those of the training."
        ),
        evidence=(Evidence(where="config.json", key="eagle_aux_hidden_state_layer_ids", found="not there"),),
    )


def _norms(case: Case) -> Iterator[Hit]:
    fc, config = _fc(case), case.drafter.config
    tensors = case.tensors(case.drafter, "drafter")
    inner = config.get("eagle_config")
    said = config.get("norm_before_fc", inner.get("norm_before_fc") if isinstance(inner, dict) else None)
    width = fc.info.shape[1]
    norm = next((name for name, info in sorted(tensors.items()) if info.shape == (width,)), None)
    if said is True and norm is None:
        yield Hit(
            detail="norm_before_fc is set, and the head holds no norm of that width.",
            evidence=(
                Evidence(where="config.json", key="norm_before_fc", found="true"),
                Evidence(
                    where=case.drafter.reference,
                    found="no such tensor",
                    expected=f"a norm of shape [{width}]",
                ),
            ),
        )
    elif norm is not None and said is not True:
        yield Hit(
            detail="The head holds a norm before fc that its configuration does not ask for: engines leave it out.",
            evidence=(
                Evidence(where=tensors[norm].where, key=norm, found=f"[{width}]"),
                Evidence(where="config.json", key="norm_before_fc", found=str(said).lower(), expected="true"),
            ),
        )
    bias = fc.name.removesuffix("weight") + "bias"
    if bias in tensors and config.get("bias") is False:
        yield Hit(
            detail=f"The configuration says that fc has no bias, and the head holds {bias}.",
            evidence=(Evidence(where="config.json", key="bias", found="false", expected="true"),),
        )


RULES = (
    Rule(
        code="EAGLE-05",
        title="The head was made for a target of another width",
        severity=Severity.ERROR,
        about=(
            "fc takes the target's hidden states: 2 × hidden in EAGLE-1/2 (embedding and one state), captured "
            "layers × the target's hidden size in EAGLE-3. Another width means another target."
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
        source=Source(name="SGLang pull request 32334, vLLM pull request 43671", read="2026-11"),
        judge=_layers_unsaid,
        methods=EAGLE3,
    ),
    Rule(
        code="EAGLE-13",
        title="Norm or bias of the head and its configuration disagree",
        severity=Severity.WARNING,
        about=(
            "Generations of heads differ by a norm before fc, a norm behind it, a bias. Engines build what the "
            "configuration says and leave other tensors unread: it runs, with less acceptance."
        ),
        remedy="Set the flag as the weights are (norm_before_fc, bias), or get both from the same source.",
        source=Source(name="SGLang pull request 32334; vLLM 0.33.0 source", read="2026-11"),
        judge=_norms,
        methods=EAGLE,
    ),
)
