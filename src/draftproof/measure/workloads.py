"""The built-in workloads: real prompts of three kinds, in English and German, shipped with the package.

Read by the demo and by measurements. Knows texts; nothing of engines or tokens.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

NAMES = ("edit", "chat", "passage")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request. `prediction` is the expected text where the kind of task gives one, else None."""

    name: str
    language: str
    text: str
    prediction: str | None


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    about: str
    prompts: tuple[Prompt, ...]


def load(name: str) -> Workload:
    """One of `NAMES`; a name that is not built in raises KeyError."""
    if name not in NAMES:
        raise KeyError(name)
    text = resources.files("draftproof.measure").joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    is_edit = name == "edit"
    prompts = tuple(_prompt(entry, is_edit) for entry in document["prompts"])
    return Workload(name, document["title"], document["about"], prompts)


def load_all() -> list[Workload]:
    return [load(name) for name in NAMES]


def _prompt(entry: dict[str, str], is_edit: bool) -> Prompt:
    """The instruction comes first where a file follows, and last where a passage is to be read before it."""
    source, instruction = entry.get("source"), entry["instruction"]
    if source is None:
        return Prompt(entry["name"], entry["language"], instruction, None)
    if is_edit:
        text = f"{instruction}\n\n```python\n{source.lstrip()}```"
        return Prompt(entry["name"], entry["language"], text, source.lstrip())
    return Prompt(entry["name"], entry["language"], f"{source.strip()}\n\n{instruction}", None)
