"""TensorRT-LLM's YAML, or its command with the file → the neutral description, with what it warns about or refuses.

Called by the dialect. The file is read as the engine's loader reads it (YAML 1.1) and its numbers as pydantic takes
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from draftproof.configs.engines.base import Reader, read_or_why
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.told import remark_variables, take_start
from draftproof.configs.engines.trtllm import keys
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.options import read_options, single
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.started import is_start
from draftproof.configs.reading.yamltext import read_yaml
from draftproof.configs.speculation import BatchRange

_COMMAND = re.compile(r"(?<![^\s/'\"=\[\ufeff@:+!-])trtllm-serve(?![^\s'\",\\])")
_OWN_COMMANDS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve", "grpc")


def gather(place: Place, found: Gathering, read: Reader | None) -> None:
    """Raises DP111 with line and column, DP002 for a file that is named and not there."""
    if not place.text.strip():
        raise place.refused("nothing", "trtllm-serve MODEL, or a YAML file", "Give the command or the file.")
    if _COMMAND.search(place.text) or is_start(place.text):
        _command(place, found, read)
    else:
        _file(place, found)


def _command(place: Place, found: Gathering, read: Reader | None) -> None:
    line = take_start(place, found)
    words = list(line.words)
    if not words or words[0].text.rpartition("/")[2] != "trtllm-serve":
        first = words[0] if words else Word("nothing", 0)
        raise place.at(first.position).refused(first.text, "trtllm-serve MODEL", "Give the serving command.")
    words = words[1:]
    if words and words[0].text == "serve":
        words = words[1:]
    if words and words[0].text in _OWN_COMMANDS:
        raise place.at(words[0].position).refused(
            words[0].text, "trtllm-serve MODEL", "Give the serving command."
        )
    options = read_options(place, words, keys.TABLE)
    model = single(place, options, "trtllm-serve MODEL with one model")
    if model is None:
        raise place.at(len(place.text)).refused(
            "no model", "trtllm-serve MODEL with one model", "Name the model."
        )
    remark_variables(options, found)
    found.say("target", model.text)
    for key, option in keys.FLAGS.items():
        given = options.given.get(option.name)
        if given is not None:
            path = (keys.TOP.get(key) or keys.CACHE[key])[0]
            found.say(path, given.value)
    found.say("rest", tuple(word.text for word in options.rest))
    config = options.given.get(keys.CONFIG.name)
    if config is None:
        return
    name = str(config.value)
    text, why = read_or_why(read, name)
    if text is None:
        found.remark(
            "unread", config.written, f"{why}, and speculation is configured in it",
            found=name, position=config.position,
        )  # fmt: skip
        found.own("config", name, around=True)
        return
    _file(Place("trtllm", text, name=name), found)


def _file(place: Place, found: Gathering) -> None:
    document = read_yaml(place)
    if document.comment is not None:
        found.remark(
            "lost", "comments", "a translation keeps no comments", found="#", position=document.comment
        )
    for surprise in document.surprises:
        found.remark(
            "rewritten", surprise.written, f"YAML 1.1 reads it as {surprise.read}; quotes keep it as text",
            found=surprise.written, today=surprise.read, position=surprise.position,
        )  # fmt: skip
    if document.node.value is None:
        return
    members = dict(document.node.members("the configuration"))
    speculation = members.pop("speculative_config", None)
    is_deployed_automatically = "backend" in members and members["backend"].plain() == "_autodeploy"
    for key, node in members.items():
        if key not in keys.KNOWN and not is_deployed_automatically:  # which has keys of its own
            found.stray(key, keys.KNOWN, engine="TensorRT-LLM", is_complete=False)
        if key in keys.TOP:
            _say(found, keys.TOP[key], key, node)
        elif key == "kv_cache_config" and isinstance(node.value, Mapping):
            _cache(found, node.value)
        elif key == "cuda_graph_config":
            _graphs(found, node)
        else:
            found.own(key, node.plain(), around=True)
    if speculation is not None and speculation.value is not None:
        _Speculative(found, speculation).gather()


def _say(found: Gathering, where: tuple[str, str], key: str, node: Node) -> None:
    if node.value is None:
        return
    path, kind = where
    value: Any
    if kind == "int":
        value = _integer(node, key)
    elif kind == "float":
        value = node.number(key)
    elif kind == "bool":
        value = node.boolean(key)
    else:
        value = node.text(key)
    found.say(path, value)


def _integer(node: Node, key: str) -> int:
    """A whole number; its digits in quotes count, as with pydantic."""
    if isinstance(node.value, str) and re.fullmatch(r"[-+]?[0-9]{1,18}", node.value):
        return int(node.value)
    return node.integer(key)


def _cache(found: Gathering, members: Mapping[str, Node]) -> None:
    more = {}
    for key, node in members.items():
        if key in keys.CACHE:
            _say(found, keys.CACHE[key], f"kv_cache_config.{key}", node)
        else:
            more[key] = node.plain()
    if more:
        found.own("kv_cache_config", more, around=True)


def _graphs(found: Gathering, node: Node) -> None:
    if node.value is None:
        found.say("enforce_eager", True)
        return
    members = dict(node.members("cuda_graph_config"))
    largest = members.pop("max_batch_size", None)
    if largest is not None:
        found.say("graph_max_batch", _integer(largest, "cuda_graph_config.max_batch_size"))
    if members or largest is None:
        found.own("cuda_graph_config", {key: inner.plain() for key, inner in members.items()}, around=True)


class _Speculative:
    """The object `speculative_config`, turned into settings."""

    def __init__(self, found: Gathering, node: Node) -> None:
        self.found, self.node = found, node
        self.left = dict(node.members("speculative_config"))

    def gather(self) -> None:
        name = self._type()
        self.method = keys.METHODS[name]
        allowed = keys.keys_of(name)
        for key, node in self.left.items():
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1)
                remedy = f"Did you mean {near[0]}?" if near else "Leave it out."
                raise node.refused_key(key, f"a key of decoding type {name}", remedy)
        self.found.say("speculation.method", self.method)
        if name in ("User_Provided", "SaveState", "AUTO", *keys.GONE_TYPES):
            self._special(name)
        self._old_spellings()
        drafter = self._take("speculative_model")
        if drafter is not None:
            self.found.say("speculation.drafter", drafter.text("speculative_model"))
        elif self.method in keys.NEEDS_DRAFTER:
            self._remark("refused", "speculative_model", self.node, f"{name} needs it")
        depth = self._depth(name)
        self._schedule(depth)
        self._verification()
        if self.method == "ngram":
            size = self._take("max_matching_ngram_size")
            if size is not None:
                self.found.say("speculation.lookup.max_ngram", _integer(size, "max_matching_ngram_size"))
        for key, node in self.left.items():
            self.found.own(key, node.plain())

    def _take(self, key: str) -> Node | None:
        """The value of a key, once; null is what is unsaid."""
        node = self.left.pop(key, None)
        return None if node is None or node.value is None else node

    def _remark(self, effect: Any, key: str, node: Node, reason: str, today: str | None = None) -> None:
        place = node.key_place or node.place
        self.found.remark(
            effect, key, reason, found=str(node.plain())[:80], today=today, position=place.position
        )

    def _type(self) -> str:
        node = self.left.pop("decoding_type", None)
        if node is None:
            raise self.node.place.refused(
                "no decoding_type",
                "decoding_type: one of " + ", ".join(keys.METHODS),
                "Name the decoding type.",
            )
        written = node.text("decoding_type")
        if written == "Eagle":
            self._remark(
                "rewritten", "decoding_type", node,
                "the PyTorch backend converts it to Eagle3 with a warning; heads of EAGLE-1 and EAGLE-2 do not work "
                "with it and give garbage or accept nothing", "decoding_type: Eagle3",
            )  # fmt: skip
        elif written == "DraftTarget":
            self._remark(
                "unsettled", "decoding_type", node,
                "the documents write DraftTarget, the class takes Draft_Target alone", "decoding_type: Draft_Target",
            )  # fmt: skip
        name = keys.ALIASES.get(written, written)
        if name not in keys.METHODS:
            raise node.refused(
                "decoding_type: one of " + ", ".join(keys.METHODS), "Name a decoding type as written."
            )
        if name in keys.GONE_TYPES:
            self._remark("removed", "decoding_type", node, "for the TensorRT backend alone, up to 1.2")
        return name

    def _special(self, name: str) -> None:
        if name == "AUTO":
            self._remark(
                "inferred", "decoding_type", self.node,
                "it becomes NGram: 5 drafts of 3-grams up to 4 requests, 3 drafts of 5-grams above, none above 32",
            )  # fmt: skip
            return
        self.found.own("decoding_type", name)
        if name == "User_Provided":
            self._remark("unread", "drafter", self.node, "a class of the user's own, which no file can name")
        elif name == "SaveState":
            self._remark(
                "inferred", "decoding_type", self.node, "it writes hidden states down and drafts nothing"
            )

    def _old_spellings(self) -> None:
        renamed = {"speculative_model_dir": "speculative_model", "num_nextn_predict_layers": "max_draft_len"}
        for old, new in renamed.items():
            node = self.left.pop(old, None)
            if node is None:
                continue
            if old == "num_nextn_predict_layers":
                self._remark("deprecated", old, node, "the same under another name", new)
            self.left.setdefault(new, node)
        gate = (
            "per-request accepted length became a rate of accepted drafts per iteration (#12905): set it anew"
        )
        for old, new in (
            ("acceptance_window", "acceptance_rate_window_size"),
            ("acceptance_length_threshold", "acceptance_rate_threshold"),
        ):
            node = self.left.pop(old, None)
            if node is not None:
                self._remark("removed", old, node, gate, new)
        for key in ("eagle3_one_model", "mtp_eagle_one_model"):
            node = self.left.get(key)
            if node is not None and node.value is False:
                del self.left[key]
                self._remark(
                    "removed", key, node,
                    "the path of two models is gone: ignored with a warning in the code read, an error since #18721 "
                    "(2026-09). Draft_Target, a draft model of its own, stays", f"without {key}",
                )  # fmt: skip
        node = self.left.pop("allow_advanced_sampling", None)
        if node is not None:
            self._remark("ignored", "allow_advanced_sampling", node, "sampling is detected per request")
        for key, why in (
            ("eagle_choices", "static trees go with 1.4"),
            ("num_eagle_layers", "for TensorRT alone"),
        ):
            if key in self.left and self.left[key].value is not None:
                self._remark("deprecated", key, self.left[key], why)

    def _depth(self, name: str) -> int | None:
        node, total = self._take("max_draft_len"), self._take("max_total_draft_tokens")
        depth = None if node is None else _integer(node, "max_draft_len")
        if (
            depth is not None
            and node is not None
            and (depth < 0 or (depth == 0 and self.method in keys.NEEDS_DEPTH))
        ):
            raise node.refused("max_draft_len above 0", "Give at least one draft token.")
        if depth is None and self.method in keys.NEEDS_DEPTH:
            self._remark("refused", "max_draft_len", self.node, f"{name} needs it")
        flag, topk = self._take("use_dynamic_tree"), self._take("dynamic_tree_max_topK")
        dynamic = flag is not None and flag.boolean("use_dynamic_tree")
        if topk is not None and not dynamic:
            self._remark(
                "ignored", "dynamic_tree_max_topK", topk, "without use_dynamic_tree a chain is drafted"
            )
        if not dynamic:
            self.found.say("speculation.depth", depth)
            if total is not None and _integer(total, "max_total_draft_tokens") != depth:
                if "eagle_choices" in self.left:
                    self.left["max_total_draft_tokens"] = total
                else:
                    self._remark(
                        "rewritten", "max_total_draft_tokens", total, "a chain has max_draft_len of them"
                    )
            return depth
        for key, value in (("max_draft_len", depth), ("dynamic_tree_max_topK", topk)):
            if value is None:
                self._remark("refused", key, self.node, "a dynamic tree needs it")
        self.found.say("speculation.tree.depth", depth)
        if topk is not None:
            self.found.say("speculation.tree.branching", _integer(topk, "dynamic_tree_max_topK"))
        if total is not None:
            self.found.say("speculation.tree.num_nodes", _integer(total, "max_total_draft_tokens"))
        if depth is None and topk is None and total is None:
            self.found.own("use_dynamic_tree", True)
        return depth

    def _schedule(self, depth: int | None) -> None:
        """Keys are upper bounds, and above the largest nothing is drafted; max_concurrency N is {N: K}."""
        table, limit = self._take("draft_len_schedule"), self._take("max_concurrency")
        if limit is not None and table is not None:
            raise table.refused_key(
                "draft_len_schedule and max_concurrency", "one of the two", "Leave one of them out."
            )
        if limit is not None:
            number = _integer(limit, "max_concurrency")
            if number < 1:
                raise limit.refused("max_concurrency above 0", "Leave it out for no limit.")
            if depth is None:
                self.left["max_concurrency"] = limit
                return
            steps = {number: depth}
        elif table is not None:
            steps = self._table(table)
            first = steps[min(steps)]
            if depth is not None and (first != depth or max(steps.values()) > depth):
                self._remark(
                    "refused", "draft_len_schedule", table,
                    "the smallest batch size must have max_draft_len, and no other more than that",
                )  # fmt: skip
        else:
            return
        self.found.say(
            "speculation.schedule", _ranges(steps, self.found.settings.get("max_num_seqs", keys.MAX_BATCH))
        )

    def _table(self, table: Node) -> dict[int, int]:
        steps = {}
        for key, node in table.members("draft_len_schedule").items():
            if not key.isdecimal() or len(key) > 9 or int(key) < 1:
                raise node.refused_key(
                    key, "a batch size above 0", "Write {largest batch size: draft length}."
                )
            steps[int(key)] = _integer(node, "a draft length")
            if steps[int(key)] < 0:
                raise node.refused("a draft length of 0 or more", "Correct the value.")
        if not steps:
            raise table.refused("at least one batch size", "Leave the key out.")
        return steps

    def _verification(self) -> None:
        rejection = self._take("use_rejection_sampling")
        relaxed = self.left.get("use_relaxed_acceptance_for_thinking")
        if relaxed is not None and relaxed.value is True:
            self.found.say("speculation.verification", "lossy")
            if rejection is not None:
                self.left["use_rejection_sampling"] = rejection
        elif rejection is not None:
            asked = rejection.boolean("use_rejection_sampling")
            self.found.say("speculation.verification", "standard" if asked else "exact_match")
            if asked and (self.method not in keys.REJECTION or "sa_config" in self.left):
                self._remark(
                    "refused", "use_rejection_sampling", rejection, "not with this method, nor with sa_config"
                )


def _ranges(steps: dict[int, int], largest_batch: int) -> tuple[BatchRange, ...]:
    """Every batch size from 1 on. A largest key that no batch exceeds has no upper end."""
    ranges: list[BatchRange] = []
    low = 1
    highest = max(steps)
    for high in sorted(steps):
        is_open = high == highest and high >= largest_batch
        ranges.append(BatchRange(low=low, high=None if is_open else high, depth=steps[high]))
        low = high + 1
    if ranges[-1].high is not None:
        ranges.append(BatchRange(low=low, high=None, depth=0))
    return tuple(ranges)
