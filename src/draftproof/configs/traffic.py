"""Requests recorded in a file: prompts, answers where they were kept, predictions, and the parameters that were used.

Called by advice and by whatever asks which parameters a user's traffic has. One JSON object per line, in the shapes
that people have at hand: {"prompt", "output"}, chat {"messages"} whose last one may be the answer, and logs or batch
files that keep an OpenAI request under "request" or "body" and its response under "response". Knows no engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.core.errors import DraftproofError
from draftproof.core.files import open_regular

MAX_BYTES = 64 << 20
MAX_REQUESTS = 100_000

_ANSWERS = ("output", "answer", "completion", "response", "expected", "reference")
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "min_p": (0, 0.0, None), "logit_bias": ({}, None), "logprobs": (False, None, 0), "top_logprobs": (0, None),
    "prompt_logprobs": (None, 0, False), "n": (1, None), "best_of": (1, None), "use_beam_search": (False, None),
    "presence_penalty": (0, 0.0, None), "frequency_penalty": (0, 0.0, None), "repetition_penalty": (1, 1.0, None),
    "response_format": (None, {"type": "text"}), "guided_json": (None,), "structured_outputs": (None, {}),
    "tools": (None, []), "functions": (None, []), "stop": (None, [], ""), "seed": (None,),
    "temperature": (0, 0.0, None), "top_p": (1, 1.0, None), "top_k": (0, -1, None), "bad_words": (None, []),
    "min_tokens": (0, None), "allowed_token_ids": (None, []), "logits_processors": (None, []), "echo": (False, None),
}  # fmt: skip
"""Parameters that engines treat differently under speculation → values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """`prompt` None: it has no text, but token ids or images. `answer` None: it was not kept. `parameters`: those in
    use, a value that asks for nothing aside."""

    prompt: str | None
    answer: str | None
    prediction: str | None
    parameters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Traffic:
    name: str
    requests: tuple[RecordedRequest, ...]

    @property
    def parameters(self) -> dict[str, int]:
        """Parameter → requests that use it."""
        counts = Counter(name for request in self.requests for name in sorted(request.parameters))
        return dict(counts.most_common())

    @property
    def unread(self) -> str | None:
        """What is not judged of requests without text, as a sentence."""
        count = sum(request.prompt is None for request in self.requests)
        if not count:
            return None
        return (
            f"{self.name}: {count} of {len(self.requests)} requests have no text (token ids, images): "
            "their parameters are judged, lengths and text are not"
        )


def read_traffic(path: Path) -> Traffic:
    """Raises DP002 for a file that cannot be read or is too large, DP003 for a line that is no request."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(
            path, (error.strerror if isinstance(error, OSError) else None) or str(error), "a readable file"
        ) from error
    if len(content) > MAX_BYTES:
        raise _unreadable(path, f"more than {MAX_BYTES >> 20} MiB", "a sample: a few hundred requests do")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"a byte at {error.start} that is not UTF-8", "text in UTF-8") from error
    return Traffic(path.name, tuple(_requests(path, text)))


def _requests(path: Path, text: str) -> Iterator[RecordedRequest]:
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        count += 1
        if count > MAX_REQUESTS:
            raise _unreadable(
                path, f"more than {MAX_REQUESTS} requests", "a sample: a few hundred requests do"
            )
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _no_request(path, number, str(error)[:120]) from error
        yield _request(path, number, record)
    if not count:
        raise _no_request(path, 1, "no requests at all")


def _request(path: Path, number: int, record: Any) -> RecordedRequest:
    if not isinstance(record, dict):
        raise _no_request(path, number, f"a JSON {type(record).__name__}")
    inner = next((record[key] for key in ("request", "body") if isinstance(record.get(key), dict)), record)
    answer = _answer(record)
    messages = inner.get("messages")
    if isinstance(messages, list) and messages:
        if answer is None and _role(messages[-1]) == "assistant":
            answer = _text(messages[-1].get("content"))
            messages = messages[:-1]
        prompt = "\n\n".join(filter(None, (_text(_content(message)) for message in messages))) or None
        is_request = any(_has_parts(message) for message in messages)
    else:
        given = inner.get("prompt", inner.get("text"))
        prompt = _text(given) or None
        is_request = _is_token_ids(given)
    if prompt is None and not is_request:
        raise _no_request(
            path, number, f"keys {', '.join(map(str, sorted(map(str, record))))[:120] or 'none'}"
        )
    prediction = inner.get("prediction")
    if isinstance(prediction, dict):
        prediction = prediction.get("content")
    return RecordedRequest(prompt, answer, _text(prediction), _parameters(inner))


def _answer(record: Mapping[str, Any]) -> str | None:
    for key in _ANSWERS:
        value = record.get(key)
        if isinstance(value, dict):
            value = _of_response(value)
        if isinstance(value, str) and value:
            return value
    return None


def _of_response(response: Mapping[str, Any]) -> str | None:
    """The text of a chat or text completion, also where a batch file wraps it in a body."""
    body = response.get("body", response)
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return _text(_content(choices[0].get("message"))) or _text(choices[0].get("text"))


def _has_parts(message: Any) -> bool:
    """Whether it says something that is no text, such as an image."""
    content = _content(message)
    return isinstance(content, list) and any(
        isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] != "text"
        for part in content
    )


def _is_token_ids(value: Any) -> bool:
    """Token ids of one prompt, or a list of such prompts."""
    if not isinstance(value, list) or not value:
        return False
    return all(type(part) is int for part in value) or all(
        isinstance(part, list) and part and all(type(token) is int for token in part) for part in value
    )


def _role(message: Any) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _content(message: Any) -> Any:
    return message.get("content") if isinstance(message, dict) else None


def _text(value: Any) -> str | None:
    """A string, or the texts and text parts of a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def _parameters(request: Mapping[str, Any]) -> frozenset[str]:
    sources = [request]
    for key in ("extra_body", "sampling_params", "parameters"):
        if isinstance(request.get(key), dict):
            sources.append(request[key])
    return frozenset(
        name
        for source in sources
        for name, neutral in _NEUTRAL.items()
        if name in source and source[name] not in neutral
    )


def _unreadable(path: Path, found: str, expected: str) -> DraftproofError:
    return DraftproofError("DP002", "--workload", f"{path}: {found}", expected, "Name another file.")


def _no_request(path: Path, line: int, found: str) -> DraftproofError:
    return DraftproofError(
        "DP003",
        f"{path}, line {line}",
        found,
        'one request per line, such as {"prompt": "…", "output": "…"} or {"messages": […]}',
        "Mend or remove the line.",
    )
