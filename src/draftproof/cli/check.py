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
    from draftproof.configs.rules.judging import Judgement


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
    help="A deployment record: what has drifted from it, with --url also at the running endpoint.",
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
@json_option
def command(
    target: str | None, lock: Path | None, api_key_env: str | None, as_json: bool, **options: Any
) -> int:
    """Say what is wrong with TARGET, its drafter and the configuration, with evidence and remedy.

    Reads config.json, tokenizer files, tensor headers, GGUF metadata and the engine's command or file; no weights.
    TARGET is a directory, a GGUF file, a name from `draftproof models list`, or a hub id; --command may name it, too.
    What could not be checked is listed with the reason. Exit status: 5 with a finding of severity error, else 0.
    """
    from draftproof.cli import check_text
    from draftproof.cli.check_input import read
    from draftproof.core.finding import Severity

    if lock is not None:
        _only_with_lock(target, options)
        return _check_lock(lock, options["url"], api_key_env, as_json)
    if api_key_env is not None:
        raise DraftproofError(
            "DP001", "--api-key-env", "without --lock", "--lock and --url", "Leave it out: no key is sent."
        )
    asked = read(target, options)
    judgement = _judge_all(asked.cases)
    if as_json:
        output.print_json(check_text.document(asked, judgement))
    else:
        check_text.show(asked, judgement)
    return output.VIOLATION if judgement.worst is Severity.ERROR else output.DONE


def _only_with_lock(target: str | None, options: dict[str, Any]) -> None:
    """A record says itself what is compared. Raises DP001 for what would be read and not used."""
    names = {"speculative": "--speculative-config", "command_line": "--command"}
    given = ["TARGET"] if target is not None else []
    given += [
        names.get(key, f"--{key}")
        for key, value in options.items()
        if key != "url" and value not in (None, ())
    ]
    if given:
        raise DraftproofError(
            "DP001",
            "--lock",
            f"with {', '.join(given)}",
            "--lock alone, or with --url",
            "Leave the others out.",
        )


def _check_lock(lock: Path, url: str | None, api_key_env: str | None, as_json: bool) -> int:
    """Findings of what differs from the record at `lock`."""
    from draftproof.cli import check_text
    from draftproof.cli.check_input import address_of
    from draftproof.configs.lock.checking import check_lock
    from draftproof.core.finding import Severity
    from draftproof.measure.probe.secret import key_from_environment

    address = None if url is None else address_of(url)
    key = None
    if api_key_env is not None:
        key_from_environment(api_key_env, os.environ)  # says what is wrong with it
        key = os.environ[api_key_env].strip()
    line = output.ProgressLine()
    try:
        findings = check_lock(
            lock, address, api_key=key, progress=lambda name: line.show(0, 1, f"reading {name}")
        )
    finally:
        line.clear()
    if as_json:
        output.print_json({"lock": str(lock), "findings": [finding.as_dict() for finding in findings]})
    else:
        check_text.show_findings(f"deployment record {lock}", findings)
    errors = any(finding.severity is Severity.ERROR for finding in findings)
    return output.VIOLATION if errors else output.DONE


def _judge_all(cases: Any) -> Judgement:
    """All cases taken together: a cascade's parts are judged one by one, and each thing is said once."""
    from draftproof.configs.rules.judging import Judgement, judge
    from draftproof.configs.rules.registry import rules_of

    judged = [judge(case, rules_of()) for case in cases]
    findings = tuple(dict.fromkeys(finding for part in judged for finding in part.findings))
    order = ("error", "warning", "info")
    return Judgement(
        tuple(sorted(findings, key=lambda finding: order.index(finding.severity.value))),
        tuple(dict.fromkeys(code for part in judged for code in part.checked)),
        tuple(dict.fromkeys(entry for part in judged for entry in part.not_checked)),
    )
