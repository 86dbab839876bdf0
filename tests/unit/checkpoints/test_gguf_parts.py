"""Split GGUF models: every part leads to the whole, and parts that do not belong together are told."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import open_checkpoint, read_gguf
from draftproof.checkpoints.gguf_naming import models_among, quantisation_of
from draftproof.checkpoints.gguf_parts import MAX_PARTS
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from draftproof.models.loading import load_model, load_weights
from support.checkpoints import write_gguf

SMALL = {"layers": 1, "vocab": 300}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of three parts, in a directory of their own."""
    return write_gguf(
        tmp_path_factory.mktemp("split") / "model-q8_0.gguf", types="Q8_0", part_tensors=5, **SMALL
    )


@pytest.fixture
def parts(sound: Path, tmp_path: Path) -> list[Path]:
    return sorted(Path(shutil.copytree(sound.parent, tmp_path / "model")).iterdir())


def refused(path: Path) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        open_view(str(path))
    with pytest.raises(DraftproofError) as loading:
        open_checkpoint(path)
    assert str(loading.value) == str(caught.value)
    return caught.value


def rewrite(path: Path, changes: dict[str, int | None]) -> None:
    """Numbers of `split.*` keys in place; None takes the key away, by another name of the same length."""
    content = bytearray(path.read_bytes())
    for key, value in changes.items():
        start = content.index(key.encode())
        end = start + len(key)
        if value is None:
            content[start:end] = b"x" * len(key)
            continue
        (kind,) = struct.unpack_from("<I", content, end)
        struct.pack_into({2: "<H", 5: "<i"}[kind], content, end + 4, value)
    path.write_bytes(content)


def test_every_part_and_the_directory_lead_to_the_whole(parts: list[Path], tmp_path: Path) -> None:
    assert len(parts) == 3
    whole = open_view(str(write_gguf(tmp_path / "whole.gguf", types="Q8_0", **SMALL)))
    assert whole.tensors is not None
    for reference in (*parts, parts[0].parent):
        view = open_view(str(reference))
        assert view.tensors is not None
        assert {name: (info.dtype, info.shape) for name, info in view.tensors.items()} == {
            name: (info.dtype, info.shape) for name, info in whole.tensors.items()
        }
        assert {info.where for info in view.tensors.values()} == view.files == {part.name for part in parts}
        assert view.vocabulary() == whole.vocabulary()
        assert view.language_config == whole.language_config
        assert list(view.hashes()) == [part.name for part in parts]
        assert any("first part" in remark for remark in view.remarks) == (reference in parts[1:])


def test_values_come_from_the_part_that_holds_them(sound: Path) -> None:
    """Against the library, byte by byte."""
    file = read_gguf(sound)
    for part, path in enumerate(file.paths):
        for theirs in gguf.GGUFReader(path).tensors:
            ours = file.tensors[theirs.name]
            content = path.read_bytes()[ours.offset : ours.offset + ours.num_bytes]
            assert (ours.part, content) == (part, theirs.data.tobytes())


