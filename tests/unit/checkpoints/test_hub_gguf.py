"""GGUF models of a hub: named as llama.cpp and Ollama name them, read by ranges of their headers alone."""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.checkpoints import gguf as reader
from draftproof.checkpoints.hub_settings import HubId, HubSettings, parse_hub_id
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint, write_gguf
from support.fake_hub import COMMIT, Answer, FakeHub, fake_hub

NAME = "some-org/tiny-GGUF"
SMALL = {"layers": 1, "vocab": 300}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two quantisations at the top, a split one in a folder, and files that only accompany them."""
    root = tmp_path_factory.mktemp("repository")
    write_gguf(root / "tiny-Q4_0.gguf", types="Q4_0", **SMALL)
    write_gguf(root / "tiny-q8_0.gguf", types="Q8_0", **SMALL)
    write_gguf(root / "BF16" / "tiny-BF16.gguf", types="BF16", part_tensors=5, **SMALL)
    (root / "mmproj-F16.gguf").write_bytes(b"GGUF")
    (root / "README.md").write_text("x")
    return root


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with fake_hub({NAME: repository}) as server:
        yield server


def look(hub: FakeHub, reference: str, **changes: object) -> CheckpointView:
    preferred = changes.pop("preferred", ())
    settings = {"endpoint": hub.endpoint, "timeout_s": 20.0, "deadline_s": 60.0, **changes}
    return open_view(reference, hub=HubSettings(**settings), preferred=preferred)  # type: ignore[arg-type]


def refused(hub: FakeHub, reference: str, **changes: object) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        look(hub, reference, **changes)
    return caught.value


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        (f"{NAME}:Q4_0", "tiny-Q4_0.gguf"),
        (f"{NAME}:q8_0", "tiny-q8_0.gguf"),
        (f"hf.co/{NAME}:Q8_0", "tiny-q8_0.gguf"),
        (f"huggingface.co/{NAME}:tiny-q8_0.gguf", "tiny-q8_0.gguf"),
        (f"{NAME}@{COMMIT}:Q4_0", "tiny-Q4_0.gguf"),
        (f"{NAME}/tiny-Q4_0.gguf", "tiny-Q4_0.gguf"),
        (f"{NAME}/tiny-Q4_0.gguf@main", "tiny-Q4_0.gguf"),
        (f"{NAME}:BF16", "BF16/tiny-BF16-00001-of-00003.gguf"),
        (f"{NAME}/BF16/tiny-BF16-00002-of-00003.gguf", "BF16/tiny-BF16-00002-of-00003.gguf"),
    ],
)
def test_each_way_to_name_a_model(hub: FakeHub, repository: Path, reference: str, path: str) -> None:
    remote, local = look(hub, reference), open_view(str(repository / path))
    assert (remote.config, remote.tensors, remote.files) == (local.config, local.tensors, local.files)
    assert remote.vocabulary() == local.vocabulary()
    assert remote.hashes() == local.hashes()
    assert remote.remarks == local.remarks
    assert (remote.kind, remote.revision) == ("gguf", COMMIT)
    assert hub.endpoint in remote.source


def test_headers_alone_are_fetched_by_ranges(
    hub: FakeHub, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces that grow, no byte twice, and nothing of the weights behind the last piece."""
    monkeypatch.setattr(reader, "HEADER_MAX_BYTES", 1 << 15)
    view = look(hub, f"{NAME}:Q4_0")
    assert view.tensors
    size = (repository / "tiny-Q4_0.gguf").stat().st_size
    pieces = [seen for seen in hub.seen if "/resolve/" in seen.path]
    ranges = [[int(part) for part in seen.headers["range"][6:].split("-")] for seen in pieces]
    assert len(ranges) > 2
    assert [start for start, _ in ranges[1:]] == [end + 1 for _, end in ranges[:-1]]
    assert sum(seen.num_bytes for seen in pieces) < size
    assert {seen.path.rpartition("/")[2] for seen in pieces} == {"tiny-Q4_0.gguf"}


