"""From the arguments of `draftproof check` to cases that rules can judge. Called by `check` alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

from draftproof.checkpoints.gguf_naming import LLAMACPP_PREFERRED
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.cli import output
from draftproof.cli.check_engine import (
    Named,
    ask_endpoint,
    command_text,
    engine_of,
    installed,
    read_engine,
    with_told,
)
from draftproof.cli.options import file_of, files_beside, read_text
from draftproof.cli.targets import open_local
from draftproof.configs.engines.base import Parsed
from draftproof.configs.identity import is_hub_file, is_hub_id, is_repository
from draftproof.configs.lock.record import DeploymentRecord
from draftproof.configs.reading.manifest import is_yaml
from draftproof.configs.reading.started import is_start
from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.rules.case import Case, Traffic
from draftproof.configs.rules.facts.methods import find_method
from draftproof.configs.rules.facts.parameters import PARAMETERS
from draftproof.configs.rules.registry import FAMILIES
from draftproof.configs.rules.versions import READ
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.core.errors import DraftproofError, named_by

_UNREACHABLE = ("DP401", "DP407", "DP411", "DP412", "DP413", "DP414")
_ALIASES = {"json_schema": "response_format", "beam_search": "use_beam_search"}
_TAKE_FILES = ("vllm", "sglang")
"""Engines whose commands take a file of flags: such a file alone is read as they read it."""
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
    """`cases`: one, one per part of a cascade, or without a configuration one per engine. `version_from`: where the
    version was read, None: it was not. `families`: of rules that are asked. `told`: without a configuration, what told
    the method."""

    cases: tuple[Case, ...]
    engine: str
    version_from: str | None
    engine_from: str
    deployment: Deployment
    families: tuple[str, ...] = tuple(FAMILIES)
    told: str | None = None

    @property
    def version(self) -> str | None:
        return self.cases[0].deployment.version or READ.get(self.engine)


def read(target: str | None, options: Mapping[str, Any], lock: DeploymentRecord | None = None) -> Asked:
    """`lock`: the record that says the target and the engine where nothing else does.

    Raises DP001 for arguments that contradict each other, and what dialects, files and checkpoints raise."""
    named = read_engine(options["engine"])
    if options["url"] is not None:
        named = ask_endpoint(options["url"], named)
    given = [key for key in ("speculative", "command_line", "config") if options[key] is not None]
    if not given:
        return _read_alone(target, named, options)
    if len(given) > 1:
        raise DraftproofError(
            "DP001",
            "--speculative-config",
            f"{len(given)} of --speculative-config, --command and --config",
            "one of them",
            "Give the configuration in one way.",
        )
    recorded = None if lock is None or lock.target is None else lock.target.reference
    if lock is not None and named.engine is None and options["command_line"] is None:
        named = replace(named, engine=lock.engine.name)
    named, engine_from = with_told(named, options["command_line"])
    engine, engine_from = engine_of(target, named, engine_from, options)
    if named.version is None:
        named = replace(named, **installed(engine))
    parsed = _parse(engine, named.version, options)
    deployment = replace(parsed.deployment, engine=engine, version=named.version)
    if options["draft"] is not None and lock is None:
        _require_use(deployment)
    deployment = _with_names(deployment, target or recorded, options["draft"])
    deployment, traffic = _with_requirements(deployment, options["require"], options["traffic"])
    files = _Files(target, options["draft"])
    cases = _cases(replace(parsed, deployment=deployment), files, traffic)
    return Asked(
        cases=cases,
        engine=engine,
        version_from=named.where,
        engine_from=engine_from,
        deployment=deployment,
    )


def _read_alone(target: str | None, named: Named, options: Mapping[str, Any]) -> Asked:
    """The files alone, in every engine that has the drafter's method. Raises DP001 where no target is named."""
    from draftproof.cli import check_alone

    draft = options["draft"]
    bare = Deployment(engine=named.engine or "draftproof", version=named.version)
    speculation = Speculation(drafter=None if draft is None else ModelRef(name=draft))
    deployment = _with_names(replace(bare, speculation=speculation), target, None)
    deployment, traffic = _with_requirements(deployment, options["require"], options["traffic"])
    [case] = _cases(Parsed(deployment=deployment), _Files(target, draft, alone=True), traffic)
    cases = check_alone.engines_of(case, named.engine, named.version)
    return Asked(
        cases=cases,
        engine=cases[0].engine,
        version_from=named.where,
        engine_from="--engine",
        deployment=cases[0].deployment,
        families=(*check_alone.FAMILIES, *(["REQUEST"] if traffic is not None else [])),
        told=check_alone.told_by(cases[0]),
    )


