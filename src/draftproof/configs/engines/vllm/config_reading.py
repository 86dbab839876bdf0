"""Reads vLLM's speculation object (`--speculative-config`, `LLM(speculative_config=…)`) into neutral settings.

Called by this dialect's reading of commands and objects. Follows the order in which vLLM 0.33.0 itself deduces a method
that is not named; what it would read from the drafter's config.json is not known here and is said to be so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from draftproof.configs.engines.account import Settings, unchanged
from draftproof.configs.engines.base import Effect, Remark
from draftproof.configs.engines.vllm import facts
from draftproof.configs.engines.vllm.facts import KEYS
from draftproof.configs.engines.vllm.history import effect_of, has, told
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.refusal import cut
from draftproof.configs.speculation import BatchRange

_PREFIX = "speculation."
_NEUTRAL_METHODS = {"custom_class": "custom", "ngram_gpu": "ngram", "extract_hidden_states": "custom"}
"""vLLM's method → neutral, where they differ; the name itself is then kept in the extras."""


@dataclass(slots=True)
class Found:
    """What was read so far: neutral settings and remarks. `version` is what is gone by, `asked` what somebody named."""

    version: str
    asked: str | None = None
    warns_of_model: bool = True
    """Whether `--model` makes the program warn: that of an image or of the older entry point does not."""
    settings: Settings = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def extra(self, key: str, value: Any) -> None:
        self.settings[f"{_PREFIX}extras.vllm.{key}"] = value

    def remark(
        self,
        effect: Effect,
        setting: str,
        found: str,
        today: str | None,
        reason: str,
        versions: str | None = None,
    ) -> None:
        """`found` may be a hostile text."""
        self.remarks.append(
            Remark(
                effect=effect,
                setting=setting,
                found=cut(found),
                today=today,
                reason=reason,
                versions=versions,
                source=facts.HISTORY if versions else facts.SOURCE,
            )
        )


def read_config(members: Mapping[str, Node], found: Found, whole: Node) -> None:
    """Adds to `found` what the object says. `whole` is pointed at where a key is missing. Raises DP111."""
    given: dict[str, Any] = {}
    nodes: dict[str, Node] = {}
    for written, node in members.items():
        name = written.replace("-", "_")
        if name in nodes:
            raise whole.refused_key(
                written, "each key once", "Remove one: dashes and underscores are one key."
            )
        nodes[name] = node
        if node.value is not None:
            value = _one_key(name, node, found)
            if value is not None:
                given[name] = value
    method = _method(given, nodes, found, whole)
    _set_method(method, given, found)
    _check(method, given, nodes, whole)
    for name, value in given.items():
        path = KEYS[name].path
        if path is None:
            found.extra(name, value)
        else:
            found.settings[_PREFIX + path] = value


def _one_key(name: str, node: Node, found: Found) -> Any:
    """The value of a key of today, or None for one that says nothing today."""
    removed = facts.REMOVED_KEYS.get(name)
    if removed is not None:
        if (past := effect_of(removed, found.version)) is not None:
            today = removed.today or None
            found.remark(past, name, str(node.plain()), today, removed.reason, told(removed.gone))
        found.extra(name, unchanged(node.plain()))
        return None
    if name == "tensor_parallel_size":
        raise node.refused_key(
            name, "draft_tensor_parallel_size", "vLLM refuses it: write draft_tensor_parallel_size."
        )
    key = KEYS.get(name)
    if key is None:
        near = get_close_matches(name[:64], list(KEYS), n=1)
        remedy = f"Did you mean {near[0]}?" if near else "vLLM refuses keys that it does not know."
        raise node.refused_key(name, "a key of vLLM's speculative_config", remedy)
    value = key.read(node, name)
    presence = facts.KEY_HISTORY.get(name)
    if presence is not None and not (there := has(presence, found.version)):
        effect: Effect
        effect, reason = (
            ("unknown", f"not known for {found.version}")
            if there is None
            else ("removed", f"vLLM {found.version} does not have it")
        )
        found.remark(effect, name, str(node.plain()), None, reason, told(presence))
    return value


def _method(given: dict[str, Any], nodes: Mapping[str, Node], found: Found, whole: Node) -> str:
    """The method that vLLM ends up with, in the order in which it decides."""
    said = given.pop("method", None)
    model = given.get("model")
    node = nodes.get("method", whole)
    if said == "[ngram]":
        found.remark("deprecated", "method", said, "ngram", "the brackets are an old spelling")
        said = "ngram"
    if said is not None and said.replace("-", "_") in facts.MTP_ALIASES:
        found.remark("deprecated", "method", said, "mtp", "accepted with a warning and rewritten to mtp")
        said = "mtp"
    if said is not None and said not in (*facts.METHODS, *facts.FORMER_METHODS):
        near = get_close_matches(said[:64], [*facts.METHODS, *facts.FORMER_METHODS], n=1)
        raise node.refused(
            "one of " + ", ".join(facts.METHODS),
            f"Did you mean {near[0]}?" if near else "Write one of these.",
        )
    if said is not None:
        _remark_history(said, found)
    method = said or _first_guess(model, found, whole)
    if method in facts.WITHOUT_DRAFTER or method == "custom_class" or model is None:
        return method
    return _by_path(method, said, model, found)


def _remark_history(method: str, found: Found) -> None:
    presence = facts.METHOD_HISTORY.get(method)
    if presence is None or (there := has(presence, found.version)):
        return
    if there is None:
        found.remark("unknown", "method", method, None, f"not known for {found.version}", told(presence))
    else:
        found.remark(
            "removed", "method", method, None, f"vLLM {found.version} does not have it", told(presence)
        )


