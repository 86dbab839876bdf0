"""`draftproof check`: what is wrong with a pair and a configuration, from their files, before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import json_option
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.cli.check_input import Asked
    from draftproof.core.finding import Finding


@click.command(
    name="check",
    short_help="What is wrong with a pair and a configuration, from files alone.",
    epilog=output.examples(
        "draftproof check smollm2-135m --speculative-config "
        """'{"method": "ngram", "num_speculative_tokens": 4}'""",
        "draftproof check --command 'vllm serve Qwen/Qwen3-8B --spec-method ngram --spec-tokens 5' "
        "--engine vllm==0.33.0 --require min_p,tools",
    ),
)
@click.argument("target", required=False)
@click.option("--draft", metavar="D", help="The drafter: a directory, a GGUF file or a hub id.")
@click.option(
    "--speculative-config",
    "speculative",
    metavar="JSON|FILE",
    help="The speculation object: vLLM's keys, plus ours for draftproof itself.",
)
@click.option(
    "--command", "command_line", metavar="TEXT", help="What starts the engine, or @FILE that holds it."
)
@click.option("--config", metavar="FILE", help="A YAML file as TensorRT-LLM takes it, or another engine's.")
@click.option(
    "--engine", metavar="ENGINE[==VERSION]", help="Also an image with its tag: vllm/vllm-openai:v0.33.0."
)
@click.option("--url", metavar="URL", help="A running endpoint that is asked for its engine's version.")
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A deployment record: what has drifted from it, in the files of TARGET and --draft or where it says, in a "
    "configuration given beside it, and with --url at the running endpoint.",
)
@click.option("--api-key-env", metavar="VAR", help="With --lock and --url: the variable that holds the key.")
@click.option(
    "--traffic",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSONL of OpenAI requests: what they use.",
)
@click.option(
    "--require", metavar="NAMES", help="Parameters and features that must work, such as min_p,logprobs,lora."
)
@click.option(
    "--allow",
    multiple=True,
    metavar="CODE",
    help="A finding that you know of and accept, such as FLAG-10; it is listed and does not count.",
)
@json_option
def command(
    target: str | None,
    lock: Path | None,
    api_key_env: str | None,
    allow: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Say what is wrong with TARGET, its drafter and the configuration, with evidence and remedy.

    Reads config.json, tokenizer files, tensor headers, GGUF metadata and the engine's command or file; no weights.
    TARGET is a directory, a GGUF file (of a split model any part), a name from `draftproof models list`, or a hub id
    (owner/name; of a GGUF model owner/name:Q4_K_M or owner/name/file.gguf); --command may name it, too. Without a
    configuration the files alone are judged, for every engine that has the drafter's method. What could not be checked
    is listed with the reason. Exit status: 5 with a finding of severity error that is not allowed, else 0; where files
    are judged for several engines, 0 if at least one of them has no error; 2 where there is nothing but files and they
    cannot be read.
    """
    from draftproof.cli import check_text
    from draftproof.cli.check_input import read
    from draftproof.cli.check_verdict import Verdict, engine_rows, judge_all, read_allowed, worst_first
    from draftproof.configs.lock.record import read_record

    allowed = read_allowed(allow)
    configured = any(options[key] is not None for key in ("speculative", "command_line", "config"))
    if lock is None and api_key_env is not None:
        raise DraftproofError(
            "DP001", "--api-key-env", "without --lock", "--lock and --url", "Leave it out: no key is sent."
        )
    if lock is not None and not configured:
        _only_configured(options)
        findings = _drifted(lock, target, api_key_env, options, None)
        verdict = Verdict(findings=findings, allow=allowed)
        if as_json:
            output.print_json({"lock": str(lock), **verdict.as_dict()})
        else:
            check_text.show_findings(_record(lock), verdict)
        return verdict.status
    asked = read(target, options, None if lock is None else read_record(lock))
    together, judged = judge_all(asked.cases, asked.families)
    findings = together.findings
    if lock is not None:
        findings = worst_first((*findings, *_drifted(lock, target, api_key_env, options, asked)))
    several = len(asked.cases) > 1 and asked.told is not None
    verdict = Verdict(
        findings=findings, allow=allowed, engines=engine_rows(asked.cases, judged) if several else ()
    )
    if as_json:
        output.print_json(
            {**check_text.document(asked, together, verdict), **({"lock": str(lock)} if lock else {})}
        )
    else:
        check_text.show(asked, together, verdict, None if lock is None else _record(lock))
    return verdict.status


def _record(lock: Path) -> str:
    return f"deployment record {lock}"


def _only_configured(options: dict[str, Any]) -> None:
    """Without a configuration a record says itself what is compared. Raises DP001 for what would not be used."""
    given = [f"--{key}" for key in ("engine", "traffic", "require") if options[key] is not None]
    if given:
        raise DraftproofError(
            "DP001",
            "--lock",
            f"with {', '.join(given)} and no configuration",
            "--lock with TARGET, --draft and --url, or with a configuration beside it",
            "Leave the others out, or add --command.",
        )


def _drifted(
    lock: Path, target: str | None, api_key_env: str | None, options: dict[str, Any], asked: Asked | None
) -> tuple[Finding, ...]:
    """Findings of what differs from the record at `lock`."""
    from draftproof.cli.check_engine import address_of
    from draftproof.cli.options import path_of
    from draftproof.configs.lock.checking import Given, check_lock
    from draftproof.measure.probe.secret import key_from_environment

    address = None if options["url"] is None else address_of(options["url"])
    key = None
    if api_key_env is not None:
        key_from_environment(api_key_env, os.environ)  # says what is wrong with it
        key = os.environ[api_key_env].strip()
    draft = options["draft"]
    given = Given(
        target=None if target is None else path_of(target),
        drafter=None if draft is None else path_of(draft),
        deployment=None if asked is None else asked.deployment,
    )
    line = output.ProgressLine()
    try:
        return check_lock(
            lock, address, given, api_key=key, progress=lambda name: line.show(0, 1, f"reading {name}")
        )
    finally:
        line.clear()
