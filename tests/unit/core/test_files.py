"""Files that a user names: pipes and devices are refused at once; what is written is whole."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

import pytest

from draftproof.checkpoints.folder import _DOWNLOAD_RECORD, LocalFolder
from draftproof.checkpoints.hub_settings import settings_from_environment
from draftproof.core.files import open_regular, write_whole
from support.ctrl_c import CtrlC

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path / "pipe.yaml"


def test_what_is_no_regular_file_is_an_oserror(tmp_path: Path, pipe: Path) -> None:
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", Path("/dev/zero"), tmp_path, tmp_path / "none"):
        with pytest.raises(OSError, match=r"no regular file|directory"):
            open_regular(path)
    (tmp_path / "text").write_bytes(b"abc")
    with open_regular(tmp_path / "text") as file:
        assert file.read() == b"abc"


def test_files_around_a_checkpoint_are_passed_over(tmp_path: Path, pipe: Path) -> None:
    record = tmp_path / _DOWNLOAD_RECORD
    record.parent.mkdir(parents=True)
    os.mkfifo(record)
    assert LocalFolder(tmp_path).commit is None
    assert settings_from_environment({"HF_TOKEN_PATH": str(pipe), "HF_HOME": str(tmp_path)}).token is None


def test_what_is_written_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for text in ("ä", "second"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    for before in (None, "what was there"):
        path.unlink()
        if before is not None:
            path.write_text(before)
        with pytest.raises(UnicodeEncodeError):
            write_whole(path, "half of it \ud800")
        assert [item.name for item in tmp_path.iterdir()] == ([] if before is None else ["report.json"])
        if before is not None:
            assert path.read_text() == before
        path.touch()


@pytest.mark.parametrize("before", [None, "what was there"])
def test_ctrl_c_leaves_the_old_file_or_the_new_one(tmp_path: Path, before: str | None) -> None:
    at, sent = 1, True
    while sent:
        path = tmp_path / "report.json"
        path.unlink(missing_ok=True)
        if before is not None:
            path.write_text(before)
        with CtrlC(at) as ctrl_c, contextlib.suppress(KeyboardInterrupt):
            write_whole(path, "what comes")
        left = [item.read_text() for item in tmp_path.iterdir()]
        assert left in ([] if before is None else [before], ["what comes"]), at
        at, sent = at + 1, ctrl_c.was_sent


def test_a_link_is_followed_and_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path, link, later = tmp_path / "there", tmp_path / "link", tmp_path / "later"
    path.touch(mode=0o640)
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "text")
    assert link.is_symlink()
    assert path.read_text() == "text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link.unlink()
    link.symlink_to(later)
    write_whole(link, "text", over=False)
    assert link.is_symlink()
    assert later.read_text() == "text"


def test_a_pipe_or_device_is_written_to_and_stays_one(pipe: Path) -> None:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_of_those_who_write_to_a_new_place_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "record"
    done: list[str] = []

    def write(name: str) -> None:
        try:
            write_whole(path, name, over=False)
        except FileExistsError:
            return
        done.append(name)

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [path.read_text()]
    assert [item.name for item in tmp_path.iterdir()] == ["record"]
