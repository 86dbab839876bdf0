"""Transformers' Python text or arguments → the neutral description. Called by the dialect.

A model that stands in a variable has its name if the text loads it with `from_pretrained`; otherwise the text is
refused: the name is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.library import LibraryReader, read_script
from draftproof.configs.engines.transformers import words
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.pythontext import Argument, Call, Code, Script
from draftproof.configs.reading.refusal import Place


def gather(place: Place, found: Gathering) -> None:
    """Raises DP111 with line and column."""
    script = read_script(place, found)
    call = script.called("generate") or script.called("")
    if call is None:
        bare = script.calls[-1] if script.calls else None
        if bare is None or bare.name != "_":
            raise place.at(bare.place.position if bare else 0).refused(
                bare.name if bare else "nothing", "a call of generate, or its arguments", "Give the call."
            )
        call = bare
    _Reader(script, call, found).gather()


class _Reader(LibraryReader):
    def __init__(self, script: Script, call: Call, found: Gathering) -> None:
        super().__init__(script, found, call.keywords)
        self.call = call

    def gather(self) -> None:
        model = self.call.name.rpartition(".")[0]
        self._load("target", self.script.assigned.get(model) if model else None)
        config = self.left.pop("generation_config", None)
        if config is not None:
            self._configured(config)
        for path in ("target", "assistant_model"):
            variable = model if path == "target" else _text(self.left.get(path))
            if variable:
                self._of_generation_config(variable)
        method = self._method()
        self.found.say("speculation.method", method)
        if method in words.ASSISTED:
            self._assisted(method)
        elif method == "ngram":
            self._number("prompt_lookup_num_tokens", "speculation.depth")
            self._number("max_matching_ngram_size", "speculation.lookup.max_ngram")
        for name, argument in self.left.items():
            plain = name.removeprefix("generation_config.")
            if plain in words.OF_ASSISTANT and not _is_nothing(argument):
                self.found.remark(
                    "ignored", plain, "it acts on an assistant alone, and nothing drafts with one", found=plain,
                    position=argument.place.position,
                )  # fmt: skip
            self.keep(plain, argument, around=plain not in words.OWN)

    def _configured(self, config: Argument) -> None:
        """`GenerationConfig(…)` holds the same arguments; those of the call itself win."""
        value = self.script.value(config)
        if isinstance(value, Call):
            name = _text(config)
            inner = dict(value.keywords) | (self.script.attributes(name) if name else {})
            self.left = inner | self.left
        elif not (isinstance(value, Node) and value.value is None):
            raise config.place.refused(
                "a generation_config whose values are not in the text",
                "GenerationConfig(…)",
                "Give its arguments.",
            )

    def _of_generation_config(self, variable: str) -> None:
        start = "generation_config."
        for name, value in self.script.attributes(variable).items():
            if name.startswith(start) and name[len(start) :] in words.OF_ASSISTANT:
                self.left[f"{start}{name[len(start) :]}"] = value

    def _number(self, name: str, path: str) -> None:
        node = self.take(name)
        if node is not None:
            self.found.say(path, node.integer(name))

    def _load(self, path: str, argument: Argument | None) -> None:
        """A model by the `from_pretrained` that made it, or by its name."""
        if argument is None:
            return
        if isinstance(argument, Node):
            self.found.say(path, argument.text(path))
            return
        if not isinstance(argument, Call) or argument.last_name != words.LOADER:
            raise argument.place.refused(
                "a model whose name is not in the text",
                'the name, or X.from_pretrained("name")',
                "Write the name.",
            )
        name = (
            argument.arguments[0]
            if argument.arguments
            else argument.keywords.get("pretrained_model_name_or_path")
        )
        name = self.script.value(name)
        if not isinstance(name, Node):
            raise argument.place.refused(
                "a name that is not in the text", "the name in quotes", "Write the name."
            )
        self.found.say(path, name.text("the model's name"))
        revision = self.script.value(argument.keywords.get("revision"))
        if isinstance(revision, Node) and isinstance(revision.value, str):
            self.found.say(f"{path}.revision", revision.value)
        dtype = self.script.value(argument.keywords.get("dtype") or argument.keywords.get("torch_dtype"))
        if path == "target" and dtype is not None:
            written = dtype.text.removeprefix("torch.") if isinstance(dtype, Code) else _plain(dtype)
            if written in words.DTYPES:
                self.found.say("dtype", written)

    def _method(self) -> str:
        """As `generate` chooses: early exit, look-up, built-in heads, DFlash, an assistant."""
        asked = {
            name
            for name in ("assistant_early_exit", "prompt_lookup_num_tokens", "use_mtp", "assistant_model")
            if not _is_nothing(self.left.get(name))
        }
        assistant = self.left.pop("assistant_model", None) if "assistant_model" in asked else None
        if "assistant_early_exit" in asked:
            exit_layer = self.take("assistant_early_exit")
            self.found.own("assistant_early_exit", exit_layer and exit_layer.plain())
            return "early_exit"
        if "prompt_lookup_num_tokens" in asked:
            return "ngram"
        if "use_mtp" in asked:
            del self.left["use_mtp"]
            return "mtp"
        if assistant is None:
            return "none"
        self._load("speculation.drafter", self.script.value(assistant))
        kind = self.take("speculation_type")
        return "dflash" if kind is not None and kind.value == "dflash" else "draft_model"

    def _assisted(self, method: str) -> None:
        holder = "assistant_model" if method == "draft_model" else "model"
        for name in words.OF_ASSISTANT:
            acting, idle = self.left.pop(f"generation_config.{name}", None), self.left.get(name)
            if idle is not None and not _is_nothing(idle) and acting is None:
                self.found.remark(
                    "ignored", name,
                    "generate takes the argument, and the drafter goes by its own generation config; here it is taken "
                    "at its word", found=name, today=f"{holder}.generation_config.{name} = …",
                    position=idle.place.position,
                )  # fmt: skip
            if acting is not None:
                self.left[name] = acting
        self._number("num_assistant_tokens", "speculation.depth")
        schedule = self.take("num_assistant_tokens_schedule")
        if schedule is not None:
            if schedule.value not in words.SCHEDULES:
                raise schedule.refused("one of " + ", ".join(words.SCHEDULES), "Name one of these.")
            self.found.say("speculation.adaptive", schedule.value != "constant")
            if schedule.value == "heuristic_transient":
                self.found.own("num_assistant_tokens_schedule", schedule.value)
        threshold = self.take("assistant_confidence_threshold")
        if threshold is not None:
            self.found.say("speculation.min_confidence", threshold.number("assistant_confidence_threshold"))
        tokenizers = [self.left.pop(name, None) for name in ("tokenizer", "assistant_tokenizer")]
        if all(not _is_nothing(item) for item in tokenizers):
            self.found.say("speculation.different_vocabulary", True)
        if not _is_nothing(self.left.get("assistant_ensemble_weight")):
            self.found.say("speculation.verification", "lossy")


def _text(argument: Argument | None) -> str | None:
    return argument.text if isinstance(argument, Code) else None


def _plain(argument: Argument | Mapping[str, Any]) -> Any:
    return argument.plain() if isinstance(argument, Node) else None


def _is_nothing(argument: Argument | None) -> bool:
    return argument is None or (
        isinstance(argument, Node) and (argument.value is None or argument.value is False)
    )
