"""One source, many instruction sets: each gives the bits of scalar code, and all of them the same ones.

`support/native_check.cpp` runs the kernels without Python and prints hashes, so other processors can be emulated.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from draftproof.core.compilation import FLAGS, find_compiler
from draftproof.models import native
from draftproof.models.native.library import SOURCES

CHECK = Path(__file__).parents[2] / "support" / "native_check.cpp"
PLAIN = ("-DDP_WIDE=8", "-DDP_NO_INTRINSICS")
"""No instruction named by us: what a compiler makes of plain vectors."""

NATIVE_VARIANTS = [
    (),  # with AMX, where this machine has it
    ("-DDP_WIDE=16", "-mno-amx-int8"),
    ("-DDP_WIDE=16", "-mno-amx-int8", "-mno-avx512bf16", "-mno-avx512vnni"),
    ("-DDP_WIDE=8",),
    ("-DDP_WIDE=8", "-mno-avx512f"),  # AVX-VNNI, where this machine has it
    ("-DDP_WIDE=8", "-mno-avx512f", "-mno-avxvnni"),  # sums of products in sixteen bits
    ("-DDP_WIDE=4", "-DDP_NO_INTRINSICS"),
]
ARM_VARIANTS = ["-march=armv8.2-a+dotprod", "-march=armv8-a"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not native.status().available, reason=native.status().reason),
]


def compile_check(compiler: str, options: tuple[str, ...], output: Path) -> None:
    ours = [flag for flag in (*FLAGS, *SOURCES.flags) if flag not in ("-O3", "-shared", "-fPIC")]
    if any(option.startswith("-march") for option in options):
        ours = [flag for flag in ours if not flag.startswith(("-march", "-mcpu"))]
    subprocess.run(
        [compiler, *ours, "-O1", *options, f"-I{SOURCES.directory}", str(CHECK), "-o", str(output)],
        check=True,
    )


def run_check(command: list[str], **environment: str) -> tuple[str, dict[str, str]]:
    """The instructions in use, and the hash of each result. Fails where scalar code gives other bits."""
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert result.returncode == 0, [
        line for line in result.stdout.splitlines() if not line.endswith(" equal")
    ]
    lines = [line.rsplit(maxsplit=2) for line in result.stdout.splitlines()]
    return result.stderr.strip(), {name: digest for name, digest, _ in lines}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    program = tmp_path_factory.mktemp("plain") / "check"
    compile_check(find_compiler().path, PLAIN, program)
    _, hashes = run_check([str(program)])
    assert len(hashes) == 11 * 17 * 2 + 4 + 2  # types, numbers of rows, storages; models; types rounded to
    return hashes


def without_bfloat16_sums(hashes: dict[str, str]) -> dict[str, str]:
    """What AMX may not change either: all but floats stored as bfloat16."""
    floats = ("F32 bfloat16", "F16 bfloat16", "BF16 bfloat16", "model bfloat16", "mixture bfloat16")
    return {name: digest for name, digest in hashes.items() if not name.startswith(floats)}


@pytest.mark.parametrize("options", NATIVE_VARIANTS, ids=lambda options: " ".join(options) or "this machine")
def test_other_instructions_give_the_same_bits(
    options: tuple[str, ...], plain: dict[str, str], tmp_path: Path
) -> None:
    if any(option.startswith("-mno-") for option in options) and platform.machine() != "x86_64":
        pytest.skip("an option of x86")
    compile_check(find_compiler().path, options, tmp_path / "check")
    found, hashes = run_check([str(tmp_path / "check")])
    if found.endswith(", AMX"):
        assert without_bfloat16_sums(hashes) == without_bfloat16_sums(plain)
        found, hashes = run_check([str(tmp_path / "check")], DRAFTPROOF_AMX="0")
        assert "DRAFTPROOF_AMX" in found
    assert hashes == plain


@pytest.mark.parametrize("architecture", ARM_VARIANTS)
def test_arm_under_emulation_gives_the_same_bits(
    architecture: str, plain: dict[str, str], tmp_path: Path
) -> None:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip(
            "needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user-static)"
        )
    compile_check(compiler, (architecture, "-static"), tmp_path / "check")
    found, hashes = run_check([emulator, "-cpu", "max", str(tmp_path / "check")])
    assert found.startswith("NEON")
    assert hashes == plain
