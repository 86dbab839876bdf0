"""`draftproof generate`: one answer, with or without speculation, as a stream of text or as one document."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import (
    ModelOptions,
    announce_engine,
    decode,
    find_model,
    json_option,
    load_engine,
    model_options,
    read_text,
)
from draftproof.core.errors import DraftproofError, named_by
from draftproof.core.footprint import mib

if TYPE_CHECKING:
    from draftproof.core.intent import SpeculationIntent
    from draftproof.core.params import SamplingParams
    from draftproof.engine.config import OnUnfit
    from draftproof.engine.engine import Engine
    from draftproof.engine.request import Request, RequestOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The parts of one command line that are not about loading the model."""

    prompt: str
    raw: bool
    prediction: str
    intent: SpeculationIntent
    params: SamplingParams
    show_drafts: bool


EXAMPLES = (
    'draftproof generate smollm2-135m --prompt "Name three rivers in Germany." --max-tokens 40',
    """echo "Count to ten." | draftproof generate smollm2-135m - --speculative-config '{"method":"auto"}'""",
)


@click.command(
    name="generate",
    short_help="Answer one prompt, with or without speculation.",
    epilog=output.examples(*EXAMPLES),
)
@click.argument("model")
@click.argument("stdin", required=False, metavar="[-]")
@click.option("--prompt", help="The prompt; the model's chat template is put around it.")
@click.option("--prompt-file", type=click.Path(path_type=Path), help="A file with the prompt, UTF-8.")
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the chat template.")
@click.option(
    "--speculative-config",
    metavar="JSON|FILE",
    help='How to draft, as vLLM takes it: \'{"method": "ngram", "num_speculative_tokens": 8}\'. Methods: '
    "none, ngram, suffix, predicted, draft_model, self, cascade, auto. "
    "Default: predicted with --prediction-file, else none.",
)
@click.option(
    "--prediction-file", type=click.Path(path_type=Path), help="The expected answer, for `predicted`."
)
@click.option(
    "--on-unfit",
    type=click.Choice(["refuse", "plain"]),
    default="refuse",
    show_default=True,
    help="If the method cannot work here: stop with an error, or decode plainly and say so.",
)
@click.option("--max-tokens", type=int, default=256, show_default=True, help="Most tokens of the answer.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--top-k", type=int, default=0, show_default=True, help="0: all tokens.")
@click.option("--min-p", type=float, default=0.0, show_default=True)
@click.option(
    "--seed",
    type=int,
    help="Same seed, same text, with and without speculation (unless verification is rejection or block).",
)
@click.option("--stop", multiple=True, help="Ends the answer before this text; may be repeated.")
@click.option(
    "--show-drafts", is_flag=True, help="Mark accepted, corrected and rejected tokens as they stream."
)
@model_options
@json_option
def command(
    model: str,
    stdin: str | None,
    as_json: bool,
    show_drafts: bool,
    raw: bool,
    on_unfit: OnUnfit,
    **given: Any,
) -> int:
    """Answer one prompt with MODEL: a directory, a GGUF file, or a name from `draftproof models list`.

    The prompt comes from --prompt, --prompt-file, or `-` for standard input. The text goes to standard
    output as it is made, a summary to standard error.
    """
    flags = ModelOptions(**{name: given[name] for name in ModelOptions.__slots__})
    asked = _Asked(
        prompt=_prompt(given["prompt"], given["prompt_file"], stdin),
        raw=raw,
        prediction=_prediction(given["prediction_file"]),
        intent=_intent(given["speculative_config"], given["prediction_file"]),
        params=_params(given),
        show_drafts=show_drafts,
    )
    if on_unfit == "refuse":
        _check_drafter(asked.intent)
    engine = load_engine(model, flags, on_unfit=on_unfit, max_num_seqs=1)
    if not as_json:
        announce_engine(engine.describe())
    result = _run(engine, _request(engine, asked), asked.show_drafts, as_json)
    description = engine.describe()  # now with the drafter, which is loaded when a request asks for it
    if as_json:
        output.print_json(result_document(result, asked.intent.method, description))
    else:
        output.note(summary(result, asked.intent.method, description["drafters"]))
    if result.error is not None:
        status = output.report_mistake(DraftproofError(**result.error), as_json=False)
        return output.FAULT if result.error["code"] == "DP901" else status
    return output.DONE


def _prompt(text: str | None, file: Path | None, stdin: str | None) -> str:
    """The prompt from one source. Raises DP001 for none or several, DP002 for bad files, DP301 if empty."""
    if stdin not in (None, "-"):
        raise DraftproofError(
            "DP001", "-", stdin, "`-` or nothing after MODEL", "Quote the prompt and give it with --prompt."
        )
    sources = [
        name
        for name, given in (("--prompt", text), ("--prompt-file", file), ("-", stdin))
        if given is not None
    ]
    if len(sources) != 1:
        found = " and ".join(sources) or "no prompt"
        raise DraftproofError(
            "DP001", "--prompt", found, "one of --prompt, --prompt-file and -", "Give the prompt in one way."
        )
    if file is not None:
        text = read_text(file, "--prompt-file")
    elif stdin is not None:
        if output.is_terminal("stdin"):
            output.note("Type the prompt and end it with Ctrl-D.")
        text = decode(sys.stdin.buffer.read(), "-", "standard input")
    assert text is not None
    if not text.strip():
        raise DraftproofError(
            "DP301", sources[0], "an empty prompt", "some text", "Give a prompt that says something."
        )
    return text


