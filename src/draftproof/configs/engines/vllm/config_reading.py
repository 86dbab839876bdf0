"""Reads vLLM's speculation object (`--speculative-config`, `LLM(speculative_config=…)`) into neutral settings.

Called by this dialect's reading of commands and objects. Follows the order in which vLLM 0.33.0 itself deduces a method
that is not named; what it would read from the drafter's config.json is not known here and is said to be so.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.vllm import facts
from draftproof.configs.engines.vllm.facts import KEYS
from draftproof.configs.engines.vllm.history import remark_absence, remark_removed
from draftproof.configs.reading.node import Node
from draftproof.configs.speculation import BatchRange

_PREFIX = "speculation."
_NEUTRAL_METHODS = {"custom_class": "custom", "ngram_gpu": "ngram", "extract_hidden_states": "custom"}
"""vLLM's method → neutral, where they differ; the name itself is then kept in the extras."""


def read_config(members: Mapping[str, Node], found: Gathering, whole: Node) -> None:
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
    _remark_refusals(method, given, found)
    for name, value in given.items():
        path = KEYS[name].path
        if path is None:
            found.own(name, value)
        else:
            found.settings[_PREFIX + path] = value


def _one_key(name: str, node: Node, found: Gathering) -> Any:
    """The value of a key of today, or None for one that says nothing today."""
    removed = facts.REMOVED_KEYS.get(name)
    if removed is not None:
        remark_removed(found, name, str(node.plain()), removed)
        found.own(name, node.plain())
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
    remark_absence(found, name, str(node.plain()), facts.KEY_HISTORY.get(name))
    return value


def _method(given: dict[str, Any], nodes: Mapping[str, Node], found: Gathering, whole: Node) -> str:
    """The method that vLLM ends up with, in the order in which it decides."""
    said = given.pop("method", None)
    model = given.get("model")
    node = nodes.get("method", whole)
    if said == "[ngram]":
        found.remark("deprecated", "method", "the brackets are an old spelling", found=said, today="ngram")
        said = "ngram"
    if said is not None and said.replace("-", "_") in facts.MTP_ALIASES:
        found.remark(
            "deprecated", "method", "accepted with a warning and rewritten to mtp", found=said, today="mtp"
        )
        remark_absence(found, "method", said, facts.METHOD_HISTORY.get(said.replace("-", "_")))
        said = "mtp"
    if said is not None and said not in (*facts.METHODS, *facts.FORMER_METHODS):
        near = get_close_matches(said[:64], [*facts.METHODS, *facts.FORMER_METHODS], n=1)
        raise node.refused(
            "one of " + ", ".join(facts.METHODS) + ", or a family's own name for mtp, as deepseek_mtp",
            f"Did you mean {near[0]}?" if near else "Write one of these.",
        )
    if said is not None:
        remark_absence(found, "method", said, facts.METHOD_HISTORY.get(said))
    method = said or _first_guess(model, found, whole)
    if method in facts.WITHOUT_DRAFTER or method == "custom_class" or model is None:
        return method
    return _by_path(method, said, model, found)


def _first_guess(model: str | None, found: Gathering, whole: Node) -> str:
    if model is None:
        raise whole.refused(
            "method, or model from which vLLM deduces it",
            'Name the method, for example "method": "ngram".',
        )
    parts = model.split(".")
    if "/" not in model and len(parts) > 1 and all(part.isidentifier() for part in parts):
        found.remark(
            "inferred",
            "method",
            "`model` is a dotted path of Python names",
            found=model,
            today="custom_class",
        )
        return "custom_class"
    if model in ("ngram", "[ngram]"):
        found.remark(
            "inferred", "method", "`model` says so: write method instead", found=model, today="ngram"
        )
        return "ngram"
    return "draft_model"


def _by_path(method: str, said: str | None, model: str, found: Gathering) -> str:
    """What a word in the drafter's path makes of the method."""
    if method in facts.KEEPS_ITS_NAME:
        return method
    for word, meant in facts.PATH_WORDS:
        if word in model.lower():
            if said is None:
                found.remark(
                    "inferred",
                    "method",
                    f"{word!r} in the drafter's path decides: name the method",
                    found=model,
                    today=meant,
                )
            elif said != meant:
                found.remark(
                    "rewritten",
                    "method",
                    f"{word!r} in the drafter's path overrides what is written",
                    found=said,
                    today=meant,
                )
            return meant
    if said is None:
        found.remark(
            "inferred",
            "method",
            "draft_model, unless the model_type in the drafter's config.json, not read here, is one of MTP or its "
            "architecture one of DSpark: an EAGLE head whose path does not say so is taken for a draft model",
            found=model,
            today="draft_model",
        )
    return method


