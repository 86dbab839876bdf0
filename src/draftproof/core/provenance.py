"""The birth certificate of a number: which code, which machine, which command, when.

Called by everything that writes a result. Reads the operating system's own description of the machine and the
metadata of installed packages; imports none of them, so it costs milliseconds.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

PACKAGES = ("draftproof", "torch", "numpy", "safetensors", "gguf", "tokenizers", "jinja2")

_FEATURES_THAT_MATTER = (
    "avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx_vnni",
    "amx_tile", "amx_bf16", "amx_int8", "asimd", "asimddp", "bf16", "i8mm", "sve",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine. `num_cores` are those that this process may use; features those that decide kernels."""

    cpu: str
    num_cores: int
    features: tuple[str, ...]
    memory_bytes: int | None
    architecture: str

    @property
    def native_bfloat16(self) -> bool:
        """Whether the processor multiplies bfloat16 itself (AVX512-BF16, AMX, Arm BF16)."""
        return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(self.features))


def hardware(cpuinfo: Path = Path("/proc/cpuinfo"), meminfo: Path = Path("/proc/meminfo")) -> Hardware:
    """Reads the two files of a Linux kernel; where they are missing, says what Python knows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cpu = _fields(cpuinfo)
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    total = _fields(meminfo).get("MemTotal", "").removesuffix(" kB")
    return Hardware(
        cpu=cpu.get("model name") or platform.processor() or "unknown",
        num_cores=cores,
        features=tuple(name for name in _FEATURES_THAT_MATTER if name in flags),
        memory_bytes=int(total) * 1024 if total.isdigit() else None,
        architecture=platform.machine(),
    )


def package_versions() -> dict[str, str | None]:
    """Installed versions by distribution name; None for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def birth_certificate(
    argv: Sequence[str], seeds: Mapping[str, int], settings: Mapping[str, object]
) -> dict[str, object]:
    """What a reader needs to repeat a measurement, as plain JSON values."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "argv": list(argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": package_versions(),
        "hardware": asdict(hardware()),
        "seeds": dict(seeds),
        "settings": dict(settings),
        "environment": {
            name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ
        },
    }


def _fields(path: Path) -> dict[str, str]:
    """`key : value` lines up to the first processor's end; empty where the system has no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree that this package runs from (`-dirty` when changed), or None."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def command_line() -> list[str]:
    """This process's own arguments, the program by its name."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]
