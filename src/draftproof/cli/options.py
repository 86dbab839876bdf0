"""Options that several commands share, what their values mean, and how a model is loaded with them.

Called by the commands. Checks what can be checked without loading anything heavy, so that a mistake costs
milliseconds.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from draftproof.cli import output
from draftproof.core.errors import DraftproofError
from draftproof.core.files import open_regular

if TYPE_CHECKING:
    from draftproof.engine.config import EngineConfig, OnUnfit
    from draftproof.engine.engine import Engine

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 1} | {
    letter + end: base**power
    for power, letter in enumerate("KMGT", start=1)
    for base, ends in ((1000, ("B",)), (1024, ("IB", "I")))
    for end in ends
}

_MAX_TEXT_BYTES = 64 << 20
_MAX_MEMORY = 1 << 50
_LEAST_BARE = 1 << 20
"""A number without a unit below it lacks its unit."""


def parse_bytes(text: str) -> int:
    """An amount of memory: 4GiB, 4Gi (as Kubernetes writes it), 2GB, or a plain number of bytes from 1 MiB on.

    4G is refused: it is a power of 1000 to some, of 1024 to others.
    """
    match = re.fullmatch(r"(\d{1,24}(?:\.\d{1,24})?) ?([KMGT](?:i?B|i))?", text, re.IGNORECASE)
    num_bytes = round(float(match[1]) * _UNITS[(match[2] or "").upper()]) if match else 0
    if num_bytes <= 0:
        raise click.BadParameter(f"{text!r} is not an amount of memory such as 4GiB or 512MiB.")
    if match and not match[2] and num_bytes < _LEAST_BARE:
        raise click.BadParameter(
            f"{text!r} without a unit is {num_bytes} bytes, too few for any model. With one: {text}GiB, {text}MiB."
        )
    if num_bytes > _MAX_MEMORY:
        raise click.BadParameter(f"{text!r} is more than {_MAX_MEMORY >> 30} GiB.")
    return num_bytes


def parse_counts(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them: 16,16."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts):
        raise click.BadParameter(f"{text[:80]!r} is not a list of whole numbers such as 16,16.")
    return tuple(int(part) for part in parts)


class Within(click.FloatRange):
    """A number between bounds; click's own takes nan for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")

