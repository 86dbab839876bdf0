"""What every dialect is: text of an engine → `Deployment`, and back, with an account of every setting.

One subclass per engine, in a package of its own; called by `translate`, `check`, `advise`, `lock`. A dialect never
guesses: text that it does not understand is refused with the position and the reason, and a setting that the engine
cannot say is noted as dropped or impossible. `account` keeps the account, `configs.reading` reads the texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from draftproof.configs.engines.account import Account
from draftproof.configs.engines.base import Artifact, Default, NoteKind, Parsed, Reader, Rendered
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import MODELS, Deployment, Speculation, Value
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Source

_TOGETHER = frozenset(("speculation.lookup.min_ngram", "speculation.lookup.max_ngram"))
"""Engines fill in the one that is missing from the other: where one is written, so is the other."""

_ALIKE = frozenset(("speculation.verification", "speculation.draft_sampling"))
"""Exact rules give the same text: which of them acts by default needs no account."""


class Dialect(ABC):
    """One engine's way of writing. `read_version` is the version whose source or documents the dialect was made from;
    `version` None stands for it. `known_versions` is a range as pip writes it."""

    engine: str
    title: str
    read_version: str
    known_versions: str
    source: Source
    writer: type[Writer]

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        """Reads a command line, a JSON object, a YAML file: whatever this engine takes.

        `read` gives the files that the text names; without it they stay unread, and a remark says so.
        Raises DP111 with line and column for text that it does not understand, DP112 for a version outside its range.
        """
        found = Gathering(self.engine, self.goes_by(version), self.source, asked=version)
        self.gather(Place(self.engine, text), found, read)
        return found.parsed()

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        """Writes `deployment` for this engine, whatever engine it came from. Raises DP112, and DP104 for a description
        that contradicts itself.

        What is unsaid stays unsaid, unless another engine's default acts in it (`defaults` of the dialect of
        `deployment.engine`): what acts on drafting is written out, with a note; what acts on the service is noted.
        """
        return self.writer(deployment, self, self.goes_by(version)).rendered()

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        """What acts in this engine for fields that `deployment` leaves unsaid."""
        self.goes_by(version)
        return tuple(
            Default(setting=setting, value=value, reason=reason, source=self.source)
            for setting, value, reason in self.acting(deployment)
            if setting != "speculation.depth" or deployment.speculation.levels is None
        )

    def goes_by(self, version: str | None) -> str:
        """The version whose rules hold. Raises DP112 for one outside the known range."""
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        if version is None:
            return self.read_version
        try:
            inside = SpecifierSet(self.known_versions).contains(Version(version), prereleases=True)
        except InvalidVersion:
            inside = False
        if not inside:
            raise DraftproofError(
                "DP112",
                "version",
                version,
                f"a version of {self.title} in {self.known_versions}",
                f"Leave the version out to go by {self.read_version}, and let the engine itself confirm the result.",
            )
        return version

    @abstractmethod
    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        """Adds to `found` what the text says. Raises DP111."""

    @abstractmethod
    def acting(self, deployment: Deployment) -> Iterable[tuple[str, Value, str]]:
        """Setting, value and reason of each default; None as value: the text alone does not tell it."""


class Writer(ABC):
    """One rendering of a deployment: `words` of a command and `config`, the keys of an object or a file, come together.
    `own`: the deployment is this engine's, so that nothing unsaid needs writing out."""

    why_not_here: Mapping[str, str] = {}
    """Field of a speculation → why this engine does not have it."""
    maps_vocabularies = False
    """Whether a drafter of another vocabulary is taken as it is."""

    def __init__(self, deployment: Deployment, dialect: Dialect, version: str) -> None:
        self.deployment, self.dialect, self.version = deployment, dialect, version
        self.method = deployment.speculation.method
        self.own = deployment.engine == dialect.engine
        self.defaults = () if self.own else tuple(_acting_elsewhere(deployment, dialect))
        self.account = Account(deployment, dialect.title, self.defaults)
        self.words: list[str] = []
        self.config: dict[str, Any] = {}

    def rendered(self) -> Rendered:
        artifacts = self.write()
        other = "speculation.different_vocabulary"
        if self.account.value(other) and self.method in MODELS and not self.maps_vocabularies:
            self.account.impossible(
                other, f"{self.dialect.title} takes drafters of the target's vocabulary alone"
            )
        self.leave()
        if self.method != "none" and not self.account.has_impossible:
            for item in self.defaults:
                if not item.value or item.setting in _ALIKE or self.account.is_noted(item.setting):
                    continue
                drafts = item.setting.startswith("speculation.")
                own = f"{self.dialect.title} goes by its own default"
                self.account.dropped(item.setting, self.why_unsaid(item.setting) if drafts else own)
        image = f"extras.{self.deployment.engine}.image"
        if self.account.is_said(image) and not self.account.is_noted(image):
            name = str(self.account.value(image))
            if any(name in part.text for part in artifacts):
                self.account.kept(image, name)
        notes = self.account.finish()
        return Rendered(artifacts=() if self.account.has_impossible else tuple(artifacts), notes=notes)

    @abstractmethod
    def write(self) -> Sequence[Artifact]:
        """Puts down what can be said, with a note for each setting; what comes of it if a note says impossible is of
        no use to anybody."""

    def name(self, path: str, after: str) -> None:
        """Notes a model's name; what another engine loads is not always what this one can."""
        name, engine = str(self.account.value(path)), self.deployment.engine
        reason = None if self.own else self.about_name(name)
        if reason is None and not self.own and engine == "openvino":
            reason = "a directory in OpenVINO's format: name the checkpoint that it was made of"
        elif reason is None and not self.own and engine == "fireworks" and name.startswith("accounts/"):
            reason = "a resource of Fireworks: name the checkpoint itself"
        if reason is None:
            self.account.kept(path, after)
        else:
            self.account.converted(path, after, reason)

    def about_name(self, name: str) -> str | None:
        """What has to be done before this engine loads another engine's model, or None."""
        if name.lower().endswith(".gguf"):
            return (
                f"a GGUF file: where {self.dialect.title} reads none, name the checkpoint that it was made of"
            )
        return None

    def leave(self) -> None:
        """Notes as dropped what was not written about speculation, with the reason."""
        for path in self.account.under("speculation"):
            if not self.account.is_noted(path):
                self.account.dropped(path, self.why_unsaid(path))

    def why_unsaid(self, path: str) -> str:
        root, _, name = path.partition(".")
        field = name.partition(".")[0]
        if root != "speculation" or field == "extras":
            return self.account.why_unsaid(path)
        if self.method == "none":
            return "nothing is drafted"
        if field in self.why_not_here:
            return self.why_not_here[field]
        if self.account.has_impossible:
            return "not written, for the configuration as a whole is impossible"
        return f"method {self.method} of {self.dialect.title} has no such setting"

    def alone(self, part: Speculation) -> Self:
        """A writer for one part of a cascade."""
        engine = self.deployment.engine
        return type(self)(Deployment(engine=engine, speculation=part), self.dialect, self.version)

    def changes(self, number: int) -> list[str]:
        """What is not kept of this part, the `number`th of a cascade."""
        self.leave()
        return [
            f"part {number}, {note.setting.removeprefix('speculation.')}: {note.reason}"
            for note in self.account.finish()
            if note.kind is not NoteKind.KEPT
        ]


def _acting_elsewhere(deployment: Deployment, target: Dialect) -> Iterator[Default]:
    """What the deployment's own engine takes for what is unsaid, where `target`, left to itself, would do something
    else, or where nobody can tell."""
    from draftproof.configs.registry import DIALECTS, dialect

    if deployment.engine not in DIALECTS:
        return
    own = {item.setting: item.value for item in target.defaults(deployment) if item.value is not None}
    acting = dialect(deployment.engine).defaults(deployment)
    differing = {
        item.setting
        for item in acting
        if item.value is None or item.setting not in own or own[item.setting] != item.value
    }
    if differing & _TOGETHER:
        differing |= _TOGETHER
    yield from (item for item in acting if item.setting in differing)
