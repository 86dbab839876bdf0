"""Files that a user names: pipes and devices are refused at once, wherever a name is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftproof.checkpoints.folder import _DOWNLOAD_RECORD, LocalFolder
from draftproof.checkpoints.hub_settings import settings_from_environment
from draftproof.core.files import open_regular

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
