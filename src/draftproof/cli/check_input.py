"""From the arguments of `draftproof check` to cases that rules can judge. Called by `check` alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from draftproof.checkpoints.gguf_naming import LLAMACPP_PREFERRED
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.cli.options import file_of, files_beside, read_text
from draftproof.cli.targets import open_local
from draftproof.configs.engines.base import Parsed
from draftproof.configs.identity import is_hub_file, is_hub_id, is_repository
from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.rules.case import Case, Traffic
from draftproof.configs.rules.facts.parameters import PARAMETERS
from draftproof.configs.rules.versions import READ, parse_version
from draftproof.configs.speculation import Deployment, ModelRef
from draftproof.configs.traffic import read_traffic
from draftproof.core.errors import DraftproofError

_UNREACHABLE = ("DP401", "DP407", "DP411", "DP412", "DP413", "DP414")
_PROGRAMS = {"trtllm-serve": "trtllm", "llama-server": "llamacpp", "draftproof": "draftproof", "vllm": "vllm"}
_IMAGES = {
    "vllm-openai": "vllm", "vllm-openai-cpu": "vllm", "vllm-openai-rocm": "vllm", "vllm-openai-xpu": "vllm",
    "sglang": "sglang", "tensorrt-llm": "trtllm", "release": "trtllm", "llama.cpp": "llamacpp",
}  # fmt: skip
"""Last part of an image's name → engine."""
_ALIASES = {"json_schema": "response_format", "beam_search": "use_beam_search"}
_SETTINGS: Mapping[str, tuple[str, bool | int]] = MappingProxyType(
    {
        "lora": ("lora", True),
        "pipeline_parallel": ("pipeline_parallel", 2),
        "prefix_caching": ("prefix_caching", True),
    }
)
"""Features of --require that are settings of the deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`cases`: one, or one per part of a cascade. `version_from`: where the version was read, None: it was not."""

    cases: tuple[Case, ...]
    engine: str
    version_from: str | None
    engine_from: str

    @property
    def version(self) -> str | None:
        return self.cases[0].deployment.version or READ.get(self.engine)


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
        image, _, tag = text.partition("@")[0].rpartition(":")
        name = _IMAGES.get(image.rpartition("/")[2], image.rpartition("/")[2])
        found = re.search(r"v?\d+(?:\.\d+)+(?:\.?(?:rc|post|a|b|dev)\d+)*|b\d{4,}", tag)
        version, where = (found[0].removeprefix("v") if found else ""), "image tag"
    if name not in READ and name not in ("draftproof", "fireworks"):
        known = ", ".join(("draftproof", *READ, "fireworks"))
        raise DraftproofError(
            "DP110", "--engine", name[:60], known, "Name one of these engines as written here."
        )
    if version:
        parse_version(name, version)
    return Named(engine=name, version=version or None, where=where if version else None)


_STARTERS = ("docker", "podman", "nerdctl")


def _with_image(named: Named, command: str) -> Named:
    """What the image of a container's command says, where nothing else was said."""
    words = _command_text(command).split()
    if not any(Path(word).name in _STARTERS for word in words[:3]):
        return named
    for word in words:
        image, colon, tag = word.partition("@")[0].rpartition(":")
        last = (image if colon and "/" not in tag else word).rpartition("/")[2]
        if "/" not in word or word.startswith(("/", ".", "~", "-")) or last not in _IMAGES:
            continue
        told = read_engine(word)
        if named.engine is None or (named.version is None and named.engine == told.engine):
            return told
    return named


def read(target: str | None, options: Mapping[str, Any]) -> Asked:
    """Raises DP001 for arguments that contradict each other, and what dialects, files and checkpoints raise."""
    named = read_engine(options["engine"])
    if options["command_line"] is not None:
        named = _with_image(named, options["command_line"])
    if options["url"] is not None:
        named = _ask_endpoint(options["url"], named)
    given = [key for key in ("speculative", "command_line", "config") if options[key] is not None]
    if len(given) != 1:
        raise DraftproofError(
            "DP001",
            "--speculative-config",
            f"{len(given)} of --speculative-config, --command and --config",
            "one of them",
            "Give the configuration in one way.",
        )
    engine, engine_from = _engine(target, named, options)
    if named.version is None:
        named = replace(named, **_installed(engine))
    parsed = _parse(engine, named.version, options)
    deployment = replace(parsed.deployment, engine=engine, version=named.version)
    deployment = _with_names(deployment, target, options["draft"])
    deployment, traffic = _with_requirements(deployment, options["require"], options["traffic"])
    files = _Files(target, options["draft"])
    cases = _cases(replace(parsed, deployment=deployment), files, traffic)
    return Asked(cases=cases, engine=engine, version_from=named.where, engine_from=engine_from)


