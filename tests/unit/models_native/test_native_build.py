"""Compiling and caching of the kernels. A script stands in for the compiler where its product does not matter."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from draftproof.core import compilation
from draftproof.core.compilation import FLAGS, Sources, build, cache_directory, find_compiler
from draftproof.core.errors import DraftproofError
from draftproof.models import native
from draftproof.models.native import library as library_module
from draftproof.models.native.library import SOURCES
from draftproof.proposers import look_up
from support.native_models import SMALL, random_weights

FAKE_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "fake compiler {version}"; exit 0; fi
echo compiled >> "{log}"
sleep {seconds}
{last}
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""


def fake_compiler(directory: Path, version: str = "1", last: str = "", seconds: float = 0.0) -> Path:
    script = directory / f"fake-{version}"
    log = directory / "log"
    script.write_text(FAKE_COMPILER.format(version=version, log=log, last=last, seconds=seconds))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def num_compiled(directory: Path) -> int:
    log = directory / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def use(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(compiler))


def test_compiled_once_and_found_again(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    library = build(SOURCES)
    assert library.read_text() == "library\n"
    assert library.parent == home / "kernels"
    assert build(SOURCES) == library
    assert num_compiled(tmp_path) == 1
    assert not [path for path in library.parent.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    "damage", ["truncated", "changed", "no hash", "other hash", "garbage for a hash", "gone"]
)
def test_a_damaged_library_is_built_anew(
    damage: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    library = build(SOURCES)
    if damage == "truncated":
        library.write_text("lib")
    elif damage == "changed":
        library.write_text("Library\n")
    elif damage == "no hash":
        library.with_suffix(".sha256").unlink()
    elif damage == "other hash":
        library.with_suffix(".sha256").write_text("0" * 64)
    elif damage == "garbage for a hash":
        library.with_suffix(".sha256").write_bytes(bytes(range(128, 192)))
    else:
        library.unlink()
    assert build(SOURCES) == library
    assert library.read_text() == "library\n"
    assert num_compiled(tmp_path) == 2


def test_another_compiler_source_flag_or_processor_is_another_library(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    libraries = {build(SOURCES)}
    monkeypatch.setattr(compilation, "_processor", lambda: "another processor")
    libraries.add(build(SOURCES))
    monkeypatch.setattr(compilation, "FLAGS", (*FLAGS, "-g"))
    libraries.add(build(SOURCES))
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in SOURCES.directory.glob("*.*"):
        (sources / path.name).write_bytes(path.read_bytes())
    (sources / "simd.h").write_text("// changed")
    changed = Sources(SOURCES.name, sources, SOURCES.main)
    libraries.add(build(changed))
    libraries.add(build(replace(changed, flags=("-DOTHER",))))
    libraries.add(build(look_up.SOURCES))
    use(fake_compiler(tmp_path, version="2"), monkeypatch)
    libraries.add(build(SOURCES))
    assert len(libraries) == 7


def test_processes_at_the_same_time_compile_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path, seconds=1.0), monkeypatch)
    program = """
from draftproof.core.compilation import build
from draftproof.models.native.library import SOURCES
print(build(SOURCES))
"""
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)
    ]
    answers = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(answers) == 1
    assert num_compiled(tmp_path) == 1


def test_no_compiler_on_path(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DraftproofError) as caught:
        build(SOURCES)
    assert caught.value.code == "DP702"
    assert "c++, g++, clang++" in caught.value.found
    assert not home.exists()


def test_status_and_model_without_a_compiler(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    library_module.library.cache_clear()
    try:
        found = native.status()
        assert not found.available
        assert "no C++ compiler" in found.reason
        with pytest.raises(DraftproofError) as caught:
            native.NativeModel(SMALL, random_weights(SMALL, torch.float32), torch.float32, 1)
        assert caught.value.code == "DP702"
    finally:
        library_module.library.cache_clear()


def test_a_named_compiler_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DraftproofError, match="no-such-compiler") as caught:
        find_compiler()
    assert caught.value.code == "DP702"


def test_a_compiler_that_fails_leaves_its_words(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path, last='echo "no such header" >&2; exit 1'), monkeypatch)
    with pytest.raises(DraftproofError) as caught:
        build(SOURCES)
    assert caught.value.code == "DP702"
    (log,) = cache_directory().glob("*.log")
    assert str(log) in caught.value.remedy
    assert "no such header" in log.read_text()
    assert not list(cache_directory().glob("*.so"))


def test_sources_that_are_not_there(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    with pytest.raises(DraftproofError) as caught:
        build(replace(SOURCES, directory=tmp_path / "none"))
    assert caught.value.code == "DP702"
    assert str(tmp_path / "none") in caught.value.found


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path / "file"))
    with pytest.raises(DraftproofError) as caught:
        build(SOURCES)
    assert caught.value.code == "DP702"
    assert "DRAFTPROOF_HOME" in caught.value.remedy


def test_a_library_that_cannot_be_loaded(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    with pytest.raises(DraftproofError, match="cannot be loaded") as caught:
        library_module.load(build(SOURCES))
    assert caught.value.code == "DP702"


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTPROOF_HOME", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_directory() == Path("/a/kernels")
    monkeypatch.delenv("DRAFTPROOF_HOME")
    assert cache_directory() == Path("/b/draftproof/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache/draftproof/kernels"


@pytest.mark.parametrize("content", [b"\x7fELF not really", b"#!/bin/sh\nexit 3\n", b"#!/nowhere/at/all\n"])
def test_a_compiler_that_does_not_work_is_none(
    content: bytes, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake-c++"
    fake.write_bytes(content)
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(DraftproofError) as caught:
        build(SOURCES)
    assert caught.value.code == "DP702"
