"""Compiling and caching of the kernels. A script stands in for the compiler where its product does not matter."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.kv.cache import KVCache
from draftproof.models import native
from draftproof.models.native import compilation
from draftproof.models.native import library as library_module
from draftproof.models.native.compilation import FLAGS, SOURCES, build, cache_directory, find_compiler
from support.native_models import MIXED, SMALL, chain, mixed_weights, random_tokens, random_weights

needs_kernels = pytest.mark.skipif(not native.status().available, reason=native.status().reason)

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
    library = build()
    assert library.read_text() == "library\n"
    assert library.parent == home / "kernels"
    assert build() == library
    assert num_compiled(tmp_path) == 1
    assert not [path for path in library.parent.iterdir() if path.is_dir()]


@pytest.mark.parametrize("damage", ["truncated", "changed", "no hash", "other hash", "gone"])
def test_a_damaged_library_is_built_anew(
    damage: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    library = build()
    if damage == "truncated":
        library.write_text("lib")
    elif damage == "changed":
        library.write_text("Library\n")
    elif damage == "no hash":
        library.with_suffix(".sha256").unlink()
    elif damage == "other hash":
        library.with_suffix(".sha256").write_text("0" * 64)
    else:
        library.unlink()
    assert build() == library
    assert library.read_text() == "library\n"
    assert num_compiled(tmp_path) == 2


def test_another_compiler_source_flag_or_processor_is_another_library(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    libraries = {build()}
    monkeypatch.setattr(compilation, "_processor", lambda: "another processor")
    libraries.add(build())
    monkeypatch.setattr(compilation, "FLAGS", (*FLAGS, "-g"))
    libraries.add(build())
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in SOURCES.glob("*.*"):
        (sources / path.name).write_bytes(path.read_bytes())
    (sources / "simd.h").write_text("// changed")
    monkeypatch.setattr(compilation, "SOURCES", sources)
    libraries.add(build())
    use(fake_compiler(tmp_path, version="2"), monkeypatch)
    libraries.add(build())
    assert len(libraries) == 5


def test_processes_at_the_same_time_compile_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(fake_compiler(tmp_path, seconds=1.0), monkeypatch)
    command = [sys.executable, "-c", "from draftproof.models.native.compilation import build; print(build())"]
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
        build()
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
        build()
    assert caught.value.code == "DP702"
    (log,) = cache_directory().glob("*.log")
    assert str(log) in caught.value.remedy
    assert "no such header" in log.read_text()
    assert not list(cache_directory().glob("*.so"))


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path / "file"))
    with pytest.raises(DraftproofError) as caught:
        build()
    assert caught.value.code == "DP702"
    assert "DRAFTPROOF_HOME" in caught.value.remedy


def test_a_library_that_cannot_be_loaded(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(fake_compiler(tmp_path), monkeypatch)
    with pytest.raises(DraftproofError, match="cannot be loaded") as caught:
        library_module.load(build())
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


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("-DDP_WIDE=16",),
        ("-DDP_WIDE=4", "-DDP_NO_INTRINSICS"),
        ("-DDP_WIDE=8", "-mno-avx512f"),  # sums of products in sixteen bits
        ("-DDP_WIDE=16", "-mno-avx512vnni"),
    ],
)
def test_other_vector_widths_give_the_same_bits(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide and narrow machines' code, made of this machine's vectors: slow, but the same layouts and loops."""
    if any(option.startswith("-mno-") for option in options) and platform.machine() != "x86_64":
        pytest.skip("an option of x86")
    config = SMALL
    weights = random_weights(config, torch.bfloat16)
    batch = chain(random_tokens(45, config.vocab_size, 1), 0, [1, 0])
    expected = native.NativeModel(config, weights, torch.bfloat16, 2).forward(batch, _cache())
    quantized = _logits_of_all_types()
    output = tmp_path / "kernels.so"
    flags = [flag for flag in FLAGS if flag != "-O3"] + ["-O1", *options]
    command = [find_compiler().path, *flags, str(SOURCES / "draftproof.cpp"), "-o", str(output)]
    subprocess.run(command, check=True)
    loaded = library_module.load(output)
    monkeypatch.setattr("draftproof.models.native.model.library", lambda: loaded)
    assert loaded.dp_panel_channels() == 2 * int(options[0].partition("=")[2])
    model = native.NativeModel(config, weights, torch.bfloat16, 2)
    assert torch.equal(model.forward(batch, _cache()), expected)
    assert torch.equal(model.forward_reference(batch, _cache()), expected)
    assert torch.equal(_logits_of_all_types(), quantized)


def _logits_of_all_types() -> Tensor:
    model = native.NativeModel(MIXED, mixed_weights(MIXED, torch.bfloat16), torch.bfloat16, 2)
    return model.forward(chain(random_tokens(45, MIXED.vocab_size, 1), 0, [1, 0]), model.new_cache(2))


def _cache() -> KVCache:
    return KVCache(SMALL.num_layers, 4, SMALL.num_kv_heads, SMALL.head_dim, torch.bfloat16)


@pytest.mark.parametrize("content", [b"\x7fELF not really", b"#!/bin/sh\nexit 3\n", b"#!/nowhere/at/all\n"])
def test_a_compiler_that_does_not_work_is_none(
    content: bytes, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake-c++"
    fake.write_bytes(content)
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(DraftproofError) as caught:
        build()
    assert caught.value.code == "DP702"