def test_the_engine_loads_split_models(sound: Path, tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", types="Q8_0", **SMALL)
    for path in (sound, sound.parent):
        loaded, expected = load_model(path), load_model(whole)
        assert loaded.tokenizer.encode("def add") == expected.tokenizer.encode("def add")
        assert loaded.weights_bytes == expected.weights_bytes
        _, ours = load_weights(open_checkpoint(path))
        _, theirs = load_weights(open_checkpoint(whole))
        assert set(ours) == set(theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_missing_parts_are_named(parts: list[Path]) -> None:
    parts[1].unlink()
    for reference in (parts[0], parts[2], parts[0].parent):
        error = refused(reference)
        assert (error.code, parts[1].name in error.found) == ("DP401", True)


@pytest.mark.parametrize(
    ("part", "changes", "where"),
    [
        (0, {"split.count": 5}, 0),
        (0, {"split.count": 65535}, 0),
        (0, {"split.no": 1}, 0),
        (1, {"split.no": 0}, 1),
        (1, {"split.no": None}, 1),
        (2, {"split.count": 2}, 2),
        (1, {"split.count": 0}, 1),
        (0, {"split.tensors.count": 99}, 0),
        (0, {"split.tensors.count": -1}, 0),
        (0, {"split.tensors.count": None}, 0),
    ],
    ids=str,
)  # fmt: skip
def test_parts_that_contradict_each_other(
    parts: list[Path], part: int, changes: dict[str, int | None], where: int
) -> None:
    rewrite(parts[part], changes)
    error = refused(parts[0])
    assert (error.code, error.field) == ("DP402", str(parts[where]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: shutil.copy(parts[0], parts[1]),
        lambda parts: parts[1].write_bytes(parts[1].read_bytes()[:-1]),
        lambda parts: parts[1].write_bytes(b""),
        lambda parts: (parts[1].unlink(), parts[1].symlink_to(parts[0].name)),
        lambda parts: (parts[1].unlink(), parts[1].symlink_to("/dev/zero")),
        lambda parts: (parts[1].unlink(), parts[1].mkdir()),
        lambda parts: (parts[1].unlink(), os.mkfifo(parts[1])),
    ],
    ids=["copy", "short", "empty", "first", "device", "directory", "fifo"],
)  # fmt: skip
def test_parts_that_are_none(parts: list[Path], damage: Callable[[list[Path]], Any]) -> None:
    damage(parts)
    assert refused(parts[0]).code == "DP402"


def test_links_in_a_circle(parts: list[Path]) -> None:
    parts[1].unlink()
    parts[1].symlink_to(parts[2].name)
    parts[2].unlink()
    parts[2].symlink_to(parts[1].name)
    assert refused(parts[0]).code == "DP402"


def test_a_tensor_in_two_parts(parts: list[Path]) -> None:
    names = [[tensor.name for tensor in gguf.GGUFReader(part).tensors] for part in parts]
    first, second = next((a, b) for a in names[0] for b in names[1] if len(a) == len(b))
    parts[1].write_bytes(parts[1].read_bytes().replace(second.encode(), first.encode()))
    error = refused(parts[0])
    assert (error.code, first in error.found) == ("DP402", True)


def test_a_part_under_another_name_cannot_find_the_rest(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].parent / "renamed.gguf")
    error = refused(renamed)
    assert (error.code, "--merge" in error.remedy) == ("DP406", True)


def test_a_link_that_the_user_names_may_lead_anywhere(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    single = write_gguf(tmp_path / "files" / "single.gguf", **SMALL)
    link = tmp_path / "links" / "model.gguf"
    link.symlink_to(single)
    assert open_view(str(link)).tensors


def test_promises_of_endless_parts(tmp_path: Path) -> None:
    path = tmp_path / f"m-00001-of-{MAX_PARTS + 1:05}.gguf"
    count = struct.pack("<Q11sIH", 11, b"split.count", 2, MAX_PARTS + 1)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + count)
    assert refused(path).code == "DP402"


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_changed_bytes_of_any_part(sound: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(sound.parent.iterdir())))
    before = path.read_bytes()
    content = bytearray(before)
    for place in data.draw(st.lists(st.integers(0, 600), min_size=1, max_size=6)):
        content[place % len(content)] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    codes = set()
    try:
        open_view(str(sound))
    except DraftproofError as error:
        codes.add(error.code)
    finally:
        path.write_bytes(before)
    assert codes <= {"DP401", "DP402", "DP406"}


def test_which_files_are_models() -> None:
    names = [
        "tiny-Q4_K_M.gguf", "mmproj-F16.gguf", "tiny-imatrix.gguf", "mtp-tiny-Q8_0.gguf", "README.md",
        "BF16/tiny-BF16-00002-of-00002.gguf", "BF16/tiny-BF16-00001-of-00002.gguf", "tiny-bf16-00001-of-00003.gguf",
    ]  # fmt: skip
    found = models_among(names)
    assert found == [
        "BF16/tiny-BF16-00001-of-00002.gguf",
        "tiny-Q4_K_M.gguf",
        "tiny-bf16-00001-of-00003.gguf",
    ]
    assert [quantisation_of(name) for name in found] == ["BF16", "Q4_K_M", "BF16"]
    assert quantisation_of("model.gguf") is None
    assert quantisation_of("tiny.q8_0.gguf") == "Q8_0"


def test_models_in_folders_are_named(sound: Path, tmp_path: Path) -> None:
    """As a download of part of a repository leaves them."""
    shutil.copytree(sound.parent, tmp_path / "BF16")
    with pytest.raises(DraftproofError) as caught:
        open_view(str(tmp_path))
    assert (caught.value.code, str(tmp_path / "BF16" / sound.name) in caught.value.remedy) == ("DP401", True)