_MODEL_OPTIONS = (
    click.option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16"]),
        default="auto",
        show_default=True,
        help="Of the cache, and of weights in floats; auto: bfloat16 where the processor has it, else float32.",
    ),
    click.option(
        "--weights",
        type=click.Choice(["native", "int8", "int4", "float"]),
        default="native",
        show_default=True,
        help="native: as the file has them, quantised ones too; int8, int4: rounded while loading; float: as --dtype.",
    ),
    click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Where the model runs; this version has cpu only.",
    ),
    click.option(
        "--memory",
        type=parse_bytes,
        metavar="BYTES",
        help="All that the process may hold, such as 4GiB: weights, caches, a drafter, room to compute in. "
        "Default: no limit, and a quarter of the machine's memory for caches.",
    ),
    click.option(
        "--max-model-len",
        type=click.IntRange(2, 2**31),
        metavar="TOKENS",
        help="Of prompt and answer together; less needs less memory. Default: what the model was made for.",
    ),
    click.option("--threads", type=click.IntRange(1, 256), help="Default: one per core."),
    click.option(
        "--kernels",
        type=click.Choice(["auto", "native", "python"]),
        default="auto",
        show_default=True,
        help="Our compiled kernels, or the same computation in PyTorch.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the model flags of one command line said."""

    dtype: str
    weights: str
    device: str
    memory: int | None
    max_model_len: int | None
    threads: int | None
    kernels: str


def model_options(command: Command) -> Command:
    """Adds the model flags; the command takes them as `**model_flags` for `ModelOptions`."""
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command


def load_engine(
    model: str, flags: ModelOptions, on_unfit: OnUnfit = "refuse", max_num_seqs: int | None = None
) -> Engine:
    """Loads a model by directory, GGUF file or catalogue name; one of the catalogue is obtained first.

    Raises DP703 for a device that this version does not have, DP602 without PyTorch, and whatever loading raises.
    """
    if flags.device != "cpu":
        raise DraftproofError(
            "DP703",
            "--device",
            flags.device,
            "cpu",
            "Leave --device out: this version runs on the processor.",
        )
    try:
        engine_class, config_class = _import_engine()
    except ModuleNotFoundError as error:
        raise missing_extra(error, "engine") from error
    path = find_model(model)
    limits: dict[str, Any] = {} if max_num_seqs is None else {"max_num_seqs": max_num_seqs}
    config = config_class(memory=flags.memory, max_model_len=flags.max_model_len, on_unfit=on_unfit, **limits)
    line = output.ProgressLine()
    line.show(0, 1, f"loading {model}")
    try:
        return engine_class.load(
            path,
            dtype=flags.dtype,
            weights=flags.weights,
            kernels=flags.kernels,
            threads=flags.threads,
            device=flags.device,
            config=config,
        )
    finally:
        line.clear()


def find_model(model: str) -> Path:
    """The path of a model; one of the catalogue is obtained first, with a progress line. Raises DP401, DP601."""
    from draftproof.models.catalogue import resolve

    line = output.ProgressLine()
    try:
        return resolve(model, lambda what, done, total: line.show(done, total, f"{what} {model}"))
    finally:
        line.clear()


def _import_engine() -> tuple[type[Engine], type[EngineConfig]]:
    from draftproof.engine.config import EngineConfig
    from draftproof.engine.engine import Engine

    return Engine, EngineConfig


def missing_extra(error: ModuleNotFoundError, extra: str) -> Exception:
    """DP602 with the command that installs it; a missing module of our own is passed through as our fault."""
    if error.name is None or error.name.partition(".")[0] == "draftproof":
        return error
    return DraftproofError(
        "DP602",
        "installation",
        f"no module {error.name!r}",
        f"the extra {extra!r}",
        f"Install it: pip install 'draftproof[{extra}]'",
    )


def read_text(path: Path, field: str) -> str:
    """A text file of the user's. Raises DP002 for one that cannot be read, is no plain file, too long or not UTF-8."""
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DraftproofError(
            "DP002",
            field,
            f"{path}: {(error.strerror if isinstance(error, OSError) else None) or error}",
            "a readable file",
            "Name an ordinary file that exists.",
        ) from error
    if len(data) > _MAX_TEXT_BYTES:
        raise DraftproofError(
            "DP002",
            field,
            f"{path}: more than {_MAX_TEXT_BYTES >> 20} MiB",
            "a text of ordinary length",
            "Name the text file itself.",
        )
    return decode(data, field, str(path))


def path_of(reference: str) -> str:
    """A name of our own catalogue as its path, any other reference as it is."""
    from draftproof.models.catalogue import CATALOGUE

    return (
        str(find_model(reference)) if reference in CATALOGUE and not Path(reference).exists() else reference
    )


def files_beside(file: Path | None) -> Callable[[str], str]:
    """Reads files that a configuration names: next to its own file, else in the working directory; ~ is the home."""
    base = Path() if file is None else file.parent
    return lambda name: read_text(base / os.path.expanduser(name), name)


def with_model(text: str, drafter: str | None, only_unsaid: bool = False) -> str:
    """`--speculative-config` with the drafter of --draft as its `model`, in place of another one unless `only_unsaid`.
    Text that is no object goes on as it is: the dialect says what is wrong, and where."""
    try:
        found = json.loads(text) if drafter is not None else None
    except ValueError:
        return text
    if not isinstance(found, dict) or (only_unsaid and found.get("model") is not None):
        return text
    return json.dumps(found | {"model": drafter})


def file_of(text: str) -> Path | None:
    """FILE of an argument @FILE."""
    return Path(os.path.expanduser(text[1:])) if text.startswith("@") else None


def decode(data: bytes, field: str, source: str) -> str:
    """UTF-8 text of `data`, without a byte order mark. Raises DP002 for anything else."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DraftproofError(
            "DP002",
            field,
            f"{source}: byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8",
            "text in UTF-8",
            "Convert it, for example with `iconv -f latin1 -t utf-8`.",
        ) from error
    if "\0" in text:
        raise DraftproofError(
            "DP002", field, f"{source}: a zero byte at {text.index(chr(0))}", "text", "Name a text file."
        )
    return text


def announce_engine(description: dict[str, Any]) -> None:
    """Two lines on standard error: what runs, and whether the promise of equal bits holds here."""
    kernels = f"{description['kernels']} kernels"
    types = ", ".join(f"{count} {name}" for name, count in description["weight_types"].items())
    output.note(
        f"{description['model']} · {description['dtype']} · weights {description['weights']} ({types}) · "
        f"{kernels} ({description['kernels_reason']})"
    )
    exactness = description["exactness"]
    promise = (
        "equal to plain decoding to the last bit" if exactness["promise"] else "NOT promised to be equal"
    )
    output.note(f"self-test: output with speculation is {promise} ({exactness['reason']})")