def _parse(engine: str, version: str | None, options: Mapping[str, Any]) -> Parsed:
    if options["speculative"] is not None:
        from draftproof.cli.plan_input import parse_speculation

        parsed = parse_speculation(options["speculative"], engine, options["draft"], only_unsaid=True)
        words = parsed.deployment
        remarks = (
            parsed.remarks if words.engine == engine else ()
        )  # vLLM's words for others are no words of theirs
        return Parsed(deployment=Deployment(engine=engine, speculation=words.speculation), remarks=remarks)
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
        read_text(Path(config), "--config") if config is not None else command_text(options["command_line"])
    )
    if config is not None and engine in _TAKE_FILES and is_yaml(text) and not is_start(text):
        text = f"--config {quote(Path(config).name)}"
    found = dialect(engine)
    reader = files_beside(Path(config) if config is not None else file_of(options["command_line"]))
    try:
        return found.parse(text, version, reader)
    except DraftproofError as error:
        if error.code != "DP112":
            raise
        return found.parse(text, None, reader)  # rules say which of them were not read for the version


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


def _require_use(deployment: Deployment) -> None:
    """Raises DP001 for a --draft that the configuration has no use for: nothing would be said of it."""
    method = deployment.speculation.method
    fact = find_method(deployment.engine, method)
    if method == "none" or (fact is not None and fact.drafter == "none"):
        raise DraftproofError(
            "DP001",
            "--draft",
            "a configuration that drafts nothing"
            if method == "none"
            else f"method {method}, which has no drafter",
            "a configuration that uses the drafter",
            "Leave it out, or add what makes the engine draft with it: `draftproof methods` says how each writes it.",
        )


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
            known = tuple(dict.fromkeys((*PARAMETERS, *_ALIASES, *_SETTINGS)))
            near = get_close_matches(name, known, 1)
            raise DraftproofError(
                "DP001", "--require", name[:40], f"one of {', '.join(known)}",
                f"Write {near[0]}." if near else "Name request parameters or features as written here.",
            )  # fmt: skip
    deployment = replace(deployment, **settings)
    if traffic is None:
        return deployment, Traffic(parameters=wanted) if names else None
    from draftproof.configs.traffic import read_traffic

    with named_by("--traffic", ("--workload",)):
        recorded = read_traffic(traffic)
    if recorded.unread is not None:
        output.note(recorded.unread)
    return deployment, Traffic(
        num_requests=len(recorded.requests),
        parameters={**wanted, **recorded.parameters},
        prompt_chars=tuple(
            len(request.prompt) for request in recorded.requests if request.prompt is not None
        ),
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """Where the user says that the files lie; None: as the configuration names them. `alone`: there is nothing else
    to judge, so that files that cannot be read are a fault."""

    target: str | None
    drafter: str | None
    alone: bool = False


def _cases(parsed: Parsed, files: _Files, traffic: Traffic | None) -> tuple[Case, ...]:
    """One case, or one per part of a cascade."""
    deployment = parsed.deployment
    assert deployment.target is not None
    absent: dict[str, str] = {}
    serves_here = deployment.engine == "draftproof"
    place = files.target or (deployment.target.name if serves_here else None)
    part_of_hub = _part_of_hub(deployment.target, deployment, "hf-file")
    target_view = _open(place, deployment.target, "target", absent, part_of_hub, files.alone)
    parts = deployment.speculation.parts or (deployment.speculation,)
    cases = []
    for part in parts:
        missing = dict(absent)
        drafter = part.drafter
        view = None
        if drafter is not None and not _is_own_weights(drafter.name):
            place = (files.drafter if len(parts) == 1 else None) or (drafter.name if serves_here else None)
            with named_by("--draft" if files.drafter is not None else "speculation.model"):
                view = _open(
                    place, drafter, "drafter", missing, _part_of_hub(drafter, deployment), files.alone
                )
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
    place: str | None, named: ModelRef, whose: str, absent: dict[str, str], part: str | None, is_needed: bool
) -> CheckpointView | None:
    """Files of this machine, else the hub's; what is not there is noted, for the rules that need it.

    `place` is the user's word, and wrong where nothing is there. None: a command names it, whose paths are those of the
    machine that serves. `part` of the hub's repository that it names. Raises what reading raises where nothing can be
    judged without the files.
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
        if (
            is_needed
            or error.code not in _UNREACHABLE
            or (is_of_hub and place is not None and error.code == "DP401")
        ):
            raise
        absent[whose] = f"the {whose}'s files: {error.found}"
        return None
