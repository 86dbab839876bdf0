"""Reads `llama-server` command lines into neutral settings.

Called by the dialect. llama.cpp takes values as separate words only; an underscore in a long flag stands for a dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from draftproof.configs.engines.account import build
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.llamacpp import arguments, words
from draftproof.configs.engines.llamacpp.names import is_file
from draftproof.configs.engines.told import remark_variables, take_start
from draftproof.configs.reading.options import Option, Options, is_option, read_options
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import Start
from draftproof.configs.speculation import Speculation

_S = "speculation."
_PROGRAM = "llama-server"


def gather(place: Place, found: Gathering) -> None:
    """Raises DP111 with line and column."""
    start = take_start(place, found)
    for name in start.environment:
        if name.startswith("LLAMA_ARG_"):
            found.remark(
                "unread", name, "a flag as a variable: give it as a flag", found=start.environment[name]
            )
    given = read_options(place, _normal(place, _after_program(place, start, found)), _TABLE)
    remark_variables(given, found)
    if given.positional:
        stray = given.positional[0]
        raise place.at(stray.position).refused(
            stray.text, "flags with their values", "llama.cpp takes nothing else."
        )
    _deployment(place, given, found)
    _speculation(place, given, found)
    for item in given.overridden:
        if item.option.name != words.TYPE.name:
            found.remark(
                "deprecated",
                item.option.name,
                "given twice: llama.cpp warns, and the last one counts",
                found=str(item.value),
                position=item.position,
            )
    found.say("rest", _carried(given, found))


def _after_program(place: Place, start: Start, found: Gathering) -> Sequence[Word]:
    line, around = start.words, start.around
    if not line:
        raise place.refused(
            "nothing", f"`{_PROGRAM} …` or its flags", "Give the command that starts the server."
        )
    first = line[0]
    if is_option(first.text):
        if around:
            found.own("launcher", around, around=True)
        return line[first.text == "--server" and start.image is not None :]  # llama.cpp:full takes it first
    name = first.text.rpartition("/")[2].removesuffix(".exe")
    if name not in (_PROGRAM, "server"):
        raise place.at(first.position).refused(
            first.text, f"`{_PROGRAM} …` or its flags", "Give the command that starts the server."
        )
    if around or first.text != _PROGRAM:
        found.own("launcher", (*around, first.text) if around else first.text, around=True)
    return line[1:]


def _normal(place: Place, line: Sequence[Word]) -> list[Word]:
    """Dashes for underscores in long flags; a value behind an equals sign is refused, as llama.cpp does."""
    normal: list[Word] = []
    for word in line:
        text = word.text
        if text.startswith("--"):
            name, equals, _ = text.partition("=")
            name = name.replace("_", "-")
            if equals and (name in _TABLE):
                raise place.at(word.position).refused(
                    text,
                    f"{name} and its value as a word of its own",
                    "Write a space in place of the equals sign.",
                )
            text = text.replace("_", "-") if not equals else text
        normal.append(replace(word, text=text))
    return normal


def _deployment(place: Place, given: Options, found: Gathering) -> None:
    _model(given, words.MODEL, words.HUB, "target", found)
    context, slots = _value(given, words.CONTEXT), _value(given, words.PARALLEL)
    unified = _switch(given, words.UNIFIED, words.NOT_UNIFIED)
    for option, value in ((words.CONTEXT, context), (words.PARALLEL, slots)):
        if value is not None and value < (0 if option is words.CONTEXT else -1):
            raise place.at(given.given[option.name].position).refused(
                f"{option.name} {value}", f"{option.name} of at least 0", "Correct the value."
            )
    if slots == 0:
        raise place.at(given.given[words.PARALLEL.name].position).refused(
            "--parallel 0", "--parallel above 0, or -1 for automatic", "Correct the value."
        )
    if unified is not None:
        found.own("kv-unified", unified, around=True)
    if slots is not None and slots > 0:
        found.say("max_num_seqs", slots)
    elif slots is not None:
        found.own("parallel", slots, around=True)
    if context == 0:
        found.own("ctx-size", 0, around=True)
    elif context is not None:
        shared = unified or (slots is None or slots < 0)
        parts = 1 if shared or not slots else slots
        length = context // parts
        if length == 0:
            raise place.at(given.given[words.CONTEXT.name].position).refused(
                f"--ctx-size {context} for {slots} slots",
                f"at least {slots}",
                "Every slot gets an equal part.",
            )
        if context % parts:
            found.remark(
                "rewritten",
                words.CONTEXT.name,
                f"every slot gets an equal part, rounded up to a multiple of 256; read as {length} for each",
                found=str(context),
                today=str(length * parts),
            )
        found.say("max_model_len", length)
    caches = _switch(given, words.CACHES, words.CACHES_NOT)
    found.say("prefix_caching", caches)
    _caches(given, words.CACHE_K, words.CACHE_V, "kv_dtype", found, around=True)


def _caches(given: Options, keys: Option, values: Option, path: str, found: Gathering, around: bool) -> None:
    """One dtype where both caches have it, else each under its own name."""
    k, v = _value(given, keys), _value(given, values)
    if k is not None and k == v:
        found.say(path, words.CACHE_TYPES.get(k, k))
        return
    for option, value in ((keys, k), (values, v)):
        if value is not None:
            found.own(option.name.removeprefix("--"), value, around=around)


def _model(given: Options, file: Option, hub: Option, path: str, found: Gathering) -> None:
    """A file, or a repository with the quantisation behind a colon."""
    named, repository = _value(given, file), _value(given, hub)
    if named is not None:
        found.say(path, named)
        if not is_file(named):
            found.own(f"{path.removeprefix(_S)}-is", "file", around=path == "target")
        if repository is not None:
            found.own(hub.name.removeprefix("--"), repository, around=path == "target")
        return
    if repository is None:
        return
    name, colon, quantization = repository.partition(":")
    if not name or (colon and not quantization) or is_file(name):
        found.say(path, repository)
        found.own(f"{path.removeprefix(_S)}-is", "hub", around=path == "target")
        return
    found.say(path, name)
    if colon:
        found.say(f"{path}.quantization", quantization)


def _value(given: Options, option: Option) -> Any:
    item = given.given.get(option.name)
    return None if item is None else item.value


def _switch(given: Options, yes: Option, no: Option) -> bool | None:
    items = [given.given[option.name] for option in (yes, no) if option.name in given.given]
    return max(items, key=lambda item: item.position).option is yes if items else None


def _speculation(place: Place, given: Options, found: Gathering) -> None:
    types = _types(place, given)
    has_drafter = any(option.name in given.given for option in (words.DRAFTER, words.DRAFTER_HUB))
    if not types and has_drafter:
        types = ["draft-simple"]
        found.remark(
            "inferred",
            words.TYPE.name,
            "the type is read from the drafter's file, which is not read here: MTP, DFlash and DSpark are recognised, "
            "an ordinary model is not, and build 11434 then loads it without drafting; taken for draft-simple",
            found="no --spec-type",
            today="--spec-type draft-simple",
        )
    types = [kind for kind in words.PRIORITY if kind in types]
    values = _flag_values(place, given, types, found)
    parts = [_part(kind, given, values, found) for kind in types]
    if len(parts) == 1:
        found.settings |= {f"{_S}{path}": value for path, value in parts[0].items()}
    elif parts:
        found.say(f"{_S}method", "cascade")
        found.say(f"{_S}parts", tuple(_built(part) for part in parts))
    for option in words.OWN:
        if option.name in given.given:
            found.own(option.name.removeprefix("--"), given.given[option.name].value)
    synthetic = [option for option in words.SYNTHETIC if option.name in given.given]
    for option in synthetic:
        found.own(option.name.removeprefix("--"), given.given[option.name].value)
    if synthetic and types:
        found.say(f"{_S}verification", "lossy")


def _built(part: Mapping[str, Any]) -> Speculation:
    return build("llamacpp", {f"{_S}{path}": value for path, value in part.items()}).speculation


def _types(place: Place, given: Options) -> list[str]:
    items = [item for item in (*given.overridden, *given.given.values()) if item.option is words.TYPE]
    found: list[str] = []
    for item in sorted(items, key=lambda item: item.position):
        names = str(item.value).split(",")
        for name in names:
            if name not in (*words.PRIORITY, "none"):
                raise place.at(item.position).refused(
                    name, "one of none, " + ", ".join(words.PRIORITY), "Name types with commas between them."
                )
        found += [] if "none" in names else names
    return [*found, "ngram-mod"] if words.DEFAULT_SPECULATION.name in given.given else found


def _flag_values(place: Place, given: Options, types: Sequence[str], found: Gathering) -> dict[str, Any]:
    """Values of the flags of the types in use, those of removed spellings included; other types' flags are named."""
    in_use = {flag.name: flag for kind in types for flag in words.FLAGS[kind]}
    values: dict[str, Any] = {}
    for name, item in given.given.items():
        here = place.at(item.position)
        if name in words.REMOVED:
            today = [successor for successor in words.REMOVED[name] if successor in in_use]
            found.remark(
                "removed",
                name,
                "llama.cpp refuses it",
                found=str(item.value),
                today=" or ".join(today or words.REMOVED[name]),
                position=item.position,
            )
            for successor in today:
                values.setdefault(successor, _checked(here, in_use[successor], item.value))
        elif name in _SPECULATIVE:
            flag = _SPECULATIVE[name]
            value = _checked(here, flag, item.value)
            if name in in_use:
                values[name] = value
            else:
                found.own(name.removeprefix("--"), value)
                found.remark(
                    "ignored",
                    name,
                    f"no type in use looks at it ({', '.join(types) or 'none'})",
                    found=str(value),
                    position=item.position,
                )
    return values


