"""Sees what is there now and tells what has drifted from a deployment record. Called by `draftproof check --lock`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from draftproof.checkpoints.folder import sha256_of_file
from draftproof.checkpoints.hub_settings import without_credentials
from draftproof.checkpoints.view import open_view
from draftproof.configs.lock.drift import Now, drift
from draftproof.configs.lock.live import look
from draftproof.configs.lock.making import installed_version, record_checkpoint
from draftproof.configs.lock.record import CheckpointRecord, DeploymentRecord, read_record
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Finding
from draftproof.core.provenance import hardware

_NOT_HERE = ("DP401", "DP411", "DP412", "DP414")
_HERE = ("localhost", "127.0.0.1", "::1")


def check_lock(
    path: Path,
    url: str | None = None,
    *,
    api_key: str | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Finding, ...]:
    """What differs from the record at `path`, worst first.

    Checkpoints are read where the record says that they lie. With `url` the running endpoint is asked for its model,
    version and settings; engine package and hardware of this machine count only if the endpoint is on it.

    Raises DP002 or DP431 for the file, DP411 or DP412 for an endpoint that does not answer, DP402 for broken files.
    """
    lock = read_record(path)
    hidden: dict[str, str] = {}
    is_here = url is None or urlsplit(url).hostname in _HERE
    target = _checkpoint("the target's files", lock.target, hidden, progress)
    drafter = _checkpoint("the drafter's files", lock.drafter, hidden, progress)
    if not is_here:
        hidden["hardware"] = "an endpoint does not show it"
    if lock.target is None:
        hidden["the target"] = "the record has none"
    version = installed_version(lock.engine.name) if url is None else None
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
            settings=tuple(live.settings),
            where=without_credentials(url),
            hidden={**hidden, **live.hidden},
        ),
    )


def _checkpoint(
    part: str, then: CheckpointRecord | None, hidden: dict[str, str], progress: Callable[[str], None]
) -> CheckpointRecord | None:
    if then is None:
        return None
    try:
        return record_checkpoint(open_view(then.reference), progress)
    except DraftproofError as error:
        if error.code not in _NOT_HERE:
            raise
        hidden[part] = f"{error.field}: {error.found}"
        return None


def _verdict(lock: DeploymentRecord, hidden: dict[str, str]) -> str | None:
    if lock.verdict is None:
        return None
    try:
        path = Path(lock.verdict.path)
        return sha256_of_file(path) if path.is_file() else "no such file"
    except (OSError, ValueError) as error:
        hidden["the measurement"] = str(error)[:200]
        return None