def _first_guess(model: str | None, found: Found, whole: Node) -> str:
    if model is None:
        raise whole.refused(
            "method, or model from which vLLM deduces it",
            'Name the method, for example "method": "ngram".',
        )
    parts = model.split(".")
    if "/" not in model and len(parts) > 1 and all(part.isidentifier() for part in parts):
        found.remark("inferred", "method", model, "custom_class", "`model` is a dotted path of Python names")
        return "custom_class"
    if model in ("ngram", "[ngram]"):
        found.remark("inferred", "method", model, "ngram", "`model` says so: write method instead")
        return "ngram"
    return "draft_model"


def _by_path(method: str, said: str | None, model: str, found: Found) -> str:
    """What a word in the drafter's path makes of the method."""
    if method in facts.KEEPS_ITS_NAME:
        return method
    for word, meant in facts.PATH_WORDS:
        if word in model.lower():
            if said is None:
                found.remark(
                    "inferred",
                    "method",
                    model,
                    meant,
                    f"{word!r} in the drafter's path decides: name the method",
                )
            elif said != meant:
                found.remark(
                    "rewritten",
                    "method",
                    said,
                    meant,
                    f"{word!r} in the drafter's path overrides what is written",
                )
            return meant
    if said is None:
        found.remark(
            "inferred",
            "method",
            model,
            "draft_model",
            "draft_model, unless the model_type in the drafter's config.json, not read here, is one of MTP: an EAGLE "
            "head whose path does not say so is taken for a draft model",
        )
    return method


def _set_method(method: str, given: dict[str, Any], found: Found) -> None:
    neutral = _NEUTRAL_METHODS.get(method, method)
    if neutral != method:
        found.extra("method", method)
    parallel = given.get("parallel_drafting")
    if parallel and method in ("draft_model", "eagle3"):
        neutral = "pard" if method == "draft_model" else "p_eagle"
        del given["parallel_drafting"]
    found.settings[f"{_PREFIX}method"] = neutral
    model = given.get("model")
    if method in facts.WITHOUT_DRAFTER and model is not None:
        del given["model"]
        if model not in (method, "ngram", "[ngram]"):
            found.remark("ignored", "model", model, None, f"method {method} takes no model")
    rule = given.get("rejection_sample_method")
    if rule in facts.LOSSY_RULES:
        found.extra("rejection_sample_method", rule)
        given["rejection_sample_method"] = "lossy"
    elif rule in facts.FORMER_REJECTION_RULES:
        past = effect_of(facts.FORMER_RULE, found.version)
        if past is not None:
            told_of = told(facts.FORMER_RULE.gone)
            found.remark(past, "rejection_sample_method", rule, "standard", facts.FORMER_RULE.reason, told_of)
        given["rejection_sample_method"] = "standard"


def _check(method: str, given: dict[str, Any], nodes: Mapping[str, Node], whole: Node) -> None:
    """What vLLM refuses at start whatever the checkpoints are; a schedule becomes neutral ranges."""
    least, most = given.get("prompt_lookup_min"), given.get("prompt_lookup_max")
    if least is not None and most is not None and least > most:
        raise nodes["prompt_lookup_min"].refused(
            f"prompt_lookup_min: at most prompt_lookup_max, {most}",
            "vLLM refuses it: raise one or lower the other.",
        )
    depth = given.get("num_speculative_tokens")
    if depth is not None and depth > facts.MAX_DEPTH:
        raise nodes["num_speculative_tokens"].refused(
            f"num_speculative_tokens: at most {facts.MAX_DEPTH}, the cap of its sampler", "Lower it."
        )
    if method not in ("draft_model",) and given.get("use_heterogeneous_vocab"):
        raise nodes["use_heterogeneous_vocab"].refused(
            "use_heterogeneous_vocab only with method draft_model", "Leave it out."
        )
    if given.get("use_heterogeneous_vocab") and given.get("draft_sample_method") == "probabilistic":
        raise nodes["draft_sample_method"].refused(
            "greedy, with use_heterogeneous_vocab", "vLLM refuses the two together: leave one of them out."
        )
    if method in ("draft_model", "eagle", "eagle3", "dflash", "custom_class") and "model" not in given:
        raise whole.refused(f"model, with method {method}", "Name the drafter.")
    name = "num_speculative_tokens_per_batch_size"
    if name in given:
        given[name] = _schedule(nodes[name])


def _schedule(node: Node) -> tuple[BatchRange, ...]:
    """Ranges as vLLM fills them: a gap and everything above the last range carry on with the K before."""
    remedy = "Write [[first batch size, last, K], …], such as [[1, 8, 4], [9, 64, 0]]."
    if not isinstance(node.value, tuple) or not node.value:
        raise node.refused("a list of ranges", remedy)
    rows: list[tuple[int, int, int]] = []
    for entry in node.value:
        if not isinstance(entry.value, tuple) or len(entry.value) != 3:
            raise entry.refused("three whole numbers", remedy)
        low, high, depth = (part.integer("a batch size or K") for part in entry.value)
        if not 1 <= low <= high or depth < 0:
            raise entry.refused("1 ≤ first ≤ last and K ≥ 0", remedy)
        rows.append((low, high, depth))
    rows.sort()
    if rows[0][0] != 1:
        raise node.refused("a first range that starts at 1", remedy)
    for before, after in pairwise(rows):
        if after[0] <= before[1]:
            raise node.refused("ranges that do not overlap", remedy)
    ends: list[int | None] = [row[0] - 1 for row in rows[1:]]
    return tuple(
        BatchRange(low=low, high=high, depth=depth)
        for (low, _, depth), high in zip(rows, [*ends, None], strict=True)
    )