def _prediction(file: Path | None) -> str:
    return read_text(file, "--prediction-file") if file is not None else ""


def _intent(config: str | None, prediction_file: Path | None) -> SpeculationIntent:
    """What to draft with. `config` is JSON where it opens with a brace, else the name of a file with JSON."""
    from draftproof.core.intent import NoSpeculation, Predicted, parse_intent

    if config is None:
        return Predicted() if prediction_file is not None else NoSpeculation()
    if config.lstrip().startswith("{"):
        return parse_intent(config)
    path = Path(config)
    if not config or not os.path.exists(path):  # unlike Path.exists, also for names too long to exist
        raise DraftproofError(
            "DP002",
            "--speculative-config",
            config or "an empty text",
            "a JSON object or a file that holds one",
            'Write it as \'{"method": "auto"}\', in quotes, or name a file that exists.',
        )
    return parse_intent(read_text(path, "--speculative-config"))


def _check_drafter(intent: SpeculationIntent) -> None:
    """Before a large target is loaded: DP401 for a draft model that is not there."""
    if intent.method == "draft_model":
        with named_by("speculation.model"):
            find_model(intent.model)


def _params(given: dict[str, Any]) -> SamplingParams:
    from draftproof.core.params import SamplingParams

    names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop")
    return SamplingParams(**{name: given[name] for name in names})


def _request(engine: Engine, asked: _Asked) -> Request:
    """A chat's template writes what the model begins texts with; a raw prompt gets it from the tokenizer."""
    prompt: str | list[int]
    if asked.raw:
        prompt = engine.tokenizer.encode(asked.prompt, add_special=True)
    else:
        prompt = engine.render_chat([{"role": "user", "content": asked.prompt}])
    return engine.make_request(prompt, asked.params, intent=asked.intent, prediction=asked.prediction)


def _run(engine: Engine, request: Request, show_drafts: bool, as_json: bool) -> RequestOutput:
    """Steps to the end of the one request; what streams goes to standard error beside a document."""
    from draftproof.cli.drafts import DraftPainter

    painter = DraftPainter(engine.tokenizer.decode, to_stderr=as_json) if show_drafts else None
    if painter is not None:
        output.note(painter.legend)
    engine.add_request(request)
    finished = None
    while engine.has_work:
        for event in engine.step():
            if painter is not None:
                painter.paint(event)
            elif not as_json:
                click.echo(event.text, nl=False)
            finished = event.finished or finished
    assert finished is not None, "the engine ran out of work without finishing the request"
    if painter is not None or not as_json:
        click.echo(err=as_json)
    return finished


def result_document(result: RequestOutput, method: str, description: dict[str, Any]) -> dict[str, object]:
    """The document of `generate --json`, without its `schema_version`. Times in seconds."""
    stats = result.stats
    document: dict[str, object] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "usage": {"prompt_tokens": result.prompt_tokens, "completion_tokens": result.completion_tokens},
        "timing": {
            "prefill_s": result.prefill_s,
            "decode_s": result.decode_s,
            "tokens_per_s": tokens_per_s(result),
        },
        "dtype": description["dtype"],
        "weights": description["weights"],
        "weight_types": description["weight_types"],
        "kernels": description["kernels"],
        "speculation": {
            "method": method,
            "rounds": stats.rounds,
            "proposed": stats.proposed,
            "accepted": stats.accepted,
            "emitted": stats.emitted,
            "acceptance_rate": stats.acceptance_rate,
            "acceptance_length": stats.acceptance_length,
            "accepted_per_position": stats.accepted_per_position,
            "proposed_per_position": stats.proposed_per_position,
            "depth_histogram": {
                str(depth): rounds for depth, rounds in sorted(stats.depth_histogram.items())
            },
            "decision_reason": result.decision_reason,
            "drafters": description["drafters"],
            "draft_s": stats.draft_s,
            "verify_s": stats.verify_s,
            "coordination_s": stats.coordination_s,
        },
    }
    return document | ({"error": result.error} if result.error is not None else {})


def summary(result: RequestOutput, method: str, drafters: Sequence[Mapping[str, Any]] = ()) -> str:
    """One line for people: how much, how fast, what the drafts were good for, and what drafters hold."""
    parts = [f"{result.prompt_tokens} + {result.completion_tokens} tokens ({result.finish_reason})"]
    rate = tokens_per_s(result)
    if rate is not None:
        parts.append(f"{rate:.1f} tokens/s")
    stats = result.stats
    if stats.acceptance_rate is not None:
        length = f"{stats.acceptance_length:.2f} tokens per round"
        parts.append(f"{method}: {stats.accepted} of {stats.proposed} drafted accepted, {length}")
    elif method != "none":
        parts.append(f"{method}: nothing was drafted")
    parts += [f"drafter: {mib(each['weights_bytes'])} of weights, {each['weights']}" for each in drafters]
    if result.decision_reason:
        parts.append(result.decision_reason)
    return " · ".join(parts)


def tokens_per_s(result: RequestOutput) -> float | None:
    """Tokens after the first per second of decoding; None where there was no second token."""
    decoded = result.completion_tokens - 1
    return decoded / result.decode_s if decoded > 0 and result.decode_s > 0 else None
