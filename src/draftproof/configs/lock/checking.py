"""Sees what is there now and tells what has drifted from a deployment record. Called by `draftproof check --lock`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from draftproof.checkpoints.folder import sha256_of_file
from draftproof.checkpoints.hub_settings import without_credentials
from draftproof.checkpoints.view import open_view
from draftproof.configs.lock.drift import Now, Setting, drift
from draftproof.configs.lock.live import look
from draftproof.configs.lock.making import installed_version, plain, record_checkpoint
from draftproof.configs.lock.record import CheckpointRecord, DeploymentRecord, read_record
from draftproof.configs.speculation import Deployment
from draftproof.core.errors import DraftproofError, named_by
from draftproof.core.finding import Finding
from draftproof.core.provenance import hardware

_NOT_HERE = ("DP401", "DP411", "DP412", "DP414")
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user names to be compared: where the checkpoints lie now, and the configuration that is to run."""

    target: str | None = None
    drafter: str | None = None
    deployment: Deployment | None = None


def check_lock(
    path: Path,
    url: str | None = None,
    given: Given = Given(),  # nothing in it can be changed
    *,
    api_key: str | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Finding, ...]:
    """What differs from the record at `path`, worst first.

    Checkpoints are read where `given` says that they lie, else where the record does. With `url` the running endpoint
    is asked for its model, version and settings; engine package and hardware of this machine count only if the
    endpoint is on it.

    Raises DP002 or DP431 for the file, DP411 or DP412 for an endpoint that does not answer, DP402 for broken files,
    DP001 for a checkpoint that the record does not have, and DP401 for one that is given and not there.
    """
    lock = read_record(path)
    hidden: dict[str, str] = {}
    is_here = url is None or urlsplit(url).hostname in _HERE
    target = _checkpoint("target", lock.target, given.target, hidden, progress)
    drafter = _checkpoint("drafter", lock.drafter, given.drafter, hidden, progress)
    named = given.deployment.version if given.deployment is not None else None
    settings = () if given.deployment is None else tuple(_settings(lock, given.deployment))
    if not is_here:
        hidden["hardware"] = "an endpoint does not show it"
    if lock.target is None:
        hidden["the target"] = "the record has none"
    version = named or (installed_version(lock.engine.name) if url is None else None)
    if lock.engine.version is None:
        hidden["engine version"] = "the record has none"
    elif version is None and url is None:
        hidden["engine version"] = f"no package of {lock.engine.name} is installed in this Python"
    if url is None:
        hidden["the running engine"] = "no address was given"
        return drift(
            lock,
            Now(
                target=target,
                drafter=drafter,
                engine_version=version,
                hardware=asdict(hardware()),
                verdict_sha256=_verdict(lock, hidden),
                settings=settings,
                hidden=hidden,
            ),
        )
    live = look(url, lock, api_key)
    return drift(
        lock,
        Now(
            target=target,
            drafter=drafter,
            engine_version=live.version,
            hardware=asdict(hardware()) if is_here else None,
            verdict_sha256=_verdict(lock, hidden),
            served=live.served,
            template=live.template,
            settings=(*settings, *live.settings),
            where=without_credentials(url),
            hidden={**hidden, **live.hidden},
        ),
    )


def _checkpoint(
    whose: str,
    then: CheckpointRecord | None,
    given: str | None,
    hidden: dict[str, str],
    progress: Callable[[str], None],
) -> CheckpointRecord | None:
    argument = "TARGET" if whose == "target" else "--draft"
    if given is not None and then is None:
        raise DraftproofError(
            "DP001",
            argument,
            f"{given[:80]}, and the record has no {whose}",
            "what the record has",
            "Leave it out, or write a new record.",
        )
    if then is None:
        return None
    try:
        with named_by(argument):
            view = open_view(given or then.reference)
        return record_checkpoint(view, progress)
    except DraftproofError as error:
        if error.code not in _NOT_HERE or given is not None:
            raise
        hidden[f"the {whose}'s files"] = f"{error.field}: {error.found}"
        return None


def _settings(lock: DeploymentRecord, deployment: Deployment) -> Iterator[Setting]:
    """What either says of the deployment, both written as records write it."""
    then, now = (dict(_leaves(found)) for found in (lock.deployment, plain(deployment)))
    named_by_arguments = {
        name
        for name in now
        if name not in then
        and (name in ("target.name", "speculation.drafter.name") or name.endswith(".image"))
    }
    for name in sorted({*then, *now} - {"version"} - named_by_arguments):
        yield Setting(
            name, then.get(name, "not set"), now.get(name, "not set"), "the configuration that was given"
        )


def _leaves(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _leaves(part, f"{before}{key}.")
        elif not key.endswith(".launcher"):  # of what stands before the engine the image counts
            said = _settings_of(part) if key == "rest" else part
            yield f"{before}{key}", json.dumps(said, sort_keys=True)


_ADDRESS = ("--host", "--port", "--uds", "--api-key", "--ssl-")
"""Where a server listens and whom it lets in changes nothing of what was measured."""


def _settings_of(words: Sequence[str]) -> list[str]:
    """Flags with their values in one order: two that are the same stand as they stood."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not groups:
            name, equals, value = word.partition("=")
            groups.append([name, value] if equals else [name])
        else:
            groups[-1].append(word)
    kept = [group for group in groups if not group[0].startswith(_ADDRESS)]
    return [word for group in sorted(kept, key=lambda group: group[0]) for word in group]


def _verdict(lock: DeploymentRecord, hidden: dict[str, str]) -> str | None:
    if lock.verdict is None:
        return None
    try:
        path = Path(lock.verdict.path)
        return sha256_of_file(path) if path.is_file() else "no such file"
    except (OSError, ValueError) as error:
        hidden["the measurement"] = str(error)[:200]
        return None
