"""OpenVINO GenAI's Python text or JSON → the neutral description. Called by the dialect."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.library import LibraryReader, read_script
from draftproof.configs.engines.openvino import words
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.pythontext import Argument, Call, Code, Script
from draftproof.configs.reading.refusal import Place

_PIPELINES = ("LLMPipeline", "ContinuousBatchingPipeline")


def gather(place: Place, found: Gathering) -> None:
    """Raises DP111 with line and column."""
    script = read_script(place, found)
    _Reader(script, found, _arguments(script, place)).gather()


def _arguments(script: Script, place: Place) -> dict[str, Argument]:
    alone = next((call for call in script.calls if call.name in ("", "_")), None)
    if alone is not None:
        return dict(alone.keywords)
    pipeline = next((call for call in script.calls if call.last_name in _PIPELINES), None)
    generate = script.called("generate")
    if pipeline is None and generate is None and script.called("GenerationConfig") is None:
        where = script.calls[0].place if script.calls else place
        raise where.refused(
            "no pipeline", "LLMPipeline(…), generate(…), or their arguments", "Give the calls."
        )
    found: dict[str, Argument] = {}
    if pipeline is not None:
        found |= pipeline.keywords
        for name, argument in zip(("models_path", "device"), pipeline.arguments, strict=False):
            found.setdefault(name, argument)
    for name, value in script.assigned.items():
        if isinstance(value, Call) and value.last_name == "GenerationConfig":
            found |= dict(value.keywords) | script.attributes(name)
    if generate is not None:
        found |= {name: value for name, value in generate.keywords.items() if name != "generation_config"}
    return found


class _Reader(LibraryReader):
    """The arguments of the pipeline and of the generation config together."""

    def gather(self) -> None:
        self._model("models_path", "target")
        device = self.left.pop("device", None)
        if isinstance(device, Node) and device.value is not None:
            self.found.own("device", device.text("device"), around=True)
        self._scheduler()
        self.found.say("speculation.method", self._method())
        for name, argument in self.left.items():
            self.keep(name, argument, around=True)

    def _model(self, name: str, path: str) -> bool:
        """A directory in quotes, or `draft_model("directory", "device")`."""
        argument = self.script.value(self.left.pop(name, None))
        if isinstance(argument, Call) and argument.last_name == "draft_model":
            if len(argument.arguments) > 1 and isinstance(argument.arguments[1], Node):
                self.found.own("draft_device", argument.arguments[1].text("the device"))
            argument = self.script.value(argument.arguments[0]) if argument.arguments else None
        if argument is None or (isinstance(argument, Node) and argument.value is None):
            return False
        if isinstance(argument, Call | Code):
            raise argument.place.refused(
                f"{name}, which is not in the text", "a directory in quotes", "Write it."
            )
        self.found.say(path, argument.text(name))
        return True

    def _scheduler(self) -> None:
        argument = self.left.pop("scheduler_config", None)
        if argument is None:
            return
        members: dict[str, Argument] = {}
        value = self.script.value(argument)
        if isinstance(value, Node):
            members |= value.members("scheduler_config") if value.value is not None else {}
        elif isinstance(argument, Code):
            members |= self.script.attributes(argument.text)
        more = {}
        for name, inner in members.items():
            node = self.script.value(inner)
            if not isinstance(node, Node):
                continue
            if name in words.SCHEDULER and node.value is not None:
                path, kind = words.SCHEDULER[name]
                self.found.say(path, node.boolean(name) if kind == "bool" else node.integer(name))
            else:
                more[name] = node.plain()
        if more:
            self.found.own("scheduler_config", more, around=True)

    def _method(self) -> str:
        drafted = self._model("draft_model", "speculation.drafter")
        device = self.take("draft_device")
        if device is not None:
            self.found.own("draft_device", device.text("draft_device"))
        look_up = self.take("prompt_lookup")
        looks_up = look_up is not None and look_up.boolean("prompt_lookup")
        if drafted and looks_up:
            assert look_up is not None
            raise look_up.place.refused(
                "draft_model and prompt_lookup",
                "one of the two: they exclude each other",
                "Leave one of them out.",
            )
        taken = {name: node for name in words.GENERATION if (node := self.take(name)) is not None}
        if not drafted and not looks_up:
            for name, node in taken.items():
                self.found.remark("ignored", name, "the pipeline has nothing to draft with", found=name)
                self.found.own(name, node.plain())
            return "none"
        counts = {
            name: node.number(name) if name == words.CONFIDENCE else node.integer(name)
            for name, node in taken.items()
        }
        for name, count in counts.items():
            if count < 0:
                raise taken[name].refused(f"{name} of 0 or more", "Correct the value.")
        number, levels = counts.get(words.COUNT), counts.get("tree_depth", 0)
        if counts.get(words.CONFIDENCE) and number:
            raise taken[words.CONFIDENCE].refused(
                f"one of {words.COUNT} and this", "They exclude each other."
            )
        if looks_up:
            return self._look_up(counts)
        if levels == 0 and not words.is_eagle(str(self.found.settings["speculation.drafter"])):
            self.found.say("speculation.min_confidence", counts.get(words.CONFIDENCE) or None)
            self.found.say("speculation.depth", number or None)
            return "draft_model"
        if levels == 0:
            self.found.remark(
                "inferred", "draft_model", "its name says EAGLE-3; what decides stands in its own files, not read here",
                found=str(self.found.settings["speculation.drafter"]),
            )  # fmt: skip
        self._eagle(counts)
        return "eagle3"

    def _look_up(self, counts: Mapping[str, float]) -> str:
        self.found.say("speculation.depth", counts.get(words.COUNT) or None)
        self.found.say("speculation.lookup.max_ngram", counts.get("max_ngram_size") or None)
        for name in (words.COUNT, "max_ngram_size"):
            if not counts.get(name):
                self._refused(name, counts, "prompt look-up needs it, above 0")
        return "ngram"

    def _eagle(self, counts: Mapping[str, float]) -> None:
        """A chain without tree_depth; a tree of one branch that is as deep as it has nodes is a chain, too."""
        number, levels = counts.get(words.COUNT), counts.get("tree_depth", 0)
        width = counts.get("branching_factor", 1)
        if counts.get(words.CONFIDENCE):
            self._refused(words.CONFIDENCE, counts, "EAGLE-3 takes a number of tokens alone")
        if levels == 0 or (width == 1 and number == levels):
            self.found.say("speculation.depth", number or None)
        else:
            self.found.say("speculation.tree.depth", levels)
            self.found.say("speculation.tree.branching", width)
            self.found.say("speculation.tree.num_nodes", number)
        if levels == 0:
            return
        sampling = self.script.value(self.left.get("do_sample"))
        if isinstance(sampling, Node) and sampling.value is True:
            self._refused("do_sample", {"do_sample": True}, "a tree needs greedy requests")
        if not levels <= (number or 0) <= words.most_nodes(int(width), int(levels)):
            most = words.most_nodes(int(width), int(levels))
            self._refused(words.COUNT, counts, f"this tree takes from {levels} to {most}")

    def _refused(self, name: str, given: Mapping[str, object], reason: str) -> None:
        self.found.remark("refused", name, reason, found=str(given.get(name, "nothing")))
