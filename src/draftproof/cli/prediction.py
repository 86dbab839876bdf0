"""`draftproof probe --prediction-file`: the prediction to paste, and when not to send it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import read_text
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.configs.providers import DeploymentType


def predict(given: dict[str, Any], row: DeploymentType | None, as_json: bool) -> int:
    """The prediction on standard output, advice on standard error; both in the document with --json."""
    from draftproof.measure.probe.prediction import advise_prediction

    if given["provider"] is not None and row is None:
        from draftproof.configs.providers import deployment_types

        types = ", ".join(known.type for known in deployment_types(given["provider"]))
        raise DraftproofError(
            "DP120",
            "--deployment",
            "no deployment type",
            f"one of {types}",
            "Name it: what is documented differs between them.",
        )
    expected = given["expected"]
    advice = advise_prediction(
        read_text(given["prediction_file"], "--prediction-file"),
        row,
        given["model"],
        _request(given["request_file"]),
        read_text(expected, "--expected") if expected is not None else None,
    )
    if as_json:
        output.print_json(advice.as_dict())
        return output.DONE
    value = advice.body if advice.body is not None else {"prediction": advice.prediction}
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))
    output.note(f"{advice.num_chars:,} characters, some {advice.num_tokens:,} tokens at most (estimated)")
    if advice.share_kept is not None:
        output.note(f"{advice.share_kept:.0%} of it is in the expected answer")
    for reason in advice.against:
        output.note(f"do not send it: {reason}")
    for text in advice.notes:
        output.note(f"note: {text}")
    return output.DONE


def _request(file: Path | None) -> dict[str, Any] | None:
    """The user's request body. Raises DP002 for what is no JSON object."""
    if file is None:
        return None
    text = read_text(file, "--request")
    try:
        body = json.loads(text)
        json.dumps(body, allow_nan=False)  # numbers that JSON does not have cannot be sent
    except (ValueError, RecursionError) as error:
        raise DraftproofError(
            "DP002", "--request", f"{file}: {error}", "a JSON object", "Check the file's syntax."
        ) from error
    if not isinstance(body, dict):
        raise DraftproofError(
            "DP002", "--request", f"{file}: no object", "a JSON object", "Give the whole request body."
        )
    return body
