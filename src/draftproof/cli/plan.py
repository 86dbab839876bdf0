"""`draftproof plan`: what target, drafter and caches take, and how many requests fit, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import Within, json_option, parse_bytes, parse_counts
from draftproof.core.errors import DraftproofError
from draftproof.core.files import write_whole

if TYPE_CHECKING:
    pass


@click.command(
    name="plan",
    short_help="Memory and concurrent requests, with and without speculation.",
    epilog=output.examples(
        "draftproof plan smollm2-135m --memory 4GiB --engine draftproof",
        "draftproof plan smollm2-135m --memory 8GiB --context 2048 --engine vllm==0.33.0 "
        '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'',
    ),
)
@click.argument("target", required=False)
@click.option(
    "--draft", metavar="D", help="The drafter's checkpoint; overrides `model` of the configuration."
)
@click.option(
    "--speculative-config", "speculative", metavar="JSON|FILE", help="As for `draftproof generate`."
)
@click.option(
    "--command", "command_line", metavar="TEXT", help="A whole command line, such as 'vllm serve …'."
)
@click.option(
    "--memory", type=parse_bytes, required=True, metavar="BYTES", help="Of one device, such as 24GiB."
)
@click.option(
    "--context",
    type=click.IntRange(1, 1 << 24),
    help="Tokens per request. Default: 8192, or what the model has.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1 << 16), help="Requests that shall run at the same time."
)
@click.option(
    "--engine",
    metavar="E[==VERSION]",
    help="Whose memory is planned. Default: the engine of --command, else draftproof.",
)
@click.option("--fraction", type=Within(0.01, 1.0), help="Of memory, as the engine defines it.")
@click.option("--dtype", help="Of floats in weights, and of activations. Default: auto.")
@click.option("--kv-dtype", help="Of the cache, such as fp8. Default: as --dtype.")
@click.option("--draft-kv-dtype", help="Of the drafter's cache.")
@click.option(
    "--draft-window", type=click.IntRange(1, 1 << 24), help="Tokens that the drafter's cache keeps."
)
@click.option("--tensor-parallel", type=click.IntRange(1, 1024), help="Devices that share each layer.")
@click.option(
    "--pipeline-parallel", type=click.IntRange(1, 1024), help="Stages that the layers are cut into."
)
@click.option(
    "--stage-layers",
    type=parse_counts,
    metavar="N,N…",
    help="Layers of each stage. Default: as the engine cuts.",
)
@click.option("--draft-tensor-parallel", type=click.IntRange(1, 1024), help="The same for the drafter.")
@click.option("--page-size", type=click.IntRange(1, 65536), help="Tokens per page of the cache.")
@click.option("--max-batched-tokens", type=click.IntRange(1, 1 << 24), help="Rows of the largest pass.")
@click.option(
    "--runtime-bytes",
    type=parse_bytes,
    metavar="BYTES",
    help="Of context and libraries, in place of our assumption.",
)
@click.option(
    "--graph-bytes", type=parse_bytes, metavar="BYTES", help="Of captured graphs, in place of our assumption."
)
@click.option(
    "--activation-bytes", type=parse_bytes, metavar="BYTES", help="Of activations, in place of our estimate."
)
@click.option(
    "--chart", metavar="FILE.svg|-", help="Requests over context: to a file, or - for the terminal."
)
@json_option
def command(target: str | None, chart: str | None, as_json: bool, **options: Any) -> int:
    """Plan the memory of TARGET: a directory, a GGUF file, a name of `draftproof models list`, or a hub id.

    Each part is shown with its bytes and how sure they are. What is not known of an engine is an assumption, said as
    such, and can be set. Nothing is loaded or started.
    """
    from draftproof.cli import plan_input, plan_text
    from draftproof.planning.chart import svg_chart, text_chart
    from draftproof.planning.memory import contexts_up_to, curve

    asked = plan_input.read(target, options)
    context = asked.context
    longest = asked.setup.target.context_length
    points = curve(asked.setup, contexts_up_to(longest, context))
    if chart not in (None, "-"):
        title = f"{asked.target}, {asked.setup.rules.title}, {asked.setup.memory / 2**30:g} GiB"
        write_file(Path(str(chart)), svg_chart(points, title, longest))
    if as_json:
        output.print_json(plan_text.document(asked, points))
        return output.DONE
    for line in plan_text.lines(asked):
        click.echo(line)
    if chart == "-":
        click.echo()
        for line in text_chart(points, longest):
            click.echo(line)
    elif chart is not None:
        output.note(f"chart: {chart}")
    return output.DONE


def write_file(path: Path, text: str) -> None:
    """Raises DP002 where it cannot be written."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise DraftproofError(
            "DP002", str(path), error.strerror or error, "a place to write to", "Name another file."
        ) from error
