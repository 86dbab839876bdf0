"""Paths that the operating system refuses are the user's mistakes, with a code, whatever the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.models import loading
from draftproof.models.loading import load_model


@pytest.mark.parametrize("name", ["x" * 5000, "~nosuchuser/model", "missing\0name", "a/b/c/d"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(DraftproofError) as error:
        load_model(name)
    assert error.value.code == "DP401"
    assert len(error.value.found) < 400


def test_a_read_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(loading, "open_checkpoint", refuse)
    with pytest.raises(DraftproofError, match="Permission denied") as error:
        load_model(file)
    assert error.value.code == "DP401"