def _checked(place: Place, flag: words.Flag, value: Any) -> Any:
    if flag.kind == "str" and value not in ("greedy", "probabilistic"):
        raise place.refused(f"{flag.name} {value}", "greedy or probabilistic", "Write one of these.")
    if (flag.low is not None and value < flag.low) or (flag.high is not None and value > flag.high):
        limits = f"from {flag.low} to {flag.high}" if flag.high is not None else f"at least {flag.low}"
        raise place.refused(f"{flag.name} {value}", limits, "llama.cpp refuses it: correct the value.")
    return value


def _part(kind: str, given: Options, values: Mapping[str, Any], found: Gathering) -> dict[str, Any]:
    """The neutral settings of one type."""
    said: dict[str, Any] = {"method": words.DRAFT_TYPES.get(kind, "ngram")}
    if kind in words.NGRAM_TYPES and kind != words.PLAIN_NGRAM:
        said["extras.llamacpp.type"] = kind
    for flag in words.FLAGS[kind]:
        if flag.name in values:
            said[flag.path] = values[flag.name]
    if kind in words.DRAFT_TYPES:
        inner = Gathering("llamacpp", found.version, words.SOURCE)
        _model(given, words.DRAFTER, words.DRAFTER_HUB, f"{_S}drafter", inner)
        _caches(given, words.DRAFT_CACHE_K, words.DRAFT_CACHE_V, f"{_S}draft_kv_dtype", inner, around=False)
        said |= {path.removeprefix(_S): value for path, value in inner.settings.items()}
    return said


