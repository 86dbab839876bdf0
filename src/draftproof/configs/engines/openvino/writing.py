"""The neutral description → OpenVINO GenAI's Python. Called by the dialect.

What `GenerationConfig.validate` refuses is not written.
"""

from __future__ import annotations

from typing import Any

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.library import chain, literal
from draftproof.configs.engines.openvino import words
from draftproof.configs.speculation import Tree

_AROUND, _OWN = "extras.openvino.", "speculation.extras.openvino."


class OpenVinoWriter(Writer):
    """`pipeline`: arguments of the constructor; `scheduler` and `config`: lines of its and of the generation config."""

    def write(self) -> tuple[Artifact, ...]:
        self.pipeline: list[str] = []
        self.scheduler: dict[str, Any] = {}
        account = self.account
        target, device = account.value("target"), account.value(f"{_AROUND}device")
        if target is not None:
            self.pipeline.append(literal(target))
            self.name("target", f"LLMPipeline({literal(target)}, …)")
        if isinstance(device, str):
            self.pipeline.append(literal(device) if target is not None else f"device={literal(device)}")
            account.kept(f"{_AROUND}device", device)
        elif target is not None:
            self.pipeline.append('device="CPU"' if not self.own else "device=None")
        for name, (path, _) in words.SCHEDULER.items():
            value = account.value(path)
            if value is not None:
                self.scheduler[name] = value
                account.kept(path, f"scheduler_config.{name} = {literal(value)}")
        more = account.value(f"{_AROUND}scheduler_config")
        if hasattr(more, "items"):
            self.scheduler |= {name: value for name, value in changeable(more).items() if name.isidentifier()}
            account.kept(f"{_AROUND}scheduler_config", "scheduler_config")
        self._method()
        for path in account.under("extras.openvino"):
            name = path.removeprefix(_AROUND)
            reserved = (*words.PIPELINE, *words.GENERATION, "scheduler_config")
            if not account.is_noted(path) and name.isidentifier() and name not in reserved:
                self.config[name] = changeable(account.value(path))
                account.kept(path, f"config.{name} = {literal(self.config[name])}")
        return (Artifact(name="generate.py", text=self._text()),)

    def _text(self) -> str:
        lines = ["import openvino_genai", ""]
        if self.scheduler:
            lines.append("scheduler_config = openvino_genai.SchedulerConfig()")
            lines += [f"scheduler_config.{name} = {literal(value)}" for name, value in self.scheduler.items()]
            self.pipeline.append("scheduler_config=scheduler_config")
        lines.append(f"pipe = openvino_genai.LLMPipeline({', '.join(self.pipeline)})")
        lines.append("config = openvino_genai.GenerationConfig()")
        lines += [f"config.{name} = {literal(value)}" for name, value in self.config.items()]
        return "\n".join([*lines, "result = pipe.generate(prompt, config)"]) + "\n"

    def _method(self) -> None:
        account, path = self.account, "speculation.method"
        drafter = account.value("speculation.drafter")
        if self.method == "none":
            account.kept(path, "no drafter")
            for name in words.GENERATION:
                own = account.value(f"{_OWN}{name}")
                if own is not None:
                    self.config[name] = changeable(own)
                    account.kept(f"{_OWN}{name}", name)
        elif self.method in ("draft_model", "eagle3") and drafter is not None:
            device = account.value(f"{_OWN}draft_device")
            where = f", {literal(device)}" if isinstance(device, str) else ""
            self.pipeline.append(f"draft_model=openvino_genai.draft_model({literal(drafter)}{where})")
            self.name("speculation.drafter", f"draft_model({literal(drafter)}{where})")
            if where:
                account.kept(f"{_OWN}draft_device", str(device))
            if self.method == "eagle3":
                account.kept(path, "draft_model=…")
                self._eagle()
            else:
                self._assistant()
        elif self.method == "ngram":
            self._look_up()
        else:
            why = (
                "a drafter must be named"
                if self.method in ("draft_model", "eagle3")
                else "OpenVINO GenAI has no such method"
            )
            account.impossible(path, why, words.SOURCE)

    def about_name(self, name: str) -> str:
        return "GenAI loads a directory in OpenVINO's format: export it first (optimum-cli export openvino)"

    def _set(self, name: str, path: str, value: Any) -> None:
        self.config[name] = value
        if not self.account.is_noted(path):
            self.account.kept(path, f"config.{name} = {literal(value)}")

    def _assistant(self) -> None:
        account = self.account
        if words.is_eagle(str(account.value("speculation.drafter"))):
            reason = "its name says that the drafter is an EAGLE-3 head: name the method eagle3"
            account.impossible("speculation.method", reason, words.SOURCE)
            return
        account.kept("speculation.method", "draft_model=…")
        depth = chain(account, self.deployment, self.own)
        confidence = account.value("speculation.min_confidence")
        if depth is not None:
            if depth < 1:
                account.impossible("speculation.depth", "num_assistant_tokens must be above 0", words.SOURCE)
                return
            self._set("num_assistant_tokens", "speculation.depth", depth)
            if account.is_said("speculation.min_confidence"):
                account.dropped(
                    "speculation.min_confidence",
                    "a fixed number and a confidence threshold exclude each other",
                    words.SOURCE,
                )
        elif confidence:
            self._set("assistant_confidence_threshold", "speculation.min_confidence", confidence)

    def _look_up(self) -> None:
        account = self.account
        depth = chain(account, self.deployment, self.own)
        longest = account.value("speculation.lookup.max_ngram")
        if not depth or not longest or depth < 1:
            account.impossible(
                "speculation.method",
                "num_assistant_tokens and max_ngram_size must both be said, above 0",
                words.SOURCE,
            )
            return
        self.pipeline.append("prompt_lookup=True")
        account.kept("speculation.method", "prompt_lookup=True")
        self._set("num_assistant_tokens", "speculation.depth", depth)
        self._set("max_ngram_size", "speculation.lookup.max_ngram", longest)

    def _eagle(self) -> None:
        """A chain says its length alone if the head's name says what it is, else it is a tree of one branch, for greedy
        requests only. GenAI itself reads in the head what it is."""
        account, tree = self.account, self.deployment.speculation.tree
        if tree is None or tree == Tree():
            depth = account.value("speculation.depth")
            if depth is None and self.deployment.speculation.schedule and not self.own:
                depth = chain(account, self.deployment, self.own)
            named = words.is_eagle(str(account.value("speculation.drafter")))
            if depth is None and named:
                return
            if depth is None or depth < 1:
                account.impossible(
                    "speculation.depth", "num_assistant_tokens must be said, above 0", words.SOURCE
                )
                return
            if not named:
                self.config |= {"branching_factor": 1, "tree_depth": depth}
            self._set("num_assistant_tokens", "speculation.depth", depth)
            return
        first = account.under("speculation.tree")[0]
        if tree.depth is None or tree.branching is None or tree.num_nodes is None:
            account.impossible(first, "a tree needs depth, branching and nodes", words.SOURCE)
        elif not tree.depth <= tree.num_nodes <= words.most_nodes(tree.branching, tree.depth):
            most = words.most_nodes(tree.branching, tree.depth)
            account.impossible(first, f"num_assistant_tokens must be in {tree.depth} to {most}", words.SOURCE)
        elif tree.branching == 1:
            account.impossible(first, "a tree of one branch is a chain; say a depth instead", words.SOURCE)
        else:
            self._set("branching_factor", "speculation.tree.branching", tree.branching)
            self._set("tree_depth", "speculation.tree.depth", tree.depth)
            self._set("num_assistant_tokens", "speculation.tree.num_nodes", tree.num_nodes)
