"""The case that rules judge: a deployment, what its dialect remarked, both checkpoints, and what requests ask for.

Made by `check`, by our engine and by tests. Parts that are not at hand are None; a rule that asks for one is ended
with the reason, so that no rule has to guess and none is silently skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.version import Version

from draftproof.checkpoints.view import CheckpointView, TensorInfo
from draftproof.configs.engines.base import Remark
from draftproof.configs.own import own_key, variable
from draftproof.configs.reading.start import IN_A_VARIABLE
from draftproof.configs.rules.rule import MissingError
from draftproof.configs.rules.versions import READ, TITLES, is_within, parse_version
from draftproof.configs.speculation import Deployment, Method, Speculation, Value
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.checkpoints.geometry import Geometry
    from draftproof.checkpoints.heads import Drafting
    from draftproof.checkpoints.vocabulary import Vocabulary, VocabularyFit

CHARS_PER_TOKEN = 4
"""A rough rule for English text, for prompts whose tokens were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What requests ask for. `parameters`: name → how many requests set it to something that acts (0: the user
    requires it, and no request was seen). `prompt_chars`: of each request's prompt or messages."""

    num_requests: int = 0
    parameters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    prompt_chars: tuple[int, ...] = ()

    def uses(self, parameter: str) -> str:
        """In words, how often a parameter is used."""
        count = self.parameters.get(parameter, 0)
        return f"{count} of {self.num_requests} requests" if count else "required"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`traffic` None: nothing is known of the requests."""

    deployment: Deployment
    remarks: tuple[Remark, ...] = ()
    target_view: CheckpointView | None = None
    drafter_view: CheckpointView | None = None
    traffic: Traffic | None = None
    absent: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Why a part is None: "target" or "drafter" → in words."""
    is_files_alone: bool = False
    """Without a configuration: what could be made of the files counts."""

    @property
    def engine(self) -> str:
        return self.deployment.engine

    @property
    def title(self) -> str:
        """The engine as sentences call it."""
        return TITLES.get(self.engine, self.engine)

    @property
    def speculation(self) -> Speculation:
        return self.deployment.speculation

    @property
    def method(self) -> Method:
        return self.deployment.speculation.method

    @cached_property
    def version(self) -> Version | None:
        """The version to judge by: the one named, else the one read; None for engines without versions."""
        written = self.deployment.version or READ.get(self.engine)
        return None if written is None else parse_version(self.engine, written)

    def is_within(self, versions: str) -> bool:
        """Whether the version lies in a range; an engine without versions lies in every one."""
        return self.version is None or is_within(self.version, versions)

    @property
    def target(self) -> CheckpointView:
        if self.target_view is None:
            raise MissingError(self.absent.get("target", "the target's files are not at hand"))
        return self.target_view

    @property
    def drafter(self) -> CheckpointView:
        if self.drafter_view is None:
            raise MissingError(self.absent.get("drafter", "the drafter's files are not at hand"))
        return self.drafter_view

    @property
    def has_drafter(self) -> bool:
        """Whether there is a checkpoint beside the target's, at hand or not."""
        return self.drafter_view is not None or self.speculation.drafter is not None

    @cached_property
    def drafting(self) -> Drafting:
        """What kind of drafter the drafter's checkpoint is."""
        from draftproof.checkpoints.heads import identify

        return identify(self.drafter)

    @cached_property
    def has_equal_tokenizer_files(self) -> bool:
        ours, theirs = self.target.tokenizer_digest(), self.drafter.tokenizer_digest()
        return ours is not None and ours == theirs

    @cached_property
    def has_same_tokenizer(self) -> bool:
        """Whether every token of either has the same id in both; equal files need no look inside."""
        return self.has_equal_tokenizer_files or (self.fit.same_ids and self.fit.overlap == 1.0)

    @cached_property
    def fit(self) -> VocabularyFit:
        from draftproof.checkpoints.vocabulary import compare

        return compare(vocabulary_of(self.target, "target"), vocabulary_of(self.drafter, "drafter"))

    @cached_property
    def target_geometry(self) -> Geometry:
        return _geometry(self.target, "target")

    @cached_property
    def drafter_geometry(self) -> Geometry:
        return _geometry(self.drafter, "drafter")

    def tensors(self, view: CheckpointView, whose: str) -> Mapping[str, TensorInfo]:
        if view.tensors is None:
            raise MissingError(
                f"the {whose}'s tensor shapes: {'; '.join(view.remarks) or 'no weights at hand'}"
            )
        return view.tensors

    def names(self, view: CheckpointView, whose: str) -> frozenset[str]:
        """Names of all tensors."""
        if view.tensor_names is None:
            raise MissingError(
                f"the {whose}'s tensor names: {'; '.join(view.remarks) or 'no weights at hand'}"
            )
        return view.tensor_names

    def whole(self, view: CheckpointView, key: str, whose: str) -> int:
        """A whole number of the language model's configuration."""
        found = whole(view.language_config, key)
        if found is None:
            raise MissingError(f"{key} in the {whose}'s configuration")
        return found

    def extra(self, key: str) -> Value:
        """A key of the engine's own, wherever the dialect put it and however dashes are written; None if unsaid."""
        found = own_key(self.deployment, key)
        if found is None:
            return None
        if found.written is not None:
            self._known(*found.written)
        return found.value

    def is_inferred(self, setting: str) -> bool:
        """Whether the dialect says that the engine deduced the setting, because the text does not give it."""
        wanted = setting.rpartition(".")[2]
        return any(
            remark.effect == "inferred" and remark.setting.rpartition(".")[2] == wanted
            for remark in self.remarks
        )

    def environment(self, name: str) -> str | None:
        """A variable that stands before the command."""
        value = variable(self.deployment, name)
        return None if value is None else self._known(name, value)

    def _known(self, setting: str, value: str) -> str:
        """`value`, unless the text has it in a variable."""
        if any(
            remark.setting == setting and remark.found.endswith(value) and remark.reason == IN_A_VARIABLE
            for remark in self.remarks
        ):
            raise MissingError(f"the value of {setting}: {value} is a variable")
        return value

    @property
    def asks_rejection_sampling(self) -> bool:
        """Where it is not the default: SGLang draws its drafts for it, TensorRT-LLM names it."""
        said = {
            "sglang": self.speculation.draft_sampling == "probabilistic"
            or (self.speculation.verification == "block" and self.method not in ("dflash", "dspark")),
            "trtllm": self.speculation.verification == "standard",
        }
        return said.get(self.engine, False) or self.is_on("use_rejection_sampling")

    def size(self, key: str) -> int:
        """A number of ranks of the engine's own; 1 where it is unsaid."""
        value = self.extra(key)
        return int(value) if isinstance(value, int | str) and str(value).isdecimal() else 1

    def is_on(self, key: str) -> bool:
        """Whether a switch of the engine's own is set."""
        return self.extra(key) not in (None, False, 0, "0", "", "false", "False")


def _geometry(view: CheckpointView, whose: str) -> Geometry:
    from draftproof.checkpoints.geometry import geometry

    try:
        return geometry(view)
    except DraftproofError as error:
        if error.code not in ("DP403", "DP406"):
            raise
        raise MissingError(f"the {whose}'s size: {error.field} is {error.found}") from None


def vocabulary_of(view: CheckpointView, whose: str) -> Vocabulary:
    found = view.vocabulary()
    if found is None:
        raise MissingError(f"the {whose}'s tokens: {view.tokenizer}")
    return found


_LARGEST = 1 << 53
"""Of a configuration's numbers; beyond it a float does not tell neighbours apart, and far beyond it overflows."""


def whole(config: Mapping[str, object], key: str) -> int | None:
    """A whole number of a configuration; None where it is absent, of another type or longer than any is."""
    value = real(config, key)
    return value if isinstance(value, int) else None


def real(config: Mapping[str, object], key: str) -> float | None:
    """The same of any finite number."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_LARGEST <= value <= _LARGEST else None
