"""Birth certificates: the machine is read from the system's files, and missing files are no error."""

import json
from pathlib import Path

import pytest

from draftproof.core.provenance import birth_certificate, hardware, package_versions

X86 = """processor\t: 0
model name\t: Example CPU 9000
flags\t\t: fpu sse avx2 f16c fma avx512f avx512_bf16

processor\t: 1
model name\t: Another
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp bf16 i8mm\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("text", "features", "native"),
    [
        (X86, ("avx2", "f16c", "fma", "avx512f", "avx512_bf16"), True),
        (X86.replace(" avx512_bf16", ""), ("avx2", "f16c", "fma", "avx512f"), False),
        (ARM, ("asimd", "asimddp", "bf16", "i8mm"), True),
    ],
)
def test_reads_features_and_whether_bfloat16_is_native(
    tmp_path: Path, text: str, features: tuple[str, ...], native: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 5 kB\n")
    machine = hardware(tmp_path / "cpuinfo", tmp_path / "meminfo")
    assert set(machine.features) == set(features)
    assert machine.native_bfloat16 is native
    assert machine.memory_bytes == 2048 * 1024
    assert machine.num_cores >= 1


def test_a_system_without_these_files_is_described_as_far_as_python_can(tmp_path: Path) -> None:
    machine = hardware(tmp_path / "none", tmp_path / "none")
    assert machine.features == ()
    assert machine.memory_bytes is None
    assert machine.cpu


def test_the_certificate_is_json_and_names_code_command_machine_and_time() -> None:
    certificate = birth_certificate(["draftproof", "demo"], {"prompts": 3}, {"max_tokens": 96})
    parsed = json.loads(json.dumps(certificate))
    assert parsed["argv"] == ["draftproof", "demo"]
    assert parsed["seeds"] == {"prompts": 3}
    assert parsed["settings"] == {"max_tokens": 96}
    assert parsed["time"].endswith("+00:00")
    assert parsed["hardware"]["cpu"]
    assert {"commit", "python", "platform", "versions"} <= set(parsed)


def test_versions_say_what_is_not_installed() -> None:
    versions = package_versions()
    assert versions["numpy"]
    assert "torch" in versions