def _set_method(method: str, given: dict[str, Any], found: Gathering) -> None:
    neutral = _NEUTRAL_METHODS.get(method, method)
    if neutral != method:
        found.own("method", method)
    parallel = given.get("parallel_drafting")
    if parallel and method in ("draft_model", "eagle3"):
        neutral = "pard" if method == "draft_model" else "p_eagle"
        del given["parallel_drafting"]
    found.settings[f"{_PREFIX}method"] = neutral
    model = given.get("model")
    if method in facts.WITHOUT_DRAFTER and model is not None:
        del given["model"]
        if model not in (method, "ngram", "[ngram]"):
            found.remark("ignored", "model", f"method {method} takes no model", found=model)
    rule = given.get("rejection_sample_method")
    if rule in facts.LOSSY_RULES:
        found.own("rejection_sample_method", rule)
        given["rejection_sample_method"] = "lossy"
    elif rule in facts.FORMER_REJECTION_RULES:
        remark_removed(found, "rejection_sample_method", rule, facts.FORMER_RULE)
        given["rejection_sample_method"] = "standard"


def _check(method: str, given: dict[str, Any], nodes: Mapping[str, Node], whole: Node) -> None:
    """What vLLM refuses at start whatever the checkpoints are; a schedule becomes neutral ranges."""
    least, most = given.get("prompt_lookup_min"), given.get("prompt_lookup_max")
    if least is not None and most is not None and least > most:
        raise nodes["prompt_lookup_min"].refused(
            f"prompt_lookup_min: at most prompt_lookup_max, {most}",
            "vLLM refuses it: raise one or lower the other.",
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


def _remark_refusals(method: str, given: Mapping[str, Any], found: Gathering) -> None:
    """Values that vLLM takes one by one and refuses together (`__post_init__`, `_verify_args`)."""
    depth, rule = given.get("num_speculative_tokens"), given.get("rejection_sample_method")
    lossy = found.settings.get(f"{_PREFIX}extras.vllm.rejection_sample_method", rule)
    window, rates = given.get("fly_window_size"), given.get("synthetic_acceptance_rates")
    length = given.get("synthetic_acceptance_length")
    is_synthetic = lossy == "synthetic"
    is_argmax = given.get("use_local_argmax_reduction")
    has_drafter = method not in (*facts.WITHOUT_DRAFTER, "custom_class")
    for key, is_refused, reason in (
        ("num_speculative_tokens", lossy == "fly" and (depth or 2) < 2, "FLy needs at least 2 draft tokens"),
        ("fly_window_size", lossy == "fly" and (window or 0) >= (depth or 1 << 30),
         "FLy's window must be smaller than num_speculative_tokens"),
        ("rejection_sample_method", is_synthetic and (rates is None) == (length is None),
         "synthetic needs one of synthetic_acceptance_rates and synthetic_acceptance_length"),
        ("synthetic_acceptance_rates", rates is not None and not is_synthetic,
         "only with rejection_sample_method synthetic"),
        ("synthetic_acceptance_length", length is not None and not is_synthetic,
         "only with rejection_sample_method synthetic"),
        ("synthetic_acceptance_rates", is_synthetic and _are_no_rates(rates, depth),
         "one rate per draft token, none above the one before"),
        ("synthetic_acceptance_length", is_synthetic and (length or 0) > (depth or 1 << 30) + 1,
         "at most num_speculative_tokens and one more"),
        ("dspark_draft_topk", has_drafter and method != "dspark", "only with method dspark"),
        ("xpress_topc", has_drafter and method != "dflash", "only with XPress drafters of method dflash"),
        ("index_share_for_mtp_iteration", method != "mtp", "only with method mtp"),
        ("draft_lm_head_quantization", method not in ("eagle", "eagle3", "mtp"), "only with eagle, eagle3 and mtp"),
        ("use_local_argmax_reduction", is_argmax and given.get("draft_sample_method") == "probabilistic",
         "not with drafts that are drawn, which need all logits"),
        ("use_local_argmax_reduction", is_argmax and given.get("use_heterogeneous_vocab"),
         "not with use_heterogeneous_vocab, which needs all logits"),
        ("use_local_argmax_reduction",
         is_argmax and given.get("enable_adaptive_verification") and method != "dspark",
         "not with enable_adaptive_verification, which needs all logits"),
    ):  # fmt: skip
        if is_refused and key in given:
            value = lossy if key == "rejection_sample_method" else given[key]
            found.remark("refused", key, reason, found=str(value))


def _are_no_rates(rates: tuple[float, ...] | None, depth: int | None) -> bool:
    if rates is None:
        return False
    return (depth is not None and len(rates) != depth) or any(b > a for a, b in pairwise(rates))


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
