"""Containers as YAML describes them: a service of Compose, a container of Kubernetes, or the file around either.

Called by `started`. Which container starts an engine is told by its image or its program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from draftproof.configs.reading.images import Image, read_image
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.prefixes import program
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import Collected

_KEYS = "command|args|entrypoint|image|containers|services"
_MANIFEST = re.compile(rf"^[ \t]*(?:-[ \t]+)?[\"']?(?:{_KEYS})[\"']?[ \t]*:", re.MULTILINE)
_FIRST = re.compile(
    r"(?:\s|\ufeff|#[^\n]*\n|---[^\n]*\n)*(?:-\s|[\"']?[A-Za-z_][\w.-]*[\"']?[ \t]*:(?:\s|$))"
)
_LIST = re.compile(r"(?:\s|\ufeff|#[^\n]*\n|---[^\n]*\n)*-\s")
_SEPARATOR = re.compile(r"^---(?:[ \t][^\n]*)?\r?$", re.MULTILINE)
_MAX_DOCUMENTS = 32
_OF_KUBERNETES = re.compile(r"(?<!\$)(?:\$\$)*(?P<at>\$)\([A-Za-z_][\w.-]*\)")
_OF_COMPOSE = re.compile(r"(?<!\$)(?:\$\$)*(?P<at>\$)[A-Za-z_{]")
_READ = frozenset(
    ("name", "image", "command", "args", "entrypoint", "env", "environment", "envFrom", "env_file", "extends")
)
_ELSEWHERE = {"envFrom": "maps of variables", "env_file": "a file of variables", "extends": "another service"}
_ENTRY = "Write each argument as an entry of its own."

Split = Callable[[str, str, int], tuple[Word, ...]]
"""Text, name and offset → its words, as a shell splits them."""


def is_manifest(text: str) -> bool:
    """Whether the text is YAML of a container, or a list of arguments, rather than a command."""
    return bool(_LIST.match(text)) or bool(_FIRST.match(text) and _MANIFEST.search(text))


def is_yaml(text: str) -> bool:
    """Whether the text begins as a mapping does: no command is written so."""
    return bool(_FIRST.match(text))


@dataclass(frozen=True, slots=True)
class _Container:
    name: str
    node: Node
    is_compose: bool
    """Else of Kubernetes, or unknown: where a text in place of a list is a mistake, if it is Kubernetes."""
    is_kubernetes: bool

    @property
    def members(self) -> Mapping[str, Node]:
        return self.node.members("a container")

    @property
    def image(self) -> Image | None:
        node = self.members.get("image")
        return read_image(node.value) if node is not None and isinstance(node.value, str) else None

    def starts(self, engine: str, programs: Mapping[str, str]) -> bool:
        """Whether image or program are this engine's, or any engine's where `engine` is none."""
        if self.image is not None and self.image.engine is not None:
            return engine in (self.image.engine, "command")
        texts: list[str] = []
        for key in ("entrypoint", "command", "args"):
            node = self.members.get(key)
            value = node.plain() if node is not None else None
            texts += (
                map(str, value) if isinstance(value, tuple) else [value] if isinstance(value, str) else []
            )
        words = [program(Word(part, 0)) for text in texts for part in text.split()[:16]]
        told = {programs[word] for word in words if word in programs}
        return engine in told or (engine == "command" and bool(told))


def read_manifest(
    place: Place, found: Collected, split: Split, programs: Mapping[str, str]
) -> tuple[Word, ...]:
    """The words of the one container that starts the engine `place.engine`. Raises DP111."""
    from draftproof.configs.reading.yamltext import read_yaml

    containers: list[_Container] = []
    for document in _documents(place):
        node = read_yaml(document).node
        if isinstance(node.value, tuple) and all(
            isinstance(part.value, str | int | float) for part in node.value
        ):
            return tuple(_word(part, _OF_KUBERNETES) for part in node.value)
        containers += _containers(node)
    if not containers:
        raise place.refused(
            "a manifest without a container", "a container with command: or args:", "Give one container."
        )
    chosen = _chosen(place, containers, programs)
    for other in containers:
        if other is not chosen:
            found.leave(
                "lost", "container", other.name, "another container: not read", other.node.place.position
            )
    return _read(chosen, found, split)


def _documents(place: Place) -> Iterator[Place]:
    """Each document with blanks before it, so that its positions are those of the text."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(place.text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(place.text)), len(place.text)]
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if place.text[start:end].strip()]
    if len(spans) > _MAX_DOCUMENTS:
        raise place.at(spans[_MAX_DOCUMENTS][0]).refused(
            f"{len(spans)} documents", f"at most {_MAX_DOCUMENTS}", "Give one container."
        )
    for start, end in spans:
        blank = re.sub(r"[^\n]", " ", place.text[:start])
        yield Place(place.engine, blank + place.text[start:end], name=place.name)


def _containers(root: Node) -> Iterator[_Container]:
    """Services, `containers:` anywhere, a list of containers, or the one that the text is."""
    if isinstance(root.value, tuple):
        yield from (_container(part) for part in root.value if isinstance(part.value, Mapping))
        return
    if not isinstance(root.value, Mapping):
        return
    services = root.value.get("services")
    if services is not None and isinstance(services.value, Mapping):
        for name, node in services.value.items():
            if isinstance(node.value, Mapping):
                yield _Container(name, node, True, False)
        return
    inner = [
        _Container(_name(part), part, False, True)
        for parts in _lists(root)
        for part in parts
        if isinstance(part.value, Mapping)
    ]
    if inner:
        yield from inner
    elif {"command", "args", "entrypoint", "image"} & set(root.value):
        yield _container(root)
    else:  # a service under its name
        for name, node in root.value.items():
            if isinstance(node.value, Mapping) and {"command", "args", "entrypoint", "image"} & set(
                node.value
            ):
                yield _container(node, name)


