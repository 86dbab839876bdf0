"""Runs command lines in this process, with an engine that needs no model."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from draftproof.cli.main import run
from support.fake_engine import FakeEngine


@dataclass(frozen=True, slots=True)
class Result:
    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as the one JSON document that it must be."""
        document = json.loads(self.stdout)
        assert isinstance(document, dict)
        assert document["schema_version"] == 1
        return document

    @property
    def code(self) -> str:
        """The DP code that standard error names."""
        return next(word for word in self.stderr.split() if word.startswith("DP"))


Invoke = Callable[..., Result]


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """invoke("generate", "m", …, stdin=b"…") → Result."""

    def call(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return call


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that `generate` and `demo` load in this test."""
    fake = FakeEngine()
    for module in ("generate", "demo"):
        monkeypatch.setattr(f"draftproof.cli.{module}.load_engine", lambda *args, **kwargs: fake)
    return fake
