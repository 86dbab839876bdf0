"""Which engine, and which version of it, a command is asked about. Called by `check_input` and `plan_input`.

Said by --engine, else by the image or the program of the command, a running endpoint, or a package that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from draftproof.cli.options import file_of, read_text
from draftproof.configs.reading.images import read_image
from draftproof.configs.rules.versions import READ, parse_version
from draftproof.core.errors import DraftproofError


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An engine and a version as the user named them."""

    engine: str | None = None
    version: str | None = None
    where: str | None = field(default=None)


def read_engine(text: str | None) -> Named:
    """ENGINE, ENGINE==VERSION, or an image with its tag (vllm/vllm-openai:v0.33.0). Raises DP110, DP112."""
    if text is None:
        return Named()
    name, separator, version = text.partition("==")
    where = "--engine"
    if not separator and "/" in text:
        image = read_image(text)
        name, version, where = image.engine or text, image.version or "", _IMAGE_TAG
    if name not in READ and name not in ("draftproof", "fireworks"):
        known = ", ".join(("draftproof", *READ, "fireworks"))
        raise DraftproofError(
            "DP110", "--engine", name[:60], known, "Name one of these engines as written here."
        )
    if version:
        parse_version(name, version)
    return Named(engine=name, version=version or None, where=where if version else None)


_IMAGE_TAG = "image tag"


def with_told(named: Named, command: str | None) -> tuple[Named, str]:
    """What a command says of its engine and version, where nothing else was said; and what told the engine.

    Raises DP001 where nothing does."""
    if command is None:
        return named, "--engine"
    from draftproof.configs.engines.told import told_by

    told = told_by(command_text(command), named.engine)
    engine = named.engine or told.engine
    if engine is None:
        raise DraftproofError(
            "DP001",
            "--engine",
            "a command that does not name its engine",
            "--engine ENGINE",
            "Name the engine.",
        )
    by = "--engine" if named.engine is not None else "the command"
    if named.version is None and told.version is not None and told.engine == engine:
        parse_version(engine, told.version)
        return Named(engine=engine, version=told.version, where=_IMAGE_TAG), by
    return replace(named, engine=engine), by


def engine_of(target: str | None, named: Named, by: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """The engine, and what it was told by."""
    if named.engine is not None:
        return named.engine, by
    if options["config"] is not None:
        return "trtllm", "a YAML file, as TensorRT-LLM takes it"
    is_local = target is not None and Path(target).expanduser().exists()
    return (
        ("draftproof", "a local target without --engine")
        if is_local
        else ("vllm", "a hub id without --engine")
    )


def installed(engine: str) -> dict[str, str]:
    """The version of an engine's package in this Python, if it is there."""
    packages = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm", "transformers": "transformers",
                "openvino": "openvino_genai"}  # fmt: skip
    if engine not in packages or find_spec(packages[engine]) is None:
        return {}
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"version": version(packages[engine]), "where": "package metadata"}
    except PackageNotFoundError:
        return {}


def address_of(url: str) -> str:
    """Where a running engine's own pages are. Raises DP121 for what is no address, or has a key in it."""
    from draftproof.measure.probe.endpoint import parse_endpoint

    return parse_endpoint(url, row=None, model=None, api_version=None).base


def ask_endpoint(url: str, named: Named) -> Named:
    """The engine and version that an endpoint tells of itself. Raises DP121 for what is no address, DP411 where it does
    not answer."""
    import httpx

    base = address_of(url)
    try:
        with httpx.Client(base_url=base, timeout=5.0, follow_redirects=False) as client:
            for path, engine, keys in _ENDPOINTS:
                answer = client.get(path)
                if answer.status_code != 200 or len(answer.content) > _MAX_ANSWER_BYTES:
                    continue
                version = _told_version(answer, keys)
                if version is not None and named.engine in (None, engine):
                    return Named(engine=engine, version=version, where=f"{base}{path}")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise DraftproofError(
            "DP411", "--url", f"{base[:200]}: {error}"[:300], "an endpoint that answers", "Check the address."
        ) from error
    raise DraftproofError(
        "DP411",
        "--url",
        f"{base[:200]} tells no version",
        "vLLM's /version, SGLang's /server_info or llama.cpp's /props",
        "Name the engine and its version: --engine vllm==0.33.0.",
    )


_MAX_ANSWER_BYTES = 4 << 20
_ENDPOINTS = (
    ("/version", "vllm", ("version",)),
    ("/server_info", "sglang", ("version",)),
    ("/props", "llamacpp", ("build_info",)),
)


def _told_version(answer: Any, keys: tuple[str, ...]) -> str | None:
    try:
        document = answer.json()
    except ValueError:
        return None
    for key in keys:
        value = document.get(key) if isinstance(document, dict) else None
        if isinstance(value, str) and value:
            return value.partition("-")[0] if key == "build_info" else value
    return None


def command_text(text: str) -> str:
    file = file_of(text)
    return text if file is None else read_text(file, "--command")
