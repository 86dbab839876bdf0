"""`draftproof version`: what is installed here, and what it would do with a model on this machine."""

from __future__ import annotations

import platform
from typing import Any

import click

from draftproof import __version__
from draftproof.cli import output
from draftproof.cli.options import json_option, missing_extra
from draftproof.core.errors import DraftproofError

EXAMPLES = (
    "draftproof version",
    "draftproof version --json",
)


@click.command(
    name="version",
    short_help="Say what is installed and how models would run here.",
    epilog=output.examples(*EXAMPLES),
)
@json_option
def command(as_json: bool) -> int:
    """Say what is installed and how models would run here: kernels and precision, each with the reason."""
    document = describe()
    if as_json:
        output.print_json(document)
        return output.DONE
    machine, kernels, dtype = document["hardware"], document["kernels"], document["dtype_auto"]
    lines = {
        "draftproof": document["draftproof"],
        "python": document["python"],
        **{name: version or "not installed" for name, version in document["packages"].items()},
        "processor": f"{machine['cpu']}, {machine['num_cores']} cores ({' '.join(machine['features'])})",
        "kernels": f"{kernels['auto']}: {kernels['reason']}",
        "dtype auto": f"{dtype['dtype']}: {dtype['reason']}",
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        click.echo(f"{name.ljust(width)}  {value}")
    return output.DONE


def describe() -> dict[str, Any]:
    """The document of `version --json`, without its `schema_version`."""
    from dataclasses import asdict

    from draftproof.core.provenance import hardware, package_versions

    machine = hardware()
    versions = package_versions()
    kernels, native = _engine_choices()
    if native is None:
        native = machine.native_bfloat16
    return {
        "draftproof": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version for name, version in versions.items() if name != "draftproof"},
        "hardware": asdict(machine),
        "kernels": kernels,
        "dtype_auto": {
            "dtype": "bfloat16" if native else "float32",
            "reason": f"this processor {'multiplies' if native else 'does not multiply'} bfloat16 itself",
        },
    }


def _engine_choices() -> tuple[dict[str, object], bool | None]:
    """Which kernels `--kernels auto` takes and why, and whether the engine finds bfloat16 native (None without it).

    Builds the native kernels if that has not been done yet.
    """
    try:
        from draftproof.models.linear import has_native_bfloat16
        from draftproof.models.native import status
    except ModuleNotFoundError as error:
        mistake = missing_extra(error, "engine")
        if not isinstance(mistake, DraftproofError):
            raise
        reason = f"{mistake.found}. {mistake.remedy}"
        return {"auto": "none", "native_available": False, "reason": reason, "details": ""}, None
    found = status()
    kernels: dict[str, object] = {
        "auto": "native" if found.available else "python",
        "native_available": found.available,
        "reason": found.reason,
        "details": found.details,
    }
    return kernels, has_native_bfloat16()
