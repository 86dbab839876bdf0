"""`draftproof models`: what can be had by name, getting it, and what a checkpoint contains."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import click

from draftproof.cli import output
from draftproof.cli.options import find_model, json_option, missing_extra
from draftproof.core.errors import DraftproofError


@click.group(
    name="models",
    short_help="List, fetch and look into models.",
    epilog=output.examples("draftproof models list", "draftproof models pull smollm2-135m"),
)
def command() -> None:
    """List the models that can be had by name, fetch one, or look into a checkpoint."""


@command.command(
    "list",
    short_help="The models that can be had by name.",
    epilog=output.examples("draftproof models list", "draftproof models list --json"),
)
@json_option
def list_models(as_json: bool) -> int:
    """List the models that can be had by name, and where those that are here lie."""
    entries = [_catalogue_entry(name) for name in _catalogue()]
    if as_json:
        output.print_json({"models": entries})
        return output.DONE
    for entry in entries:
        where = (
            entry["path"] if entry["available"] else f"not here yet: draftproof models pull {entry['name']}"
        )
        size = f"{entry['num_bytes'] / 1e6:.0f} MB"
        click.echo(f"{entry['name']}  {entry['description']}, {size}, {entry['license']}\n    {where}")
    return output.DONE


@command.command(
    short_help="Fetch a model, or mend it.",
    epilog=output.examples(
        "draftproof models pull smollm2-135m", "draftproof models pull smollm2-135m --json"
    ),
)
@click.argument("name")
@json_option
def pull(name: str, as_json: bool) -> int:
    """Fetch the model NAME. Its SHA-256 is checked; a file that is incomplete or broken is fetched again."""
    if name not in _catalogue():
        raise DraftproofError(
            "DP401", "NAME", name, f"one of {', '.join(_catalogue())}", "`draftproof models list` shows them."
        )
    path = find_model(name)
    if as_json:
        output.print_json(_catalogue_entry(name))
    else:
        click.echo(str(path))
    return output.DONE


@command.command(
    short_help="What a checkpoint contains.",
    epilog=output.examples(
        "draftproof models show smollm2-135m", "draftproof models show smollm2-135m --json"
    ),
)
@click.argument("path")
@json_option
def show(path: str, as_json: bool) -> int:
    """Show what the checkpoint PATH contains: a directory, a GGUF file, or the name of a model that is here."""
    if path in _catalogue() and not _catalogue_entry(path)["available"]:
        raise DraftproofError(
            "DP401",
            "PATH",
            f"{path}, which is not here yet",
            "a model that is here",
            f"draftproof models pull {path}",
        )
    document = _contents(find_model(path))
    if as_json:
        output.print_json(document)
        return output.DONE
    config = {name: f"{value:,}" for name, value in document.items() if isinstance(value, int)}
    lines = {
        "path": document["path"],
        "format": f"{document['format']}, {document['architecture']}",
        "parameters": config["num_parameters"],
        "tensors": ", ".join(f"{count} × {name}" for name, count in document["tensor_types"].items()),
        "layers": f"{config['num_layers']}, hidden size {config['hidden_size']}, "
        f"feed-forward {config['intermediate_size']}",
        "attention": f"{config['num_heads']} heads of {config['head_dim']}, {config['num_kv_heads']} for the cache",
        **_special_layers(document),
        "vocabulary": config["vocab_size"],
        "context": f"{config['context_length']} tokens",
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        click.echo(f"{name.ljust(width)}  {value}")
    return output.DONE


def _special_layers(document: dict[str, Any]) -> dict[str, str]:
    """What not all layers, or not all models, have."""
    lines = {}
    windows, experts = document["windows"], document["experts"]
    if windows["num_layers"]:
        lines["windows"] = f"{windows['num_tokens']:,} tokens in {windows['num_layers']} layers"
    if experts["num_layers"]:
        lines["experts"] = (
            f"{experts['num_used']} of {experts['num_experts']} in {experts['num_layers']} layers"
        )
    return lines


def _catalogue() -> dict[str, Any]:
    from draftproof.models.catalogue import CATALOGUE

    return dict(CATALOGUE)


def _catalogue_entry(name: str) -> dict[str, Any]:
    from draftproof.models.catalogue import CATALOGUE, is_available, local_path

    model = CATALOGUE[name]
    return {
        "name": model.name,
        "description": model.description,
        "license": model.license,
        "num_bytes": model.num_bytes,
        "sha256": model.sha256,
        "path": str(local_path(model)),
        "available": is_available(model),
    }


def _contents(path: Path) -> dict[str, Any]:
    """Headers and configuration alone; no weight is read. Raises DP401 to DP407, DP602 without PyTorch."""
    try:
        from draftproof.checkpoints.gguf import GgufFile, open_checkpoint
        from draftproof.checkpoints.safetensors import read_directory
        from draftproof.models.loading import load_weights
    except ModuleNotFoundError as error:
        raise missing_extra(error, "engine") from error

    checkpoint = open_checkpoint(path)
    config, weights = load_weights(checkpoint)
    if isinstance(checkpoint, GgufFile):
        types = Counter(tensor.type_name for tensor in checkpoint.tensors.values())
    else:
        types = Counter(entry.dtype for entry in read_directory(checkpoint).values())
    names = (
        "architecture", "num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "context_length", "tie_embeddings",
    )  # fmt: skip
    windows = [layer.window for layer in config.layers if layer.window is not None]
    experts = [layer.experts for layer in config.layers if layer.experts is not None]
    return {
        "path": str(path),
        "format": "gguf" if isinstance(checkpoint, GgufFile) else "safetensors",
        **{name: getattr(config, name) for name in names},
        "windows": {"num_layers": len(windows), "num_tokens": max(windows, default=0)},
        "experts": {
            "num_layers": len(experts),
            "num_experts": max((e.num_experts for e in experts), default=0),
            "num_used": max((e.num_used for e in experts), default=0),
        },
        "num_parameters": sum(math.prod(weights.shape(name)) for name in weights),
        "tensor_types": dict(types.most_common()),
    }
