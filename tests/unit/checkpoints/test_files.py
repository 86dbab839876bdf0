"""Which paths are checkpoints, and what links and pickled weights get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftproof.checkpoints.files import detect, member, read_json
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint, write_gguf


def refused(path: Path) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        detect(path)
    return caught.value


def test_formats_are_told_apart(tmp_path: Path) -> None:
    assert detect(write_checkpoint(tmp_path / "directory")) == "safetensors"
    assert detect(write_gguf(tmp_path / "file.gguf")) == "gguf"


def test_what_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing").code == "DP401"
    assert refused(tmp_path).code == "DP401"
    (tmp_path / "notes.txt").write_text("hello")
    assert refused(tmp_path / "notes.txt").code == "DP401"


def test_a_directory_with_one_gguf_model_is_that_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", part_tensors=4)
    (tmp_path / "mmproj-model-f16.gguf").write_bytes(b"")
    assert detect(tmp_path) == "gguf"
    (tmp_path / "other.gguf").write_bytes(b"")
    assert str(path) in refused(tmp_path).remedy


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "weights.pkl"])
def test_pickled_weights_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x02}q\x00.")
    assert refused(tmp_path).code == "DP407"
    assert refused(tmp_path / name).code == "DP407"


@pytest.mark.parametrize("content", [b"PK\x03\x04rest", b"\x80\x02}q\x00.", b"\x80\x04\x95"])
def test_pickled_weights_are_known_by_their_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "weights").write_bytes(content)
    assert refused(tmp_path / "weights").code == "DP407"


def test_pickled_weights_beside_safetensors_do_not_matter(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path) / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    assert detect(tmp_path) == "safetensors"


def test_a_gguf_file_without_the_magic_is_broken(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"<html>not found</html>")
    assert refused(tmp_path / "model.gguf").code == "DP402"


def test_links_may_lead_within_the_directory_and_to_the_hub_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "abc").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    (snapshot / "copy.json").symlink_to("config.json")
    assert read_json(member(snapshot, "config.json") or Path(), 100) == {}
    assert member(snapshot, "copy.json") is not None
    assert member(snapshot, "absent.json") is None


def test_links_may_not_lead_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").symlink_to("../secret")
    with pytest.raises(DraftproofError) as caught:
        member(directory, "config.json")
    assert caught.value.code == "DP402"


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "model.safetensors").mkdir()
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(DraftproofError) as caught:
            member(tmp_path, name)
        assert caught.value.code == "DP402"
    os.mkfifo(tmp_path / "model.gguf")
    assert refused(tmp_path / "model.gguf").code == "DP402"


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff{}", b'{"a":1,"a":2}', b"{}" + b" " * 200])
def test_json_that_is_not_an_object(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DraftproofError) as caught:
        read_json(path, 100)
    assert caught.value.code == "DP402"
