"""From the logits of a pass to what each sampling request may emit. Called once per round by the engine.

Puts every row through its request's sampling parameters, lets `verify` decide, and stops a request at a row that
is no distribution (NaN logits, nothing left that may come next) exactly where plain decoding would have stopped.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.engine.request import RoundDraft
from draftproof.engine.runner import PassResult
from draftproof.engine.sequence import Sequence
from draftproof.ops.draft_batch import DraftBatch
from draftproof.ops.logprobs import TokenLogprobs, token_logprobs
from draftproof.ops.sampling import best_tokens, greedy_tokens, probabilities, row_error, tokens_along_path
from draftproof.verify import verify
from draftproof.verify.coupled import sample
from draftproof.verify.types import NoiseKey, Rule, TargetRows, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one round says of one request.

    run       tokens offered for emission: accepted ones, then the target's own; shorter when `error` cuts it
    verdict   the verdict, its path cut to rows that are usable
    error     set when the target's row behind `run` cannot be emitted from
    logprobs  an entry per token of `run`, or None when the request wants none
    rows      the request's rows of the pass, and its draft
    """

    run: tuple[int, ...]
    verdict: Verdict
    error: DraftproofError | None
    logprobs: list[TokenLogprobs] | None
    rows: _RequestRows

    @property
    def drafted(self) -> list[int]:
        """The draft's tokens (of a tree: all nodes)."""
        return self.rows.draft_tokens

    @property
    def num_proposed(self) -> int:
        return len(self.drafted)

    def shown(self, emitted: Seq[int]) -> RoundDraft | None:
        """What became of the draft, given what the stop rule let through."""
        if not self.drafted:
            return None
        num_accepted = min(len(self.verdict.path), len(emitted))
        taken = {row - 1 for row in self.verdict.path[:num_accepted]}
        return RoundDraft(
            accepted=tuple(emitted[:num_accepted]),
            correction=emitted[num_accepted] if len(emitted) > num_accepted else None,
            rejected=tuple(token for node, token in enumerate(self.drafted) if node not in taken),
        )


def judge(result: PassResult, sequences: Seq[Sequence], draft: DraftBatch) -> list[Judgement]:
    """One judgement per sampling sequence, in order."""
    if not sequences:
        return []
    tokens, parents, offsets = draft.lists
    rows = [
        _RequestRows(
            sequence,
            result,
            result.row_offsets[index],
            tokens[offsets[index] : offsets[index + 1]],
            parents[offsets[index] : offsets[index + 1]],
        )
        for index, sequence in enumerate(sequences)
    ]
    target = _target_rows(rows, result)
    verdicts = verify(draft, target, [r.sequence.rule for r in rows], [r.sequence.noise_key for r in rows])
    return [request.judgement(verdict) for request, verdict in zip(rows, verdicts, strict=True)]


@dataclass(slots=True)
class _RequestRows:
    """One request's rows of the pass, the first of them `first_row`, and its draft, as plain lists."""

    sequence: Sequence
    result: PassResult
    first_row: int
    draft_tokens: list[int]
    parent_rows: list[int]
    takes_best: bool = False
    """Whether each row's token is the best of its logits."""
    has_best: list[bool] = field(default_factory=list)
    """Per row, where it does: whether that is a finite number."""
    processed: dict[int, Tensor] = field(default_factory=dict)
    """Rows that went through the sampling parameters already, [1, vocab] by row."""

    def __post_init__(self) -> None:
        self.takes_best = self.sequence.rule is Rule.MATCH and self.sequence.sampling.leaves_logits

    @property
    def num_rows(self) -> int:
        return len(self.draft_tokens) + 1

    @property
    def logits(self) -> Tensor:
        """float32 [num_rows, vocab], root first"""
        return self.result.logits[self.first_row : self.first_row + self.num_rows]

    def prefixes(self) -> list[tuple[int, ...]]:
        """Draft tokens on the path to each row, root first."""
        prefixes: list[tuple[int, ...]] = [()]
        for token, parent in zip(self.draft_tokens, self.parent_rows, strict=True):
            prefixes.append((*prefixes[parent], token))
        return prefixes

    def process(self, row: int, prefix: tuple[int, ...]) -> Tensor:
        """Logits to choose from, [1, vocab]; `prefix` is the draft's tokens on the path to the row."""
        if row not in self.processed:
            self.processed[row] = self.sequence.sampling.process(self.logits[row : row + 1], [prefix])
        return self.processed[row]

    def own_token(self, row: int, prefix: tuple[int, ...]) -> int:
        """The target's own token of one row, greedy or under the request's noise."""
        processed = self.process(row, prefix)
        if self.sequence.request.params.is_greedy:
            return int(greedy_tokens(processed)[0])
        key = NoiseKey(self.sequence.seed, self.sequence.num_output + len(prefix))
        return int(sample(probabilities(processed), [key])[0])

    def judgement(self, verdict: Verdict) -> Judgement:
        params = self.sequence.request.params
        logprobs: list[TokenLogprobs] | None = [] if params.logprobs is not None else None
        error, run = None, verdict.run
        for index, row in enumerate((0, *verdict.path)):
            if logprobs is None and self.takes_best and self.has_best[row]:
                continue
            processed = self.process(row, verdict.tokens[:index])
            # The best of a row with a NaN or an infinity is not finite itself: no second look at the vocabulary.
            is_sound = self.takes_best and self.has_best[row]
            error = None if is_sound else row_error(self.logits[row], processed[0])
            if error is not None:
                run = run[:index]
                verdict = Verdict(verdict.path[:index], verdict.tokens[:index], verdict.next_token)
                break
            if logprobs is not None and params.logprobs is not None:
                source = self.logits[row] if params.logprobs_mode == "raw" else processed[0]
                logprobs.append(token_logprobs(source, run[index], params.logprobs))
        return Judgement(run, verdict, error, logprobs, self)


def _target_rows(rows: list[_RequestRows], result: PassResult) -> TargetRows:
    """Own tokens for requests judged by matching, distributions for the others."""
    if all(request.takes_best for request in rows):
        best, has_best = best_tokens(result.logits)
        for request in rows:
            request.has_best = has_best[request.first_row : request.first_row + request.num_rows]
        return _tokens_only(best)
    num_rows = result.row_offsets[-1]
    tokens = [0] * num_rows
    prob_rows = [0] * num_rows
    probs: list[Tensor] = []
    num_prob_rows = 0
    for request in rows:
        first_row, stop = request.first_row, request.first_row + request.num_rows
        if request.sequence.rule is not Rule.MATCH:
            probs.append(probabilities(request.sequence.sampling.process(request.logits, request.prefixes())))
            prob_rows[first_row:stop] = range(num_prob_rows, num_prob_rows + stop - first_row)
            num_prob_rows += stop - first_row
        elif request.takes_best:
            tokens[first_row:stop], request.has_best = best_tokens(request.logits)
        else:
            tokens[first_row:stop] = tokens_along_path(
                request.draft_tokens, request.parent_rows, request.own_token
            )
    if not probs:
        return _tokens_only(tokens)
    return TargetRows(torch.tensor(tokens), torch.tensor(prob_rows), torch.cat(probs))


def _tokens_only(own: list[int]) -> TargetRows:
    tokens = torch.tensor(own)
    return TargetRows(tokens, torch.zeros_like(tokens), torch.zeros((0, 0), dtype=torch.float64))
