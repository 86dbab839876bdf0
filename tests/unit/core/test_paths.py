"""Where caches lie, also for processes that have no home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftproof.core.paths import cache_root


def test_order_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("DRAFTPROOF_HOME", "/own")
    assert cache_root() == Path("/own")
    monkeypatch.delenv("DRAFTPROOF_HOME")
    assert cache_root() == Path("/cache/draftproof")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path("/home/someone/.cache/draftproof")


def test_a_user_without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRAFTPROOF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_root().is_absolute()
    assert str(os.getuid()) in cache_root().name
