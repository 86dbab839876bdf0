"""What dialects of engines that are libraries share: keyword arguments from JSON or Python text, and writing Python.

Called by the dialects of Transformers and OpenVINO GenAI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.configs.engines.account import Account
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.pythontext import Argument, Call, Script, read_python
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment
from draftproof.core.errors import DraftproofError


def read_script(place: Place, found: Gathering) -> Script:
    """JSON objects become a call without a name. Raises DP111."""
    if place.text.lstrip().startswith("{"):
        try:
            node = read_json(place)
            return Script(calls=[Call("", (), node.members("the arguments"), node.place)])
        except DraftproofError as error:
            try:
                return read_python(place)
            except DraftproofError:
                raise error from None
    script = read_python(place)
    if script.comment is not None:
        found.remark(
            "lost", "comments", "a translation keeps no comments", found="#", position=script.comment
        )
    if not script.calls and script.assigned:
        nodes = {name: value for name, value in script.assigned.items() if "." not in name}
        return Script(calls=[Call("", (), nodes, place)], comment=script.comment)
    return script


class LibraryReader:
    """`left`: arguments that are not read yet."""

    def __init__(self, script: Script, found: Gathering, left: Mapping[str, Argument]) -> None:
        self.script, self.found, self.left = script, found, dict(left)

    def take(self, name: str) -> Node | None:
        """The literal value of an argument; None where it is absent or None. Raises DP111 for a variable."""
        argument = self.script.value(self.left.pop(name, None))
        if argument is None or (isinstance(argument, Node) and argument.value is None):
            return None
        if not isinstance(argument, Node):
            raise argument.place.refused(
                f"{name}, whose value is not in the text", "a literal", "Write the value."
            )
        return argument

    def keep(self, name: str, argument: Argument, around: bool) -> None:
        """An argument that has no neutral counterpart."""
        value = self.script.value(argument)
        if isinstance(value, Node):
            if value.value is not None:
                self.found.own(name, value.plain(), around=around)
            return
        self.found.remark(
            "unread", name, "its value is not in the text, and it is not kept", found=name,
            position=argument.place.position,
        )  # fmt: skip


def literal(value: Any) -> str:
    """A plain value as Python writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(literal(part) for part in value) + "]"
    return repr(value)


def chain(account: Account, deployment: Deployment, own: bool) -> int | None:
    """K for an engine that drafts one chain for one batch: what is said, or for another engine's tree or schedule its
    longest path or its depth for one request. Notes what has to go."""
    speculation = deployment.speculation
    tree = account.under("speculation.tree")
    for path in tree:
        account.dropped(path, f"{account.title} drafts one chain")
    if account.is_said("speculation.schedule"):
        account.dropped("speculation.schedule", f"{account.title} has no depth by batch size")
    depth = account.value("speculation.depth")
    if depth is not None or own:
        return None if depth is None else int(depth)
    if speculation.tree is not None and speculation.tree.depth is not None:
        account.converted("speculation.depth", str(speculation.tree.depth), "the longest path of the tree")
        return speculation.tree.depth
    if speculation.schedule:
        first = speculation.schedule[0].depth
        account.converted("speculation.depth", str(first), "the depth for one request")
        return first
    return None
