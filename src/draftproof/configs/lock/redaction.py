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
    "authtoken", "passphrase", "cookie",
))  # fmt: skip
_LAST = frozenset(("key", "keys", "token", "pat"))
_HARMLESS_BEFORE = frozenset((
    "eos", "bos", "pad", "mask", "unk", "sep", "cls", "stop", "noise", "image", "special", "per", "think", "end",
    "start", "primary", "foreign", "sort", "cache", "public", "fc", "ptd", "pard", "no",
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
_FLAG_AND_VALUES = re.compile(
    r"(?P<flag>--?[A-Za-z][\w.-]{0,60})(?P<values>(?:[ \t]+(?![-\\])(?:\"[^\"]*\"|'[^']*'|\S+))+)"
)


def is_secret_name(name: str) -> bool:
    """Whether a flag, a key or a variable of this name holds a secret itself."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _NOT_THE_SECRET:
        return False
    if _ALWAYS & set(words):
        return True
    return words[-1] in _LAST and not (len(words) > 1 and words[-2] in _HARMLESS_BEFORE)


def redact_text(text: str) -> str:
    """`text` with every value that a name or its own shape gives away replaced by `HIDDEN`."""
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _QUERY.sub(lambda match: match[1] + HIDDEN if is_secret_name(match[2]) else match[0], text)
    text = _NAMED.sub(_hide_named, text)
    return _FLAG_AND_VALUES.sub(
        lambda match: f"{match['flag']} {HIDDEN}" if is_secret_name(match["flag"]) else match[0], text
    )


def _hide_named(match: re.Match[str]) -> str:
    if not is_secret_name(match["name"]) or HIDDEN in match["value"]:
        return match[0]
    quote = match["value"][0] if match["value"][0] in "\"'" else ""
    return f"{match['before']}{quote}{HIDDEN}{quote}"


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
