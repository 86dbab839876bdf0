"""`draftproof breakeven`: from times and acceptance to depth and schedule; from assumptions to thresholds alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from draftproof.cli import output
from draftproof.cli.options import Within, json_option, read_text
from draftproof.core.errors import DraftproofError


@click.command(
    name="breakeven",
    short_help="Which depth pays, what would have to hold, and a schedule by batch size.",
    epilog=output.examples(
        "draftproof breakeven --decode-ms 10 --draft-ms 0.8 --verify-ms 1:10,5:11.5",
        "draftproof breakeven --measured --decode-ms 10 --draft-ms 0.8 --verify-ms 1:10,5:11.5 "
        "--acceptance 0.8,0.6,0.45,0.3",
    ),
)
@click.option("--decode-ms", type=float, help="A plain round: one token per request.")
@click.option("--draft-ms", help="Per drafted token; or a list for drafts of 1, 2, … tokens.")
@click.option("--verify-ms", help="A pass; or a list for 2, 3, … rows per request; or rows:ms pairs.")
@click.option("--coordination-ms", type=float, default=0.0, show_default=True, help="The rest of a round.")
@click.option(
    "--acceptance", help="By position, such as 0.8,0.6,0.45; one number with --acceptance-kind conditional."
)
@click.option(
    "--acceptance-kind",
    type=click.Choice(["marginal", "conditional"]),
    default="marginal",
    show_default=True,
    help="marginal: of all rounds (as vLLM's metric); conditional: of rounds that accepted all before.",
)
@click.option("--measured", is_flag=True, help="These numbers were measured, at one batch size and context.")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="What generate --json printed, or a load sweep."
)
@click.option("--baseline", type=click.Path(path_type=Path), help="generate --json without speculation.")
@click.option(
    "--max-depth", type=click.IntRange(1, 128), default=8, show_default=True, help="Deepest that is shown."
)
@click.option("--hysteresis", type=Within(0, 1), default=0.03, show_default=True, help="Gain that moves K.")
@click.option("--engine", metavar="E[==VERSION]", help="Write the schedule as this engine reads it.")
@click.option(
    "--method", default="draft_model", show_default=True, help="Method that the schedule is written for."
)
@click.option("--model", help="Drafter that the schedule is written for.")
@json_option
def command(as_json: bool, **options: Any) -> int:
    """Say which depth pays, by measured times, and what acceptance it takes.

    Without --measured or --from the numbers count as assumed: then thresholds alone are printed, and no speed-up.
    """
    from draftproof.cli import breakeven_text
    from draftproof.planning.measured import with_contradictions

    asked = _from_file(options) if options["source"] is not None else _from_options(options)
    asked = tuple(with_contradictions(sweep) for sweep in asked)
    if options["engine"] is not None and not breakeven_text.has_schedule(asked, options):
        raise DraftproofError(
            "DP001",
            "--engine",
            "no schedule to write",
            "measurements at several batch sizes",
            "Give a load sweep or a report with --from, or leave --engine out.",
        )
    if as_json:
        output.print_json(breakeven_text.document(asked, options))
        return output.DONE
    for line in breakeven_text.lines(asked, options):
        click.echo(line)
    return output.DONE


def _from_file(options: dict[str, Any]) -> Any:
    from draftproof.planning.measured import plain_decode_s, read_document

    path, decode_ms = options["source"], options["decode_ms"]
    for name in ("draft_ms", "verify_ms", "acceptance", *(("decode_ms",) if options["baseline"] else ())):
        if options[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise DraftproofError("DP001", flag, "beside a file", "one of both", f"Leave {flag} out.")
    decode_s = None if decode_ms is None else _decode_ms(decode_ms) / 1000
    if options["baseline"] is not None:
        decode_s = plain_decode_s(_read_json(options["baseline"], "--baseline"), str(options["baseline"]))
    return read_document(_read_json(path, "--from"), str(path), decode_s)


def _read_json(path: Path, field: str) -> dict[str, Any]:
    from draftproof.checkpoints.files import parse_json

    return dict(parse_json(str(path), read_text(path, field)))


def _from_options(options: dict[str, Any]) -> Any:
    from draftproof.planning.breakeven import Costs, check_rates, marginal
    from draftproof.planning.measured import LONGEST, Measured, curve_of, depth_measured
    from draftproof.planning.schedule import LoadPoint

    for name in ("decode_ms", "draft_ms", "verify_ms"):
        if options[name] is None:
            flag = f"--{name.replace('_', '-')}"
            free = "; 0 for look-up, whose drafts cost next to nothing" if name == "draft_ms" else ""
            raise DraftproofError(
                "DP001", flag, "nothing", "milliseconds, or --from FILE", f"Give {flag}{free}."
            )
    if options["baseline"] is not None:
        raise DraftproofError("DP001", "--baseline", "without --from", "--from FILE", "Name both files.")
    decode_ms, coordination_ms = _decode_ms(options["decode_ms"]), options["coordination_ms"]
    if not 0 <= coordination_ms < LONGEST:
        raise DraftproofError(
            "DP001", "--coordination-ms", coordination_ms, "milliseconds from 0", "Give a time."
        )
    depth, rates = options["max_depth"], _rates(options["acceptance"])
    is_marginal = options["acceptance_kind"] == "marginal"
    if not is_marginal and len(rates) == 1:
        rates = rates * depth
    check_rates("--acceptance", rates, is_marginal)
    shares = rates if is_marginal else list(marginal(rates))
    costs = Costs(
        decode_ms / 1000,
        curve_of(_times(options["draft_ms"], "--draft-ms"), "--draft-ms", per_token=True),
        curve_of(_times(options["verify_ms"], "--verify-ms"), "--verify-ms", per_token=False),
        coordination_ms / 1000,
    )
    deepest = min(depth, len(shares)) if shares else depth
    if options["measured"]:
        deepest = depth_measured(costs, deepest, "--verify-ms")
    notes = (
        (
            "one marginal share speaks of depth 1: for the same share everywhere say --acceptance-kind conditional",
        )
        if is_marginal and len(rates) == 1 < depth
        else ()
    )
    return (Measured("as given", (LoadPoint(1, costs, tuple(shares), deepest),), notes),)


def _decode_ms(found: float) -> float:
    from draftproof.planning.measured import is_duration

    if not is_duration(found):
        raise DraftproofError("DP001", "--decode-ms", found, "milliseconds above 0", "Give a time.")
    return found


def _rates(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise DraftproofError(
            "DP001", "--acceptance", text, "shares with commas between them: 0.8,0.6", "Write them so."
        ) from error


def _times(text: str, field: str) -> object:
    """A number, numbers with commas, or pairs count:ms with commas."""
    parts = text.split(",")
    number = r"\d+(?:\.\d+)?(?:e-?\d+)?"
    if all(re.fullmatch(number, part.strip()) for part in parts):
        return [float(part) for part in parts]
    if all(re.fullmatch(rf"\d+:{number}", part.strip()) for part in parts):
        pairs = {count: float(ms) for count, ms in (part.strip().split(":") for part in parts)}
        if len(pairs) == len(parts):
            return pairs
    raise DraftproofError(
        "DP001", field, text[:80], "10.5, or 10.2,10.9,11.8, or 1:10.2,5:11.8", "Write milliseconds so."
    )
