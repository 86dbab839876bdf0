"""The one exception that a user's mistake raises.

Every module may raise it; the command line turns it into exit status 2 and the server into an OpenAI error
object. Codes are stable: scripts match on them, `docs/errors.md` lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

CODES: dict[str, str] = {
    "DP001": "bad usage of a command",
    "DP002": "a file named on the command line cannot be read, written or decoded",
    "DP003": "a file of requests: a line that is not one",
    "DP101": "speculation: unknown method",
    "DP102": "speculation: unknown key",
    "DP103": "speculation: value out of range or of the wrong type",
    "DP104": "speculation: keys that contradict each other",
    "DP105": "speculation: a spelling of another engine that is deprecated or removed",
    "DP106": "speculation: the method is not built yet, or this checkpoint does not have it",
    "DP110": "translation: an engine that is not known",
    "DP111": "translation: text that the named engine's dialect does not understand",
    "DP112": "translation: a version of an engine whose rules were not read",
    "DP113": "translation: the engine cannot say this at all",
    "DP120": "providers: a provider or deployment type that the table does not have",
    "DP121": "endpoint: an address that is none, or has credentials in it",
    "DP122": "endpoint: it cannot be reached, or does not answer as chat completions do",
    "DP123": "endpoint: it refuses the plainest request",
    "DP124": "endpoint: it serves several models, or lists none, and none was named",
    "DP125": "probe: the cost was not confirmed, or is beyond the budget",
    "DP126": "endpoint: no usable key in the environment variable",
    "DP201": "sampling: value out of range or of the wrong type",
    "DP202": "sampling: parameters that contradict each other",
    "DP301": "request: the prompt is empty",
    "DP302": "request: the prompt is longer than the context",
    "DP303": "request: a token id outside the vocabulary",
    "DP304": "request: the chat messages do not fit the model's template",
    "DP305": "request: it can never fit into the cache",
    "DP306": "request: its id is already in use",
    "DP307": "request: text that is not Unicode",
    "DP308": "request: a field of the wrong type",
    "DP309": "engine: a call within another, from a second thread or from within a round",
    "DP401": "checkpoint: not found",
    "DP402": "checkpoint: a file is broken or truncated",
    "DP403": "checkpoint: architecture not supported",
    "DP404": "checkpoint: a tensor is missing, unexpected or of the wrong shape",
    "DP405": "checkpoint: no tokenizer, or one that is not supported",
    "DP406": "checkpoint: a configuration value is missing or not supported",
    "DP407": "checkpoint: pickled weights are refused",
    "DP411": "hub or server: unreachable, too slow or failing",
    "DP412": "hub or server: access refused, or too many requests",
    "DP413": "hub or server: answers that contradict what was asked",
    "DP414": "hub: not to be asked (offline), and the local cache does not have it",
    "DP431": "deployment record: not one, or of another version",
    "DP432": "deployment record: a verdict that is no report of a measurement, or one of another engine",
    "DP501": "model: the target's logits are not finite",
    "DP601": "download: failed or its SHA-256 does not match",
    "DP602": "install: an extra that this command needs is not installed",
    "DP701": "engine: not enough memory",
    "DP702": "engine: the native kernels were asked for and cannot be had",
    "DP703": "engine: the device was asked for and cannot be had",
    "DP704": "engine: an option that this version does not have",
    "DP801": "drafter: its vocabulary does not fit the target's",
    "DP802": "drafter: it is not smaller than the target",
    "DP803": "drafter: it is a head of another method, not a model of its own",
    "DP901": "a fault of draftproof's own that ended one request",
}


def _shown(text: str) -> str:
    """Names and values may come from hostile files: control characters and lone surrogates are spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class DraftproofError(Exception):
    """A mistake of the user's, or a fault in what the user gave us.

    `field` names what was wrong (an option, a key path, a file), `found` what was there, `expected` what would
    have been right, `remedy` what to do now.
    """

    def __init__(self, code: str, field: str, found: object, expected: str, remedy: str) -> None:
        assert code in CODES, f"undocumented error code {code}"
        self.code = code
        self.field = _shown(field)
        self.found = _shown(str(found))
        self.expected = expected
        self.remedy = remedy
        found_here = self.found.rstrip(".")
        super().__init__(f"{code} {self.field}: found {found_here}; expected {expected}. {remedy}")

    def of(self, field: str) -> DraftproofError:
        """The same fault under another field: the option or the key that the user wrote."""
        return DraftproofError(self.code, field, self.found, self.expected, self.remedy)

    def as_dict(self) -> dict[str, str]:
        """The five parts, for `--json` and for the server."""
        return {
            "code": self.code,
            "field": self.field,
            "found": self.found,
            "expected": self.expected,
            "remedy": self.remedy,
        }


_ARGUMENTS = ("TARGET", "MODEL", "checkpoint")
"""How a checkpoint is called where nobody knows by which option it was named."""


@contextmanager
def named_by(field: str, called: Collection[str] = _ARGUMENTS) -> Iterator[None]:
    """Faults of what is called one of `called` name `field`: the option or the key by which the user named it."""
    try:
        yield
    except DraftproofError as error:
        if error.field not in called:
            raise
        raise error.of(field) from error
