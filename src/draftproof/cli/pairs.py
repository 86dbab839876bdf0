"""`draftproof pairs`: which drafters are documented for a target, by whom and when, or that none is known."""

from __future__ import annotations

from typing import Any

import click

from draftproof.cli import output
from draftproof.cli.options import json_option
from draftproof.cli.targets import Target, open_local
from draftproof.configs.identity import Identity, Match, identify, match
from draftproof.configs.pairs import Catalogue, Pair, load_catalogue
from draftproof.core.finding import Source

ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "transformers", "openvino", "fireworks")
METHODS = ("mtp", "eagle3", "p_eagle", "eagle", "dflash", "dspark", "pard", "draft_model")


@click.command(
    name="pairs",
    short_help="Drafters that are documented for a target.",
    epilog=output.examples(
        "draftproof pairs Qwen/Qwen3-8B", "draftproof pairs XiaomiMiMo/MiMo-7B-Base --engine vllm --json"
    ),
)
@click.argument("target")
@click.option("--engine", type=click.Choice(ENGINES), help="Only pairs whose sources name this engine.")
@click.option("--method", type=click.Choice(METHODS), help="Only pairs by this method.")
@json_option
def command(target: str, engine: str | None, method: str | None, as_json: bool) -> int:
    """List the drafters that are documented for TARGET: a hub id, a directory, or a GGUF file.

    Each pair comes with its source and the date on which it was read. What a source reports of acceptance is its own
    claim, measured nowhere by draftproof. A model of the same family or of the same shape is not taken for the target.
    """
    catalogue = load_catalogue()
    opened = open_local(target)
    identity = identify(target, opened.view)
    found = match(identity, catalogue)
    pairs = [pair for pair in found.pairs if _is_asked(pair, engine, method)]
    if as_json:
        output.print_json(_document(opened, catalogue, found, pairs))
        return output.DONE
    known_as = f"{found.model} ({found.claim.where})" if found.claim and found.model else target
    asked = " ".join(f"for {word}" for word in (engine, method) if word)
    stock = f"catalogue of {catalogue.date}, {len(catalogue.pairs)} pairs"
    count = f"{len(pairs)} known" if pairs else "none known"
    click.echo(f"{known_as}: {count}{f' {asked}' if asked else ''} ({stock})")
    if len(pairs) < len(found.pairs):
        click.echo(f"{len(found.pairs) - len(pairs)} more for other engines or by other methods.")
    for pair in pairs:
        click.echo("\n" + "\n".join(_lines(pair)))
    for line in _hints(target, identity, catalogue, found):
        click.echo(f"\n{line}")
    return output.DONE


def _is_asked(pair: Pair, engine: str | None, method: str | None) -> bool:
    return (engine is None or engine in pair.engines) and (method is None or method == pair.method)


def _lines(pair: Pair) -> list[str]:
    drafter = pair.drafter or "built into the target's checkpoint"
    engines = ", ".join(pair.engines) or "no engine named by the source"
    depth = f", {pair.depth} draft tokens" if pair.depth else ""
    lines = [f"{pair.method}  {drafter}", f"    served by  {engines}{depth}"]
    for report in pair.acceptance:
        at = f" at {report.depth} draft tokens" if report.depth else ""
        lines.append(
            f"    reported   {report.length} tokens per round{at} by {report.by}: {report.condition}"
        )
    lines += [f"    trouble    {trouble.text} ({trouble.source.name})" for trouble in pair.trouble]
    lines += [f"    source     {_cited(source)}" for source in pair.sources]
    return lines


def _cited(source: Source) -> str:
    return f"{source.name}, read {source.read}" + (f"\n               {source.url}" if source.url else "")


def _hints(target: str, identity: Identity, catalogue: Catalogue, found: Match) -> list[str]:
    """What may help where the target is not known, and what the name is known as besides."""
    lines = []
    served = sorted({pair.target for pair in catalogue.of_drafter(target)})
    if served:
        lines.append(f"{target} is known as a drafter itself, of {', '.join(served)}.")
    if found.same_shape:
        lines.append(
            f"Its shape ({identity.shape}) is that of {', '.join(found.same_shape)}. Models tuned from one another "
            f"share a shape, so this does not say which it is. If you know: draftproof pairs {found.same_shape[0]}"
        )
    similar = () if found.model or served else catalogue.similar(target)
    if similar:
        lines.append(f"Names that look alike, which are not taken for it: {', '.join(similar)}")
    if found.claim is not None and found.claim.is_of_files:
        lines.append(
            "That name is what the checkpoint's own files state; copies and fine-tuned models keep it. Whether the "
            "pair holds for this checkpoint is unproven until it is measured."
        )
    return lines


def _document(opened: Target, catalogue: Catalogue, found: Match, pairs: list[Pair]) -> dict[str, Any]:
    claim = found.claim
    return {
        "target": opened.reference,
        "unread": opened.unread,
        "catalogue": {"date": catalogue.date, "num_pairs": len(catalogue.pairs)},
        "known_as": None
        if claim is None
        else {"name": found.model, "stated": claim.name, "where": claim.where},
        "pairs": [pair_document(pair) for pair in pairs],
        "drafter_of": sorted({pair.target for pair in catalogue.of_drafter(opened.reference)}),
        "same_shape": list(found.same_shape),
        "similar_names": [] if found.model else list(catalogue.similar(opened.reference)),
    }


def pair_document(pair: Pair) -> dict[str, Any]:
    """A pair in a `--json` document."""
    return {
        "target": pair.target,
        "method": pair.method,
        "drafter": pair.drafter,
        "engines": list(pair.engines),
        "num_speculative_tokens": pair.depth,
        "reported_acceptance": [
            {
                "length": report.length,
                "num_speculative_tokens": report.depth,
                "by": report.by,
                "condition": report.condition,
                "source": report.source.name,
            }
            for report in pair.acceptance
        ],
        "trouble": [{"text": trouble.text, "source": trouble.source.name} for trouble in pair.trouble],
        "sources": [{"name": source.name, "url": source.url, "read": source.read} for source in pair.sources],
    }
