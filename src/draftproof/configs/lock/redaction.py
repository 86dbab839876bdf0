"""Keeps secrets out of what is stored: keys, tokens, passwords and credentials in arguments, variables and URLs.

Called before a deployment record is written. Rather hides a harmless value than shows a secret one; numbers of tokens,
token ids and names of key files or variables are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "[redacted]"

_ALWAYS = frozenset((
    "password", "passwd", "secret", "secrets", "credential", "credentials", "authorization", "bearer", "apikey", "auth",
    "authtoken", "passphrase", "cookie", "jwt",
))  # fmt: skip
_ENDINGS = ("password", "passwd", "passphrase", "secret", "apikey", "authtoken", "accesskey")
"""Of words that are written in one, such as PGPASSWORD."""
_LAST = frozenset(("key", "keys", "token", "pat", "pass", "pw", "sig", "signature"))
_LAST_OF_SEVERAL = frozenset(("pwd",))
"""Alone it is the working directory."""
_IDS = (("access", "key", "id"), ("secret", "id"))
"""Names that end as a harmless one does."""
_SHORT = frozenset(("-hft",))
"""Flags whose name does not tell: llama.cpp's --hf-token (b11434)."""
_LONG = ("--api-key", "--hf-token", "--admin-api-key")
"""Flags of the engines that argparse takes by their beginning, too."""
_SHORTEST_BEGINNING = 6
_HARMLESS_BEFORE = frozenset((
    "eos", "bos", "pad", "mask", "unk", "sep", "cls", "stop", "noise", "image", "special", "per", "think", "end",
    "start", "primary", "foreign", "sort", "cache", "public", "fc", "first", "ptd", "pard", "no", "phase",
))  # fmt: skip
_NOT_THE_SECRET = frozenset(("env", "file", "path", "name", "id", "ids", "length", "type", "dir", "header"))
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")

_SHAPES = re.compile(
    r"""
      \bhf_[A-Za-z0-9]{8,} | \bsk-[A-Za-z0-9_-]{8,} | \bnvapi-[A-Za-z0-9_-]{8,} | \bgh[pousr]_[A-Za-z0-9]{16,}
    | \bgithub_pat_\w{16,} | \bAKIA[A-Z0-9]{12,} | \bxox[abprs]-[A-Za-z0-9-]{8,} | \bfw_[A-Za-z0-9]{16,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]* | \bAIza[A-Za-z0-9_-]{20,} | \bglpat-[A-Za-z0-9_-]{8,}
    """,
    re.VERBOSE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)[ ]+[^\s\"',;]+", re.IGNORECASE)
_USER_INFO = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)[^\s/@\"']+@")
_QUERY = re.compile(r"([?&;]([A-Za-z0-9_.-]{1,60})=)[^&;\s\"'#]+")
_NAMED = re.compile(
    r"""(?P<before>(?P<quote>["']?)(?P<name>[A-Za-z_][\w.-]{0,60})(?P=quote)[ \t]*[:=](?:\s*(?=["'\[])|[ \t]*))"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|\[[^\]]*\]|[^\s,;&}\]"']+)"""
)
_PAIR = re.compile(
    r"""(?P<before>\bname["']?[ \t]*:[ \t]*["']?(?P<name>[A-Za-z_][\w.-]{0,60})["']?\s*,?\s*"""
    r"""["']?value["']?[ \t]*:[ \t]*["']?)[^\s,;}\]"']+"""
)
"""A variable of a container: {name: NAME, value: VALUE}."""
_FLAG_IN_A_LIST = re.compile(
    r"""(?P<before>(?P<name>--?[A-Za-z][\w.-]{0,60})(?:["']\s*,\s*["']|["']?\s*\n\s*-\s+["']?|,[ \t]*))"""
    r"""(?!-)[^\s,}\]"']+"""
)
"""Arguments as JSON or YAML writes them."""
_FLAG_AND_VALUES = re.compile(
    r"(?P<flag>--?[A-Za-z][\w.-]{0,60})(?P<values>(?:[ \t]+(?![-\\])(?:\"[^\"]*\"|'[^']*'|\S+))+)"
)


def is_secret_name(name: str) -> bool:
    """Whether a flag, a key or a variable of this name holds a secret itself."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if name in _SHORT or any(tuple(words[-len(end) :]) == end for end in _IDS):
        return True
    if len(name) >= _SHORTEST_BEGINNING and any(flag.startswith(name) for flag in _LONG):
        return True
    if not words or words[-1] in _NOT_THE_SECRET:
        return False
    if _ALWAYS & set(words) or any(word.endswith(_ENDINGS) for word in words):
        return True
    if len(words) > 1 and words[-1] in _LAST_OF_SEVERAL:
        return True
    return words[-1] in _LAST and not (len(words) > 1 and words[-2] in _HARMLESS_BEFORE)


def redact_text(text: str) -> str:
    """`text` with every value that a name or its own shape gives away replaced by `HIDDEN`."""
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _QUERY.sub(lambda match: match[1] + HIDDEN if is_secret_name(match[2]) else match[0], text)
    text = _hide_named(text)
    text = _PAIR.sub(_hide_second, text)
    text = _FLAG_IN_A_LIST.sub(_hide_second, text)
    return _FLAG_AND_VALUES.sub(
        lambda match: f"{match['flag']} {HIDDEN}" if is_secret_name(match["flag"]) else match[0], text
    )


def _hide_second(match: re.Match[str]) -> str:
    return f"{match['before']}{HIDDEN}" if is_secret_name(match["name"]) else match[0]


def _hide_named(text: str) -> str:
    """Values of NAME=VALUE and NAME: VALUE; a value may itself be such a pair (`Environment=NAME=VALUE`)."""
    parts: list[str] = []
    done = position = 0
    while (match := _NAMED.search(text, position)) is not None:
        position = match.start("value")
        if is_secret_name(match["name"]) and HIDDEN not in match["value"]:
            quote = match["value"][0] if match["value"][0] in "\"'" else ""
            parts += [text[done:position], quote, HIDDEN, quote]
            done = position = match.end()
    return "".join([*parts, text[done:]])


def redact_words(words: Iterable[str]) -> list[str]:
    """The same of a command's arguments; every word that follows a flag with a secret name is hidden."""
    shown: list[str] = []
    hiding = False
    for word in words:
        name, equals, _ = word.partition("=")
        if word.startswith("-") and len(word) > 1:
            hiding = is_secret_name(name) and not equals
            shown.append(f"{name}={HIDDEN}" if equals and is_secret_name(name) else redact_text(word))
        else:
            shown.append(HIDDEN if hiding else redact_text(word))
    return shown


def redact(value: Any) -> Any:
    """The same of any JSON value: lists of texts count as arguments, keys as names."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret_name(str(key)) and part not in (None, True, False) else redact(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        if all(isinstance(part, str) for part in value):
            return redact_words(value)
        return [redact(part) for part in value]
    return value
