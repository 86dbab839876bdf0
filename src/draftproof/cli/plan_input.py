"""From the arguments of `draftproof plan` to a setup. Called by `plan` alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.cli.check_engine import command_text
from draftproof.cli.options import file_of, files_beside, read_text, with_model
from draftproof.cli.targets import open_local
from draftproof.configs.engines.base import Parsed
from draftproof.configs.identity import is_hub_file
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment
from draftproof.core.errors import DraftproofError, named_by
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.setup import Allowances, Setup

_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Asked:
    """What is planned: the setup, the context length in tokens, and the requests that shall run (None: not said)."""

    target: str
    setup: Setup
    context: int
    concurrency: int | None
    version: str | None

    @property
    def version_note(self) -> str | None:
        """Where the asked version is not the one that the rules were read from."""
        read = self.setup.rules.read_version
        if self.version is None or self.version == read:
            return None
        return f"rules were read from {self.setup.rules.title} {read}: not known for {self.version}"


def read(target: str | None, options: dict[str, Any]) -> Asked:
    """Raises DP001 for arguments that contradict each other, and what assembling raises."""
    said, _, version = (options["engine"] or "").partition("==")
    engine = said or "draftproof"
    if options["command_line"] is not None:
        deployment = _from_command(options["command_line"], engine, version or None)
        target = target or (deployment.target.name if deployment.target else None)
        if said and deployment.engine != said:
            raise _contradicts("--engine", said, f"{deployment.engine}, whose command was given")
        if options["speculative"] is not None and deployment.speculation.method != "none":
            raise _contradicts(
                "--speculative-config",
                "a second speculation",
                "the one that --command says, or a command without",
            )
        engine = deployment.engine
    else:
        deployment = Deployment(engine=engine, version=version or None)
    if target is None:
        raise DraftproofError(
            "DP001", "TARGET", "nothing", "a directory, a GGUF file, or --command", "Name the model."
        )
    if options["speculative"] is not None:
        deployment = replace(
            deployment,
            speculation=parse_speculation(
                options["speculative"], engine, options["draft"]
            ).deployment.speculation,
        )
    deployment = _with_options(deployment, options)
    wish = Wish(
        memory=options["memory"],
        drafter=options["draft"],
        draft_kv_dtype=options["draft_kv_dtype"],
        draft_window=options["draft_window"],
        stage_layers=options["stage_layers"] or (),
        allowances=Allowances(
            runtime=options["runtime_bytes"],
            graphs=options["graph_bytes"],
            activations=options["activation_bytes"],
        ),
    )
    if wish.drafter is not None and deployment.speculation.method == "none":
        raise DraftproofError(
            "DP001",
            "--draft",
            f"{wish.drafter} without speculation",
            "a method that uses it",
            'Add --speculative-config \'{"method": "draft_model", "num_speculative_tokens": 4}\'.',
        )
    setup = assemble(
        open_model(target), deployment, wish, partial(_open_drafter, options["draft"] is not None)
    )
    _need_drafter(setup, options)
    longest = setup.target.context_length
    context = (
        options["context"] or deployment.max_model_len or min(_DEFAULT_CONTEXT, longest or _DEFAULT_CONTEXT)
    )
    return Asked(target, setup, context, options["concurrency"], deployment.version)


def _contradicts(option: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError("DP001", option, found, expected, "Leave one of both out.")


def _need_drafter(setup: Setup, options: dict[str, Any]) -> None:
    """Raises DP001 for options that say something of a drafter with layers of its own, where there is none."""
    if setup.drafter is not None and (setup.drafter.layers or options["draft"] == "self"):
        return
    for name in ("draft", "draft_kv_dtype", "draft_window", "draft_tensor_parallel"):
        if options[name] is not None:
            raise DraftproofError(
                "DP001",
                f"--{name.replace('_', '-')}",
                f"{options[name]}, with method {setup.method}",
                "a drafter with layers and a cache of its own",
                "Leave it out, or name a method that has a drafter.",
            )


def _with_options(deployment: Deployment, options: dict[str, Any]) -> Deployment:
    """Options of the command line win over what a configuration says."""
    given = {
        "dtype": options["dtype"],
        "kv_dtype": options["kv_dtype"],
        "max_num_seqs": options["concurrency"],
        "max_num_batched_tokens": options["max_batched_tokens"],
        "memory_fraction": options["fraction"],
        "tensor_parallel": options["tensor_parallel"],
        "pipeline_parallel": options["pipeline_parallel"],
        "block_size": options["page_size"],
    }
    found = replace(deployment, **{key: value for key, value in given.items() if value is not None})
    if options["draft_tensor_parallel"] is None:
        return found
    parallel = replace(found.speculation, draft_tensor_parallel=options["draft_tensor_parallel"])
    return replace(found, speculation=parallel)


def _open_drafter(is_option: bool, reference: str) -> CheckpointView:
    with named_by("--draft" if is_option else "speculation.model"):
        return open_model(reference)


def open_model(reference: str) -> CheckpointView:
    """Files of this machine, else what the name says elsewhere. Raises DP401 where there is nothing."""
    if is_hub_file(reference) and not Path(reference).exists():
        return open_view(reference)
    return open_local(reference).view or open_view(reference)


def parse_speculation(text: str, engine: str, drafter: str | None, *, only_unsaid: bool = False) -> Parsed:
    """JSON, or the name of a file that holds it; `drafter` takes the place of its model, or with `only_unsaid` of one
    that it does not name. Our own methods are read for our own engine, vLLM's for all others. Raises DP002, and DP111
    for what is not understood."""
    if not text.lstrip().startswith("{"):
        text = read_text(Path(text), "--speculative-config")
    name = "draftproof" if engine == "draftproof" else "vllm"
    return dialect(name).parse(with_model(text, drafter, only_unsaid))


def _from_command(text: str, engine: str, version: str | None) -> Deployment:
    """`engine`: where the text does not tell it."""
    given = command_text(text)
    from draftproof.configs.engines.told import told_by

    told = told_by(given)
    name = told.engine or engine
    if version is None and told.version is not None:
        version = told.version
    return dialect(name).parse(given, version, files_beside(file_of(text))).deployment