def test_several_models_are_listed_and_asked_for(hub: FakeHub) -> None:
    error = refused(hub, NAME)
    assert error.code == "DP401"
    assert "3 GGUF models" in error.found
    for name in (f"{NAME}:BF16", f"{NAME}:Q4_0", f"{NAME}:Q8_0"):
        assert name in error.remedy
        assert look(hub, name).tensors
    assert "mmproj" not in error.remedy
    for reference in (f"{NAME}:Q2_K", f"{NAME}/absent.gguf"):
        error = refused(hub, reference)
        assert (error.code, "Q4_0" in error.remedy) == ("DP401", True)


def test_what_an_engine_prefers_is_taken_without_asking(hub: FakeHub) -> None:
    assert look(hub, NAME, preferred=("Q4_K_M", "Q8_0")).files == {"tiny-q8_0.gguf"}
    assert look(hub, NAME, preferred=("Q4_K_M",)).files == look(hub, f"{NAME}:BF16").files


def test_a_repository_with_a_configuration_is_not_a_gguf_model(tmp_path: Path) -> None:
    write_gguf(write_checkpoint(tmp_path) / "tiny-Q8_0.gguf", **SMALL)
    with fake_hub({NAME: tmp_path}) as hub:
        assert look(hub, NAME).kind == "safetensors"
        assert look(hub, f"{NAME}:Q8_0").kind == "gguf"


def test_a_configuration_beside_gguf_models(tmp_path: Path) -> None:
    """As published conversions have it: one model is what it describes, of several one must be named."""
    (tmp_path / "config.json").write_text("{}")
    write_gguf(tmp_path / "tiny-Q8_0.gguf", **SMALL)
    with fake_hub({NAME: tmp_path}) as hub:
        assert open_view(str(tmp_path)).kind == look(hub, NAME).kind == "gguf"
        shutil.copy(tmp_path / "tiny-Q8_0.gguf", tmp_path / "tiny-Q4_0.gguf")
        for view in (open_view(str(tmp_path)), look(hub, NAME)):
            assert (view.kind, view.remarks) == ("config", ("of 2 GGUF models none was named",))
        assert look(hub, NAME, preferred=("Q8_0",)).files == {"tiny-Q8_0.gguf"}


def test_one_model_needs_no_choice(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", **SMALL)
    with fake_hub({NAME: tmp_path}) as hub:
        assert look(hub, NAME).files == {"tiny.gguf"}


def test_what_the_cache_holds_is_not_fetched(hub: FakeHub, repository: Path, tmp_path: Path) -> None:
    """In the hub's layout: links into `blobs`, from subfolders too."""
    root = tmp_path / f"models--{NAME.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    for path in ("tiny-Q4_0.gguf", *(f"BF16/{name.name}" for name in (repository / "BF16").iterdir())):
        blob = root / "blobs" / hashlib.sha256((repository / path).read_bytes()).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / path, blob)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(blob)
    (root / "refs").mkdir()
    (root / "refs/main").write_text(COMMIT)
    for tag in ("Q4_0", "BF16"):
        view = look(hub, f"{NAME}:{tag}", cache=tmp_path)
        assert view.tensors
        assert view.hashes() == open_view(str(next(repository.rglob(f"*{tag}*.gguf")))).hashes()
        assert view.revision == COMMIT
    assert hub.seen == []
    assert refused(hub, f"{NAME}:Q8_0", cache=tmp_path, is_offline=True).code == "DP401"
    assert look(hub, f"{NAME}:Q8_0", cache=tmp_path).tensors
    (snapshot / "BF16/tiny-BF16-00002-of-00003.gguf").unlink()
    hub.seen.clear()
    assert look(hub, f"{NAME}:BF16", cache=tmp_path).tensors
    fetched = {seen.path.rpartition("/")[2] for seen in hub.seen if "/resolve/" in seen.path}
    assert fetched == {"tiny-BF16-00002-of-00003.gguf"}
    assert refused(hub, f"{NAME}:BF16", cache=tmp_path, is_offline=True).code == "DP401"