def _container(node: Node, name: str = "") -> _Container:
    keys = set(node.members("a container"))
    compose = bool(keys & {"environment", "entrypoint", "env_file", "depends_on", "deploy"})
    return _Container(
        name or _name(node), node, compose, not compose and bool(keys & {"args", "env", "envFrom"})
    )


def _name(node: Node) -> str:
    name = node.members("a container").get("name")
    return name.value if name is not None and isinstance(name.value, str) else "a container"


def _lists(root: Node) -> Iterator[tuple[Node, ...]]:
    """Every list under a key `containers`, in order; the tree is bounded by its reader."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node.value, Mapping):
            found = node.value.get("containers")
            if found is not None and isinstance(found.value, tuple):
                yield found.value
            pending += reversed([part for key, part in node.value.items() if key != "containers"])
        elif isinstance(node.value, tuple):
            pending += reversed(node.value)


def _chosen(place: Place, containers: Sequence[_Container], programs: Mapping[str, str]) -> _Container:
    if len(containers) == 1:
        return containers[0]
    fitting = [container for container in containers if container.starts(place.engine, programs)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(container.name for container in (fitting or containers)[:8])
    at = (fitting or containers)[1 if fitting else 0].node.place
    raise at.refused(
        f"{len(fitting)} containers that start it: {names}", "one", "This is a manifest: give one container."
    )


def _read(container: _Container, found: Collected, split: Split) -> tuple[Word, ...]:
    members = container.members
    found.image = found.image or container.image
    variables = _OF_COMPOSE if container.is_compose else _OF_KUBERNETES
    image = members.get("image")
    if image is not None and isinstance(image.value, str) and "$" in image.value:
        found.image = None
        found.leave(
            "unread", "image", image.value, "engine and version are in a variable", image.place.position
        )
    words: list[Word] = []
    for key in ("entrypoint", "command", "args"):
        node = members.get(key)
        if node is None or node.value is None:
            continue
        if isinstance(node.value, str):
            if container.is_kubernetes or key == "args":
                raise node.refused("a list of arguments", f"{_ENTRY} Kubernetes refuses a text here, too.")
            text = re.sub(r"(?<!\\)\n", " ", node.value)
            words += split(text, key, node.place.position)
        elif isinstance(node.value, tuple):
            words += (_word(part, variables) for part in node.value)
        else:
            raise node.refused("a list of arguments", _ENTRY)
    _environment(members, container, variables, found)
    for key, why in _ELSEWHERE.items():
        if key in members:
            node = members[key]
            found.leave(
                "unread",
                key,
                str(node.plain())[:80],
                f"{why}: what it sets is not known here",
                node.place.position,
            )
    others = [key for key in members if key not in _READ]
    if others:
        found.leave(
            "lost", "container", ", ".join(others), "how it runs: a translation keeps command and variables",
            container.node.place.position,
        )  # fmt: skip
    return tuple(words)


def _word(node: Node, variables: re.Pattern[str]) -> Word:
    text = node.text("an argument")
    match = variables.search(text)
    at = None if match is None else node.place.position
    return Word(text if match else text.replace("$$", "$"), node.place.position, quoted=True, variable=at)


def _environment(
    members: Mapping[str, Node], container: _Container, variables: re.Pattern[str], found: Collected
) -> None:
    said = members.get("env")
    if said is not None and said.value is not None:
        if not isinstance(said.value, tuple):
            raise said.refused("a list of name: and value:", "Write one entry a variable.")
        for entry in said.value:
            inner = entry.members("a variable")
            name = inner["name"].text("a name") if "name" in inner else ""
            if not name:
                raise entry.refused("a variable with its name", "Name it.")
            if "valueFrom" in inner:
                found.inherit(name, entry.place.position)
                continue
            value = inner.get("value")
            if value is not None and not isinstance(value.value, str):
                raise value.refused("a value: text", "Put it into quotes: Kubernetes refuses it, too.")
            _set(name, value, variables, found, entry)
    said = members.get("environment")
    if said is None or said.value is None:
        return
    if isinstance(said.value, tuple):
        for entry in said.value:
            name, equals, text = entry.text("a variable").partition("=")
            if equals:
                _set(name, Node(text, entry.place), variables, found, entry)
            else:
                found.inherit(name, entry.place.position)
        return
    for name, node in said.members("environment").items():
        if node.value is None:
            found.inherit(name, node.place.position)
        elif isinstance(node.value, bool):
            raise node.refused("a value: text", "Put it into quotes: Compose refuses true and false, too.")
        else:
            _set(
                name,
                Node(str(node.value) if not isinstance(node.value, str) else node.value, node.place),
                variables,
                found,
                node,
            )


def _set(name: str, value: Node | None, variables: re.Pattern[str], found: Collected, entry: Node) -> None:
    """A variable without a value is an empty one."""
    word = Word("", entry.place.position) if value is None else _word(value, variables)
    found.set(name, word.text, word)
