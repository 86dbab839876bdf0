"""What advice consists of: steps with evidence, sizes, thresholds, risks and commands.

Made by the modules that propose, completed by `judged`, ordered by `advising`. Knows no rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from draftproof.configs.speculation import Speculation
from draftproof.core.finding import Finding, Source

Kind = Literal["mtp", "head", "look_up", "prediction", "draft_model", "self", "provider", "none"]


class Standing(StrEnum):
    """try: nothing at hand speaks against it, and something for it. possible: unproven, or not measured. ruled_out: it
    will not work here, or cannot pay."""

    TRY = "try"
    POSSIBLE = "possible"
    RULED_OUT = "ruled_out"

    def at_most(self, other: Standing) -> Standing:
        """The worse of both."""
        order = (Standing.TRY, Standing.POSSIBLE, Standing.RULED_OUT)
        return max(self, other, key=order.index)


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence, and where it is from: None where it follows from what was asked or measured here."""

    text: str
    source: Source | None = None

    def as_dict(self) -> dict[str, object]:
        source = self.source
        return {
            "text": self.text,
            "source": None
            if source is None
            else {"name": source.name, "read": source.read, "url": source.url},
        }


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of one part; `how`: from headers, from the configuration, or from published parameter counts."""

    name: str
    num_bytes: int
    how: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests of `context` tokens that fit at the same time, without and with the step: at most so many where
    something was `not_counted`."""

    context: int
    plain: int
    with_step: int
    not_counted: str | None = None

    def as_dict(self) -> dict[str, int | str | None]:
        return {
            "context": self.context,
            "requests_plain": self.plain,
            "requests": self.with_step,
            "not_counted": self.not_counted,
        }


@dataclass(frozen=True, slots=True)
class Command:
    """`what` it does; `text` may have several lines."""

    what: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One way to speculate, or not to.

    evidence  what speaks for it, or what was found
    against   why not, or what it depends on; what rules it out where `standing` says so
    capacity  the price in concurrent requests, where memory was named and could be planned
    pays_if   the threshold from which it pays, in words; nothing of it was measured
    findings  of the rule base for this configuration
    unjudged  what the rules could not judge, and why
    """

    kind: Kind
    title: str
    standing: Standing
    speculation: Speculation | None = None
    evidence: tuple[Claim, ...] = ()
    against: tuple[Claim, ...] = ()
    risks: tuple[Claim, ...] = ()
    sizes: tuple[Size, ...] = ()
    capacity: Capacity | None = None
    pays_if: str | None = None
    findings: tuple[Finding, ...] = ()
    unjudged: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()

    def as_dict(self) -> dict[str, object]:
        speculation = self.speculation
        drafter = speculation.drafter if speculation else None
        return {
            "kind": self.kind,
            "method": speculation.method if speculation else None,
            "drafter": drafter.name if drafter else None,
            "num_speculative_tokens": speculation.depth if speculation else None,
            "title": self.title,
            "standing": self.standing.value,
            "evidence": [claim.as_dict() for claim in self.evidence],
            "why_not": [claim.as_dict() for claim in self.against],
            "risks": [claim.as_dict() for claim in self.risks],
            "bytes": [
                {"part": size.name, "num_bytes": size.num_bytes, "how": size.how} for size in self.sizes
            ],
            "capacity": self.capacity.as_dict() if self.capacity else None,
            "pays_if": self.pays_if,
            "findings": [finding.as_dict() for finding in self.findings],
            "not_judged": list(self.unjudged),
            "next": [{"what": command.what, "command": command.text} for command in self.commands],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`steps` in the order to try them; those that are ruled out come last. `fix_first`: what to mend before anything
    else. `notes`: what could not be read, what was assumed."""

    steps: tuple[Step, ...]
    fix_first: tuple[Claim, ...] = ()
    notes: tuple[Claim, ...] = field(default=())

    @property
    def first(self) -> Step:
        return self.steps[0]
