"""The words of SGLang's command: launcher, abbreviations, flags that are gone or unknown.

Called by `parse`, which gives the flags their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from difflib import get_close_matches

from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.sglang import flags
from draftproof.configs.engines.told import remark_variables
from draftproof.configs.reading.options import Given, Options, is_option, number, read_options
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import Start

_GONE = frozenset((*flags.RENAMED, *flags.GONE))
_HUMAN = re.compile(r"(\d{1,18})(\.\d{1,6})?(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {"": 1} | {unit: 1000**power for power, unit in enumerate("kMGT", 1)}
_LAUNCHERS = (("-m", "sglang.launch_server"), ("sglang", "serve"))
LAUNCHER = ("python3", "-m", "sglang.launch_server")
"""How a rendered command starts, unless the text said otherwise."""


def read_flags(place: Place, words: Sequence[Word], found: Gathering) -> Options:
    options = read_options(place, words, flags.ALL, abbreviated="--", gone=_GONE)
    options = _carried(_without_renamed(place, options, found))
    remark_variables(options, found)
    if options.positional:
        word = options.positional[0]
        raise place.at(word.position).refused(word.text, "flags", "SGLang takes the model as --model-path.")
    return options


def after_launcher(place: Place, begin: Start, found: Gathering) -> list[Word]:
    """The arguments; the launcher is kept where it is not the usual one."""
    words, around = begin.words, begin.around
    texts = [word.text for word in words]
    for launcher in _LAUNCHERS:
        for start in range(len(texts) - 1):
            if (texts[start].rsplit("/", 1)[-1], texts[start + 1]) == launcher:
                if (prefix := (*around, *texts[: start + 2])) != LAUNCHER:
                    found.own("launcher", prefix, around=True)
                return _with_flag(words[start + 2 :], launcher)
    if not words or not words[0].text.startswith("-"):
        raise place.at(words[0].position if words else 0).refused(
            words[0].text if words else "nothing",
            "sglang serve, python -m sglang.launch_server, or flags alone",
            "Give SGLang's command.",
        )
    found.own("launcher", around, around=True)
    return list(words)


def _with_flag(words: Sequence[Word], launcher: tuple[str, str]) -> list[Word]:
    """`sglang serve`, and it alone, takes the model's name as its first argument."""
    first = words[0] if words else None
    if launcher != _LAUNCHERS[1] or first is None or is_option(first.text):
        return list(words)
    return [Word(flags.DIRECT["target"].name, first.position), *words]


def _without_renamed(place: Place, options: Options, found: Gathering) -> Options:
    """Takes removed flags of speculation out of the rest; refuses unknown ones, as SGLang does."""
    again: list[Word] = []
    rest: list[Word] = []
    renaming: str | None = None
    dropping = False
    for word in options.rest:
        name, equals, value = word.text.partition("=")
        if not is_option(word.text):
            if renaming:
                again.append(word)
            elif not dropping:
                rest.append(word)
            continue
        renaming, dropping = flags.RENAMED.get(name), name in flags.GONE
        if renaming:
            found.remark("removed", name, "renamed", found=word.text, today=renaming, position=word.position)
            again.append(replace(word, text=renaming + equals + value))
        elif dropping:
            found.remark("removed", name, flags.GONE[name], found=word.text, position=word.position)
        elif name.startswith(("--speculative-", "--spec-")):
            near = get_close_matches(name, flags.TABLE, n=1)
            remedy = f"Did you mean {near[0]}?" if near else "Leave it out."
            raise place.at(word.position).refused(name, f"a flag of SGLang {flags.VERSION}", remedy)
        else:
            is_complete = found.version == flags.VERSION
            found.stray(name, flags.ALL, engine="SGLang", is_complete=is_complete, position=word.position)
            rest.append(word)
    options.rest = rest
    for name, given in read_options(place, again, flags.TABLE).given.items():
        options.given.setdefault(name, given)
    return options


def _carried(options: Options) -> Options:
    """Flags that are not judged go to the rest, written out."""
    for name in [name for name in options.given if name not in flags.TABLE]:
        given = options.given.pop(name)
        values = (
            given.value if isinstance(given.value, tuple) else () if given.value is True else (given.value,)
        )
        texts = [name, *map(str, values)]
        if len(texts) == 2 and is_option(texts[1]):
            texts = [f"{name}={texts[1]}"]
        options.rest += [Word(text, given.position, quoted=True) for text in texts]
    return options


def whole_number(given: Given) -> int:
    """A number as SGLang's `human_readable_int` takes it: 32768, 32k (32,000), 32Ki (32,768)."""
    raw = str(given.value).strip()
    match = _HUMAN.fullmatch(raw)
    if match is None or (match[2] and (match[3] or "i").endswith("i")):
        return int(number(given.place, given.option.name, raw, "int"))
    unit = match[3] or ""
    if unit.endswith("i"):
        return int(match[1]) << 10 * "_KMGT".index(unit[0])
    return int(Decimal(match[1] + (match[2] or "")) * _UNITS[unit])
