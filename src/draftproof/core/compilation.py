"""Compiles C++ that travels with the package once per machine, keeps it in a per-user cache, and loads it.

Used by the native kernels of models and by look-up. The cache key covers everything that decides the machine code:
sources, compiler, flags and processor. A hash beside the library tells a damaged file, which is then built anew.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from draftproof.core.errors import DraftproofError
from draftproof.core.paths import cache_root

COMPILERS = ("c++", "g++", "clang++")
COMPILE_LIMIT_S = 600
FLAGS = (
    "-std=c++17",
    "-O3",
    "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native",
    "-ffp-contract=off",  # a product and a sum are fused only where the source says so: bits depend on it
    "-fno-math-errno",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
    "-pthread",
)

Signatures = Mapping[str, tuple[object, Sequence[object]]]
"""By function: what it returns and what it takes, as ctypes says it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """One library: `main` in `directory` is compiled, and includes what else it needs from there.

    name   what its file is called, before the key
    flags  besides `FLAGS`
    """

    name: str
    directory: Path
    main: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler found on PATH and the first lines it says of itself."""

    path: str
    version: str


def find_compiler() -> Compiler:
    """The compiler that `CXX` names, or the first of `COMPILERS` on PATH. Raises DraftproofError DP702."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            answer = subprocess.run(
                [path, "--version"], capture_output=True, text=True, check=False, timeout=30, errors="replace"
            )
        except (OSError, subprocess.SubprocessError):
            continue  # on PATH, but no program that answers: as good as none
        if answer.returncode == 0:
            return Compiler(path, answer.stdout.strip())
    raise DraftproofError(
        "DP702",
        "kernels",
        f"no C++ compiler that works ({wanted or ', '.join(COMPILERS)}) on PATH",
        "a C++17 compiler",
        "Install one (on Debian: apt install g++), or use --kernels python.",
    )


def cache_directory() -> Path:
    """Where compiled kernels lie: $DRAFTPROOF_HOME/kernels, else the user's cache directory."""
    return cache_root() / "kernels"


def load(path: Path, signatures: Signatures, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL:
    """The library at `path`, ready to be called. `kind` PyDLL: calls keep the interpreter to themselves.

    Raises DraftproofError DP702.
    """
    try:
        loaded = kind(str(path))
    except OSError as error:
        raise DraftproofError(
            "DP702",
            "kernels",
            f"{path} cannot be loaded: {error}",
            "a library for this machine",
            "Set DRAFTPROOF_HOME to a directory whose file system allows execution, or use --kernels python.",
        ) from error
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def build(sources: Sources) -> Path:
    """Path of the library for this machine, compiled if it is not there yet or damaged (seconds, once).

    Processes that need it at the same time wait for the one that compiles. Raises DraftproofError DP702 without
    a compiler, when it fails (the log is kept and named), or when the cache cannot be written.
    """
    compiler = find_compiler()
    directory = cache_directory()
    try:
        library = directory / f"{sources.name}-{_key(compiler, sources)}.so"
        if _is_intact(library):
            return library
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(library.with_suffix(".lock")):
            if not _is_intact(library):
                _compile(compiler, sources, library)
    except OSError as error:
        raise DraftproofError(
            "DP702",
            "kernels",
            f"{directory}: {error}",
            "a cache directory that can be written",
            "Set DRAFTPROOF_HOME to a directory of yours, or use --kernels python.",
        ) from error
    return library


def _key(compiler: Compiler, sources: Sources) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources.directory.iterdir()):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for part in (
        compiler.path,
        compiler.version,
        sources.main,
        *FLAGS,
        *sources.flags,
        platform.machine(),
        _processor(),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def _processor() -> str:
    """Model and capabilities of the first processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    first, _, _ = info.read_text().partition("\n\n")
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(line for line in first.splitlines() if line.startswith(wanted))


def _hash_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_intact(library: Path) -> bool:
    try:
        expected = _hash_file(library).read_bytes().strip()
        return hashlib.sha256(library.read_bytes()).hexdigest().encode() == expected
    except FileNotFoundError:
        return False


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _compile(compiler: Compiler, sources: Sources, library: Path) -> None:
    """Writes library and hash under temporary names, then moves them: nobody sees a half-written file."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        output = Path(scratch) / library.name
        main = str(sources.directory / sources.main)
        command = [compiler.path, *FLAGS, *sources.flags, main, "-o", str(output)]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMPILE_LIMIT_S,
                errors="replace",
            )
        except subprocess.TimeoutExpired as error:
            raise DraftproofError(
                "DP702",
                "kernels",
                f"{compiler.path} was not done after {COMPILE_LIMIT_S} s",
                "kernels that compile",
                "Try again when the machine is less busy, or use --kernels python.",
            ) from error
        if result.returncode != 0 or not output.exists():
            log = library.with_suffix(".log")
            log.write_text(" ".join(command) + "\n" + result.stdout + result.stderr)
            raise DraftproofError(
                "DP702",
                "kernels",
                f"{compiler.path} failed with status {result.returncode}",
                "kernels that compile",
                f"The compiler's words are in {log}; use --kernels python meanwhile.",
            )
        digest = Path(scratch) / "hash"
        digest.write_text(hashlib.sha256(output.read_bytes()).hexdigest() + "\n")
        digest.replace(_hash_file(library))
        output.replace(library)