# What is refused


def test_a_part_that_the_hub_lacks(hub: FakeHub, tmp_path: Path, repository: Path) -> None:
    shutil.copytree(repository / "BF16", tmp_path / "BF16")
    (tmp_path / "BF16/tiny-BF16-00003-of-00003.gguf").unlink()
    hub.repositories[NAME] = tmp_path
    error = refused(hub, f"{NAME}:BF16")
    assert (error.code, "00003-of-00003" in error.found) == ("DP401", True)


def test_headers_without_end_cost_bounded_bytes(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A string that is as long as the file, which is longer than any header."""
    for name in ("HEADER_MAX_BYTES", "LATER_HEADER_MAX_BYTES"):
        monkeypatch.setattr(reader, name, 1 << 16)
    start = b"GGUF" + struct.pack("<IQQQ1sIQ", 3, 0, 1, 1, b"k", 8, 1 << 20)
    (tmp_path / "a-Q8_0.gguf").write_bytes(start + bytes(1 << 21))
    hub.repositories[NAME] = tmp_path
    error = refused(hub, NAME)
    assert (error.code, "more than 65536 bytes" in error.found) == ("DP402", True)
    assert sum(seen.num_bytes for seen in hub.seen if "/resolve/" in seen.path) == 1 << 16


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + bytes(40), b"<html>" + bytes(40), b"\xff" * 64])
def test_files_that_are_none(hub: FakeHub, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a-Q8_0.gguf").write_bytes(content)
    hub.repositories[NAME] = tmp_path
    assert refused(hub, NAME).code in ("DP402", "DP406")


def test_a_server_that_ignores_ranges_or_cuts_off(hub: FakeHub) -> None:
    def whole(answer: Answer) -> None:
        answer.send(200, answer.content() or b"")

    def short(answer: Answer) -> None:
        answer.send(206, b"GGUF", {"Content-Range": "bytes 0-3/999999"})

    hub.fault = whole
    assert look(hub, f"{NAME}:Q4_0").tensors
    hub.fault = short
    assert refused(hub, f"{NAME}:Q4_0").code == "DP413"


@pytest.mark.parametrize(
    "path",
    [
        "../x-Q8_0.gguf",
        "/x-Q8_0.gguf",
        "a//x-Q8_0.gguf",
        "a/../../x-Q8_0.gguf",
        "a\\x-Q8_0.gguf",
        "./x-Q8_0.gguf",
    ],
)
def test_paths_that_lead_elsewhere_are_no_files(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    listing = {"sha": COMMIT, "siblings": [{"rfilename": path}]}
    monkeypatch.setattr(hub, "listing", lambda name: listing)
    error = refused(hub, f"{NAME}:Q8_0")
    assert (error.code, "GGUF model" in error.found) == ("DP401", True)


# How models are named


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("a/b", HubId("a/b", None)),
        ("hf.co/a/b", HubId("a/b", None)),
        ("a/b@v1:Q4_K_M", HubId("a/b", "v1", None, "Q4_K_M")),
        ("a/b/x-00001-of-00002.gguf", HubId("a/b", None, "x-00001-of-00002.gguf")),
        ("a/b/UD/x.gguf@refs/pr/1", HubId("a/b", "refs/pr/1", "UD/x.gguf")),
        ("a/b.gguf", None),
        ("a/b/c", None),
        ("a/b/c.gguf:Q4_0", None),
        ("a/b/../c.gguf", None),
        ("a/b/.c.gguf", None),
        ("a/b:", None),
        ("a/b:x/y", None),
        ("a:Q4_0", None),
        ("a/b:" + "x" * 300, None),
        ("a/b" + "/c" * 50 + ".gguf", None),
    ],
)
def test_references(reference: str, expected: HubId | None) -> None:
    assert parse_hub_id(reference) == expected


def test_a_mistyped_path_is_not_asked_of_the_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert refused(hub, "models/tiny/absent.gguf").code == "DP401"
    assert hub.seen == []
