"""How much of a workload's answers is copied from its prompts, by replaying prompt look-up over recorded texts.

Called by `draftproof advise`. No model and no tokenizer: texts are cut into words, numbers, signs and spaces, much as
GPT-2's pre-tokeniser cuts them. A model's tokens are shorter, so counts of rounds differ from an engine's; the share
that was copied is what this measures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PIECE = re.compile(r" ?[^\W\d_]+| ?\d{1,3}| ?[^\w\s]+|_+|\s+")
MAX_PIECES = 40_000
"""Most pieces of answers that one measurement replays: beyond it requests are left out evenly."""
MAX_PROMPT_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request with the answer that it got, or that stands in for it."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class LookUpSettings:
    """n-grams of `min_ngram` to `max_ngram` pieces are looked up, `depth` pieces proposed at most."""

    min_ngram: int = 2
    max_ngram: int = 4
    depth: int = 8


@dataclass(frozen=True, slots=True)
class Copying:
    """What one replay counted; pieces of text, not tokens.

    num_requests   with an answer; of them `num_replayed` were replayed
    num_pieces     of the replayed answers
    rounds         verify passes that they would have taken; `drafted`: rounds with a proposal
    proposed, accepted   pieces
    """

    settings: LookUpSettings
    num_requests: int
    num_replayed: int
    num_pieces: int
    rounds: int
    drafted: int
    proposed: int
    accepted: int

    @property
    def copied_share(self) -> float:
        """Share of the answers' pieces that look-up had proposed."""
        return self.accepted / max(1, self.num_pieces)

    @property
    def emitted_per_round(self) -> float:
        return self.num_pieces / max(1, self.rounds)

    def as_dict(self) -> dict[str, float | int | str]:
        return {
            "unit": "pieces of text (words, numbers, signs, spaces), not tokens",
            "min_ngram": self.settings.min_ngram,
            "max_ngram": self.settings.max_ngram,
            "num_speculative": self.settings.depth,
            "num_requests": self.num_requests,
            "num_replayed": self.num_replayed,
            "num_pieces": self.num_pieces,
            "rounds": self.rounds,
            "rounds_with_draft": self.drafted,
            "proposed": self.proposed,
            "accepted": self.accepted,
            "copied_share": round(self.copied_share, 4),
            "emitted_per_round": round(self.emitted_per_round, 3),
        }


def replay(recorded: Iterable[Recorded], settings: LookUpSettings | None = None) -> Copying:
    """Plays look-up over every answer: what followed the longest n-gram's latest occurrence is proposed."""
    settings = settings or LookUpSettings()
    requests = [request for request in recorded if request.answer]
    chosen = _evenly(requests)
    rounds = drafted = proposed = accepted = num_pieces = 0
    for request in chosen:
        answer = pieces(request.answer)
        num_pieces += len(answer)
        run = _Run(pieces(request.prompt[-MAX_PROMPT_CHARS:]), settings)
        done = 0
        while done < len(answer):
            draft = run.propose()[: len(answer) - done]
            matched = _common(draft, answer[done:])
            rounds += 1
            drafted += bool(draft)
            proposed += len(draft)
            accepted += matched
            run.extend(answer[done : done + matched + 1])
            done += matched + 1
    return Copying(settings, len(requests), len(chosen), num_pieces, rounds, drafted, proposed, accepted)


def pieces(text: str) -> list[str]:
    """A text cut into words with their space, numbers of up to three digits, signs, and other spaces."""
    return _PIECE.findall(text)


def _evenly(requests: Sequence[Recorded]) -> list[Recorded]:
    """As many as stay below the bound, taken at equal distances."""
    total = sum(len(request.answer) for request in requests) // 3  # characters of a piece, roughly
    step = max(1, -(-total // MAX_PIECES))
    return list(requests[::step])


def _common(draft: Sequence[str], answer: Sequence[str]) -> int:
    for index, (ours, theirs) in enumerate(zip(draft, answer, strict=False)):
        if ours != theirs:
            return index
    return min(len(draft), len(answer))


class _Run:
    """The text so far with the latest position behind each n-gram; the n-gram at the very end is not indexed."""

    def __init__(self, prompt: list[str], settings: LookUpSettings) -> None:
        self._text: list[str] = []
        self._settings = settings
        self._behind: dict[tuple[str, ...], int] = {}
        self.extend(prompt)

    def extend(self, added: Sequence[str]) -> None:
        sizes = range(self._settings.min_ngram, self._settings.max_ngram + 1)
        for piece in added:
            end = len(self._text)
            for size in sizes:
                if size <= end:
                    self._behind[tuple(self._text[end - size : end])] = end
            self._text.append(piece)

    def propose(self) -> list[str]:
        for size in range(self._settings.max_ngram, self._settings.min_ngram - 1, -1):
            if len(self._text) >= size:
                at = self._behind.get(tuple(self._text[-size:]))
                if at is not None:
                    return self._text[at : at + self._settings.depth]
        return []
