"""What differs between a deployment record and what is there now, as findings. Looks at nothing itself.

Called by `checking`. A part that could not be seen is told as such (LOCK-10), never as unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from draftproof.checkpoints.tokenizers.reading import is_tokenizer_file
from draftproof.configs.lock.codes import STATEMENTS
from draftproof.configs.lock.record import CheckpointRecord, DeploymentRecord, plain_name
from draftproof.core.finding import Evidence, Finding, Severity, Source

_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MAX_SHOWN = 20

_TITLES: Mapping[str, str] = MappingProxyType({found.code: found.title for found in STATEMENTS})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that an endpoint or a given configuration tells, beside what the record says."""

    name: str
    recorded: str
    found: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What is there. None: could not be seen, and `hidden` says why (part in words → reason).

    `served` are the names and paths by which an endpoint calls its models, `templates` sha256 of its chat template;
    `settings` holds the settings that could be compared, equal ones too.
    """

    target: CheckpointRecord | None = None
    drafter: CheckpointRecord | None = None
    engine_version: str | None = None
    hardware: Mapping[str, Any] | None = None
    verdict_sha256: str | None = None
    served: tuple[str, ...] | None = None
    template: str | None = None
    settings: tuple[Setting, ...] = ()
    where: str = "this machine"
    hidden: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


def drift(lock: DeploymentRecord, now: Now) -> tuple[Finding, ...]:
    """Every difference, worst first; empty only if all was seen and nothing differs."""
    maker = _Maker(lock)
    findings = [
        *_checkpoint(maker, "LOCK-01", "target", lock.target, now.target),
        *_checkpoint(maker, "LOCK-02", "drafter", lock.drafter, now.drafter),
        *_template(maker, lock, now),
        *_served(maker, lock, now),
        *_settings(maker, now),
        *_version(maker, lock, now),
        *_hardware(maker, lock, now),
        *_verdict(maker, lock, now),
        *(maker.hidden(part, reason) for part, reason in now.hidden.items()),
    ]
    order = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


class _Maker:
    """Findings against one record."""

    def __init__(self, lock: DeploymentRecord) -> None:
        self._lock = lock
        self._source = Source(name="the deployment record", read=lock.created[:10])

    def finding(
        self, code: str, severity: Severity, detail: str, remedy: str, evidence: tuple[Evidence, ...]
    ) -> Finding:
        return Finding(
            code=code,
            severity=severity,
            title=_TITLES[code],
            detail=detail,
            evidence=evidence[:_MAX_SHOWN],
            remedy=remedy,
            source=self._source,
            engine=self._lock.engine.name,
        )

    def hidden(self, part: str, reason: str) -> Finding:
        return self.finding(
            "LOCK-10",
            Severity.INFO,
            f"{part}: {reason}. It may be unchanged or not.",
            "Run the check where this can be seen, for example on the machine that serves.",
            (Evidence(where=part, found="not visible"),),
        )


def _checkpoint(
    maker: _Maker, code: str, whose: str, then: CheckpointRecord | None, now: CheckpointRecord | None
) -> Iterator[Finding]:
    if then is None or now is None:
        return
    differences = [
        Evidence(
            where=now.source,
            key=name,
            found=now.files.get(name, "no such file")[:64],
            expected=then.files.get(name, "no such file")[:64],
        )
        for name in sorted({*then.files, *now.files})
        if then.files.get(name) != now.files.get(name)
    ]
    of_tokenizer = tuple(seen for seen in differences if _decides_text(seen.key))
    others = tuple(seen for seen in differences if not _decides_text(seen.key))
    if others:
        yield maker.finding(
            code,
            Severity.ERROR,
            f"{len(others)} files of the {whose} differ from the record: what was measured then says nothing of it.",
            "Deploy the recorded revision, or measure again and write a new record.",
            others,
        )
    if of_tokenizer:
        yield maker.finding(
            "LOCK-03",
            Severity.ERROR,
            f"{len(of_tokenizer)} tokenizer files of the {whose} differ: other token ids or another prompt text.",
            "Deploy the recorded files, or measure again and write a new record.",
            of_tokenizer,
        )
    if then.revision is not None and now.revision is not None and then.revision != now.revision:
        yield maker.finding(
            "LOCK-04",
            Severity.WARNING,
            f"{then.reference} is at another commit" + ("." if differences else ", with the same files."),
            f"Name the revision in the engine's arguments: {then.revision}.",
            (Evidence(where=now.source, key="revision", found=now.revision, expected=then.revision),),
        )


def _decides_text(name: str | None) -> bool:
    return name is not None and (name in _TEMPLATE_FILES or is_tokenizer_file(name))


def _template(maker: _Maker, lock: DeploymentRecord, now: Now) -> Iterator[Finding]:
    recorded = lock.target.chat_template if lock.target is not None else None
    if now.template is not None and recorded is not None and now.template != recorded:
        yield maker.finding(
            "LOCK-03",
            Severity.ERROR,
            "The endpoint renders prompts with another chat template than the recorded checkpoint has.",
            "Start the engine with the recorded template, or measure again and write a new record.",
            (Evidence(where=now.where, key="chat_template", found=now.template, expected=recorded),),
        )


def _served(maker: _Maker, lock: DeploymentRecord, now: Now) -> Iterator[Finding]:
    if now.served is None or lock.target is None:
        return
    names = lock.names()
    if names.isdisjoint(map(plain_name, now.served)):
        yield maker.finding(
            "LOCK-09",
            Severity.ERROR,
            "None of the names of the served models is that of the record.",
            "Check the address, or write a new record for this deployment.",
            (
                Evidence(
                    where=now.where,
                    key="/v1/models",
                    found=", ".join(now.served)[:300] or "no model",
                    expected=" or ".join(sorted(names))[:300],
                ),
            ),
        )


def _settings(maker: _Maker, now: Now) -> Iterator[Finding]:
    different = [setting for setting in now.settings if setting.recorded != setting.found]
    if different:
        yield maker.finding(
            "LOCK-06",
            Severity.ERROR,
            f"{len(different)} of {len(now.settings)} settings that could be compared differ.",
            "Start the engine with the recorded arguments, or measure again and write a new record.",
            tuple(
                Evidence(
                    where=setting.where,
                    key=setting.name,
                    found=setting.found[:200],
                    expected=setting.recorded[:200],
                )
                for setting in different
            ),
        )


def _version(maker: _Maker, lock: DeploymentRecord, now: Now) -> Iterator[Finding]:
    recorded = lock.engine.version
    if recorded is None or now.engine_version is None or _plain(recorded) == _plain(now.engine_version):
        return
    yield maker.finding(
        "LOCK-05",
        Severity.WARNING,
        "Speed, acceptance and even the text may change between versions of an engine.",
        f"Install {lock.engine.name} {recorded}, or measure again and write a new record.",
        (Evidence(where=now.where, key="version", found=now.engine_version[:100], expected=recorded),),
    )


def _plain(version: str) -> str:
    """b11434-0c1e570, v0.33.0 and 0.33.0+cu129 without what is not the version."""
    plain = version.strip().lower().removeprefix("v")
    if plain.startswith("b") and plain[1:2].isdigit():
        plain = plain[1:].partition("-")[0]
    return plain.partition("+")[0]


def _hardware(maker: _Maker, lock: DeploymentRecord, now: Now) -> Iterator[Finding]:
    if now.hardware is None:
        return
    different = tuple(
        Evidence(
            where=now.where,
            key=f"hardware.{key}",
            found=_shown(now.hardware.get(key)),
            expected=_shown(lock.hardware.get(key)),
        )
        for key in sorted({*lock.hardware, *now.hardware})
        if _shown(lock.hardware.get(key)) != _shown(now.hardware.get(key))
    )
    if different:
        yield maker.finding(
            "LOCK-07",
            Severity.WARNING,
            "Whether speculation pays depends on the machine: a measurement on another one does not carry over.",
            "Measure on this machine and write a new record.",
            different,
        )


def _shown(value: object) -> str:
    """Lists and tuples alike."""
    return (" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))[:300]


def _verdict(maker: _Maker, lock: DeploymentRecord, now: Now) -> Iterator[Finding]:
    if lock.verdict is None or now.verdict_sha256 in (None, lock.verdict.sha256):
        return
    yield maker.finding(
        "LOCK-08",
        Severity.WARNING,
        "The report is not the one on which this deployment was decided.",
        "Find the recorded report, or measure again and write a new record.",
        (
            Evidence(
                where=lock.verdict.path,
                key="sha256",
                found=str(now.verdict_sha256),
                expected=lock.verdict.sha256,
            ),
        ),
    )