def _carried(given: Options, found: Gathering) -> tuple[str, ...]:
    """Flags that say nothing of what is judged here, as they stand."""
    groups: list[tuple[int, list[str]]] = []
    for word in given.rest:
        if is_option(word.text):
            groups.append((word.position, [word.text]))
            found.stray(
                word.text,
                _TABLE,
                engine="llama.cpp",
                is_complete=found.version == words.READ_VERSION,
                position=word.position,
            )
        else:
            groups[-1][1].append(word.text)
    for name, item in given.given.items():
        if name in _CARRIED:
            values = (
                item.value if isinstance(item.value, tuple) else () if item.value is True else (item.value,)
            )
            groups.append((item.position, [name, *map(str, values)]))
    return tuple(text for _, texts in sorted(groups) for text in texts)


_SPECULATIVE: Mapping[str, words.Flag] = {flag.name: flag for flags in words.FLAGS.values() for flag in flags}
_CARRIED = arguments.SWITCHES | arguments.VALUES | arguments.PAIRS
_TABLE: Mapping[str, Option] = {
    spelling: option
    for option in (
        words.MODEL, words.HUB, words.DRAFTER, words.DRAFTER_HUB, words.TYPE, words.CONTEXT, words.PARALLEL,
        words.CACHE_K, words.CACHE_V, words.DRAFT_CACHE_K, words.DRAFT_CACHE_V, words.UNIFIED, words.NOT_UNIFIED,
        words.CACHES, words.CACHES_NOT, words.DEFAULT_SPECULATION, *words.SYNTHETIC, *words.OWN,
        *(Option(flag.name, flag.kind, flag.aliases) for flag in _SPECULATIVE.values()),
        *(Option(name, "int") for name in words.REMOVED),
        *(Option(name, "flag") for name in sorted(arguments.SWITCHES)),
        *(Option(name, carried=True) for name in sorted(arguments.VALUES)),
        *(Option(name, "list", carried=True) for name in sorted(arguments.PAIRS)),
    )
    for spelling in (option.name, *option.aliases)
}  # fmt: skip