def _engine(target: str | None, named: Named, options: Mapping[str, Any]) -> tuple[str, str]:
    """The engine, and what it was told by."""
    if named.engine is not None:
        return named.engine, "--engine"
    text = options["command_line"]
    if text is not None:
        words = [Path(word).name for word in text.split() if "=" not in word.partition("/")[0]][:8]
        for word in words:
            if word in _PROGRAMS:
                return _PROGRAMS[word], "the command"
        if "sglang" in text:
            return "sglang", "the command"
        raise DraftproofError(
            "DP001",
            "--engine",
            "a command that does not name its engine",
            "--engine ENGINE",
            "Name the engine.",
        )
    if options["config"] is not None:
        return "trtllm", "a YAML file, as TensorRT-LLM takes it"
    is_local = target is not None and Path(target).expanduser().exists()
    return (
        ("draftproof", "a local target without --engine")
        if is_local
        else ("vllm", "a hub id without --engine")
    )


def _installed(engine: str) -> dict[str, str]:
    """The version of an engine's package in this Python, if it is there."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm", "transformers": "transformers",
                "openvino": "openvino-genai"}  # fmt: skip
    try:
        return (
            {"version": version(packages[engine]), "where": "package metadata"} if engine in packages else {}
        )
    except PackageNotFoundError:
        return {}


def address_of(url: str) -> str:
    """Where a running engine's own pages are. Raises DP121 for what is no address, or has a key in it."""
    from draftproof.measure.probe.endpoint import parse_endpoint

    return parse_endpoint(url, row=None, model=None, api_version=None).base


def _ask_endpoint(url: str, named: Named) -> Named:
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


def _parse(engine: str, version: str | None, options: Mapping[str, Any]) -> Parsed:
    if options["speculative"] is not None:
        from draftproof.cli.plan_input import read_speculation

        speculation = read_speculation(options["speculative"], engine, options["draft"])
        return Parsed(deployment=Deployment(engine=engine, speculation=speculation))
    if engine not in DIALECTS:
        raise DraftproofError(
            "DP110",
            "--engine",
            engine,
            f"an engine whose configurations this version reads: {', '.join(DIALECTS)}",
            "Give the speculation as --speculative-config, in vLLM's words.",
        )
    config = options["config"]
    text = (
        read_text(Path(config), "--config") if config is not None else _command_text(options["command_line"])
    )
    found = dialect(engine)
    reader = files_beside(Path(config) if config is not None else file_of(options["command_line"]))
    try:
        return found.parse(text, version, reader)
    except DraftproofError as error:
        if error.code != "DP112":
            raise
        return found.parse(text, None, reader)  # rules say which of them were not read for the version


def _command_text(text: str) -> str:
    file = file_of(text)
    return text if file is None else read_text(file, "--command")


def _with_names(deployment: Deployment, target: str | None, draft: str | None) -> Deployment:
    """TARGET and --draft stand in place of the names in the configuration."""
    if deployment.target is None:
        if target is None:
            raise DraftproofError(
                "DP001", "TARGET", "nothing", "a directory, a GGUF file or a hub id", "Name the target."
            )
        deployment = replace(deployment, target=ModelRef(name=target))
    drafter = deployment.speculation.drafter
    if draft is not None and drafter is None and deployment.speculation.method not in ("none", "cascade"):
        speculation = replace(deployment.speculation, drafter=ModelRef(name=draft))
        deployment = replace(deployment, speculation=speculation)
    return deployment


