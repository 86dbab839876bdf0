"""Programs that start another one: what of a command belongs to them. Called by `started`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftproof.configs.reading.images import read_image
from draftproof.configs.reading.shell import Word, assignment
from draftproof.configs.reading.start import IN_A_VARIABLE, Collected


@dataclass(frozen=True, slots=True)
class _Prefix:
    """`valued`: options that take a value as a word of its own. `operands`: words before the program. `command`: the
    word that must follow. `variables`: options that set a variable."""

    valued: str = ""
    operands: int = 0
    command: str = ""
    variables: str = ""


_MPI = _Prefix(
    "-n -np -N -H --host --hostfile -hostfile --npernode -npernode --map-by --bind-to --rank-by -wdir -c -mca --mca",
    variables="-x",
)
_SLURM = _Prefix(
    "-N -n -c -p -t -A -J -w -G --nodes --ntasks --partition --time --mpi --gpus --container-image"
)
_PREFIXES: Mapping[str, _Prefix] = {
    "sudo": _Prefix("-u --user -g --group"),
    "env": _Prefix("-u --unset -C --chdir"),
    "exec": _Prefix("-a"),
    "nohup": _Prefix(),
    "setsid": _Prefix(),
    "time": _Prefix("-f -o"),
    "nice": _Prefix("-n --adjustment"),
    "ionice": _Prefix("-c -n"),
    "chrt": _Prefix(operands=1),
    "stdbuf": _Prefix("-i -o -e"),
    "command": _Prefix(),
    "tini": _Prefix("-p -e"),
    "dumb-init": _Prefix("-r"),
    "timeout": _Prefix("-k --kill-after -s --signal", operands=1),
    "taskset": _Prefix(operands=1),
    "numactl": _Prefix(
        "-N -C -m -p -i --cpunodebind --physcpubind --membind --preferred --interleave --cpubind --weighted-interleave"
    ),
    "uv": _Prefix(
        "--with --with-requirements --with-editable -p --python --extra --group --project --directory --index-url "
        "--env-file --package --index --extra-index-url",
        command="run",
    ),
    "uvx": _Prefix("--with --from -p --python --index-url --extra-index-url"),
    "poetry": _Prefix("-C --directory", command="run"),
    "conda": _Prefix("-n --name -p --prefix --cwd", command="run"),
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "srun": _SLURM,
    "trtllm-llmapi-launch": _Prefix(),
}
"""Name → how it takes the program."""
_PYTHON = re.compile(r"(?:python[\d.]*|torchrun)(?:\.exe)?")
_PYTHON_VALUED = (
    "-X -W --nproc-per-node --nproc_per_node --nnodes --node-rank --node_rank --master-addr --master_addr "
    "--master-port --master_port --rdzv-backend --rdzv-endpoint --rdzv-id"
)
_TWO = ("-mca", "--mca")
_ENGINES = ("docker", "podman", "nerdctl")
_RUN = ("run", "create")
_SWITCHES = (
    "--detach --init --interactive --no-healthcheck --oom-kill-disable --privileged --publish-all --quiet "
    "--read-only --rm --sig-proxy --tty --disable-content-trust --replace --no-hosts --env-host --rootfs "
    "--use-api-socket --help --rmi --http-proxy --passwd --tls-verify"
)
"""Options of `docker run` and `podman run` without a value; all others take one."""
_SHORT_SWITCHES = "ditPq"


def after_prefix(words: Sequence[Word], at: int, found: Collected) -> int | None:
    """Where the program begins that `words[at]` starts; None where it is the program itself."""
    name = program(words[at])
    prefix = _PREFIXES.get(name)
    if prefix is None:
        return _after_container(words, at, found) if name in _ENGINES else None
    at += 1
    if prefix.command:
        if at == len(words) or words[at].text != prefix.command:
            return None
        at += 1
    at = _after_options(words, at, prefix, found) + prefix.operands
    while at < len(words) and (pair := assignment(words[at])):
        found.set(*pair, words[at])
        at += 1
    return min(at, len(words))


def program(word: Word) -> str:
    """The program's name without its path."""
    return word.text.rpartition("/")[2]


def without_interpreter_flags(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """`python3 -u -m module` as `python3 -m module`."""
    if not words or not _PYTHON.fullmatch(program(words[0])):
        return words
    at = 1
    while (
        at < len(words) and words[at].text.startswith("-") and words[at].text not in ("-m", "-c", "--module")
    ):
        at += 2 if words[at].text in _PYTHON_VALUED.split() else 1
    return (words[0], *words[at:])


def _after_options(words: Sequence[Word], at: int, prefix: _Prefix, found: Collected) -> int:
    valued, variables = prefix.valued.split(), prefix.variables.split()
    while at < len(words) and words[at].text.startswith("-"):
        option, equals, value = words[at].text.partition("=")
        at += 1
        if option == "--":
            break
        if option in variables and at < len(words):
            _variable(words[at], words[at].text, found)
            at += 1
        elif option == "--env-file":
            word = words[min(at, len(words) - 1)]
            found.leave("unread", option, value if equals else word.text, _FILE, word.position)
            at += not equals
        elif option in valued and not equals:
            at += 2 if option in _TWO else 1
    return at


_FILE = "a file of variables: what it sets is not known here"


def _variable(word: Word, text: str, found: Collected) -> None:
    name, equals, value = text.partition("=")
    if equals:
        found.set(name, value, word)
    else:
        found.inherit(name, word.position)


def _after_container(words: Sequence[Word], at: int, found: Collected) -> int | None:
    """What follows the image of `docker run`; its variables and its entry point count as the program's."""
    begin = at
    at += 1
    if at < len(words) and words[at].text == "container":
        at += 1
    if at >= len(words) or words[at].text not in _RUN:
        return None
    at += 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        word = words[at]
        name, value = _option(word.text)
        at += 1
        if value is None and name not in _SWITCHES.split():
            if at == len(words):
                break
            word = words[at]
            value = word.text
            at += 1
        _take_option(name, value or "", word, found)
    if at < len(words) and words[at].text == "--":
        at += 1
    if at >= len(words):
        raise found.place.at(words[begin].position).refused(
            "a container without an image", "docker run … IMAGE", "Name the image."
        )
    image = words[at]
    if image.variable is None:
        found.image = read_image(image.text)
    else:
        found.leave("unread", "image", image.text, "engine and version are in a variable", image.position)
    found.around = tuple(word.text for word in words[begin : at + 1])
    return at + 1


def _option(text: str) -> tuple[str, str | None]:
    """Name and value of an option as one word; None: the value is the next one, or there is none."""
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        return name, value if equals else None
    at = 1
    while at < len(text) - 1 and text[at] in _SHORT_SWITCHES:
        at += 1
    if text[at : at + 1] in (*_SHORT_SWITCHES, ""):
        return "--detach", None
    return f"-{text[at]}", text[at + 1 :].removeprefix("=") or None


def _take_option(name: str, value: str, word: Word, found: Collected) -> None:
    if name in ("-e", "--env"):
        variable = Word(value, word.position, variable=word.variable)
        _variable(variable, value, found)
    elif name == "--env-file":
        found.leave("unread", name, value, _FILE, word.position)
    elif name == "--entrypoint":
        found.entrypoint = Word(value, word.position, word.quoted, word.variable) if value else None
    elif word.variable is not None:
        found.leave("lost", name, value, IN_A_VARIABLE, word.position)