def _with_requirements(
    deployment: Deployment, require: str | None, traffic: Path | None
) -> tuple[Deployment, Traffic | None]:
    names = [name.strip() for name in (require or "").split(",") if name.strip()]
    settings: dict[str, Any] = {}
    wanted: dict[str, int] = {}
    for name in names:
        plain = _ALIASES.get(name, name)
        if name in _SETTINGS:
            key, value = _SETTINGS[name]
            settings[key] = getattr(deployment, key) or value
        elif plain in PARAMETERS:
            wanted[plain] = 0
        else:
            known = (*PARAMETERS, *_ALIASES, *_SETTINGS)
            near = get_close_matches(name, known, 1)
            raise DraftproofError(
                "DP001", "--require", name[:40], f"one of {', '.join(known)}",
                f"Write {near[0]}." if near else "Name request parameters or features as written here.",
            )  # fmt: skip
    deployment = replace(deployment, **settings)
    if traffic is None:
        return deployment, Traffic(parameters=wanted) if names else None
    recorded = read_traffic(traffic)
    return deployment, Traffic(
        num_requests=len(recorded.requests),
        parameters={**wanted, **recorded.parameters},
        prompt_chars=tuple(len(request.prompt) for request in recorded.requests),
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """Where the user says that the files lie; None: as the configuration names them."""

    target: str | None
    drafter: str | None


def _cases(parsed: Parsed, files: _Files, traffic: Traffic | None) -> tuple[Case, ...]:
    """One case, or one per part of a cascade."""
    deployment = parsed.deployment
    assert deployment.target is not None
    absent: dict[str, str] = {}
    serves_here = deployment.engine == "draftproof"
    place = files.target or (deployment.target.name if serves_here else None)
    target_view = _open(
        place, deployment.target, "target", absent, _part_of_hub(deployment.target, deployment, "hf-file")
    )
    parts = deployment.speculation.parts or (deployment.speculation,)
    cases = []
    for part in parts:
        missing = dict(absent)
        drafter = part.drafter
        view = None
        if drafter is not None and not _is_own_weights(drafter.name):
            place = (files.drafter if len(parts) == 1 else None) or (drafter.name if serves_here else None)
            view = _open(place, drafter, "drafter", missing, _part_of_hub(drafter, deployment))
        own = None if drafter is None or _is_own_weights(drafter.name) else drafter
        cases.append(
            Case(
                deployment=replace(deployment, speculation=replace(part, drafter=own)),
                remarks=parsed.remarks,
                target_view=target_view,
                drafter_view=view,
                traffic=traffic,
                absent=missing,
            )
        )
    return tuple(cases)


def _is_own_weights(name: str) -> bool:
    return name == "self"


def _part_of_hub(model: ModelRef, deployment: Deployment, file_option: str = "") -> str | None:
    """Which of a repository's models llama.cpp takes, as `open_view` reads it behind the name; None for others."""
    if deployment.engine != "llamacpp" or not is_repository(model.name):
        return None
    file = Case(deployment=deployment).extra(file_option) if file_option else None
    return f"/{file}" if isinstance(file, str) else f":{model.quantization}" if model.quantization else ""


def _open(
    place: str | None, named: ModelRef, whose: str, absent: dict[str, str], part: str | None
) -> CheckpointView | None:
    """Files of this machine, else the hub's; what is not there is noted, for the rules that need it.

    `place` is the user's word, and wrong where nothing is there. None: a command names it, whose paths are those of the
    machine that serves. `part` of the hub's repository that it names.
    """
    reference = named.name + (part or "") if place is None else place
    is_path = named.name.endswith(".gguf") or not is_hub_id(named.name)
    if place is None and is_path and not Path(reference).expanduser().exists():
        with suppress(DraftproofError):
            view = open_local(reference).view
            if view is not None:
                return view
        absent[whose] = (
            f"the {whose}'s files: {reference} is not on this machine; name them as TARGET or --draft"
        )
        return None
    is_of_hub = is_hub_file(reference) and not Path(reference).exists()
    here = None if is_of_hub else open_local(reference).view
    if here is not None:
        return here
    try:
        preferred = () if place is not None or part is None else LLAMACPP_PREFERRED
        return open_view(reference, revision=named.revision, preferred=preferred)
    except DraftproofError as error:
        if error.code not in _UNREACHABLE or (is_of_hub and place is not None and error.code == "DP401"):
            raise
        absent[whose] = f"the {whose}'s files: {error.found}"
        return None
