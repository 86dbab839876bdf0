"""From the logits of a pass to what each sampling request may emit. Called once per round by the engine.

Puts every row through its request's sampling parameters, lets `verify` decide, and stops a request at a row that
is no distribution (NaN logits, nothing left that may come next) exactly where plain decoding would have stopped.
"""

from __future__ import annotations

import math
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
from draftproof.ops.sampling import greedy_tokens, probabilities, row_error, tokens_along_path
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
    drafted   the draft's tokens (of a tree: all nodes)
    logits    float32 [num_rows, vocab]: the request's rows of the pass, root first
    """

    run: tuple[int, ...]
    verdict: Verdict
    error: DraftproofError | None
    logprobs: list[TokenLogprobs] | None
    drafted: list[int]
    logits: Tensor

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
    rows = _RequestRows.split(result, sequences, draft)
    target = _target_rows(rows, result)
    verdicts = verify(draft, target, [r.sequence.rule for r in rows], [r.sequence.noise_key for r in rows])
    return [request.judgement(verdict) for request, verdict in zip(rows, verdicts, strict=True)]


@dataclass(frozen=True, slots=True)
class _RequestRows:
    """One request's rows of the pass and its draft, as plain lists."""

    sequence: Sequence
    logits: Tensor  # float32 [num_nodes + 1, vocab]
    draft_tokens: list[int]
    parent_rows: list[int]
    processed: dict[int, Tensor] = field(default_factory=dict)
    """Rows that went through the sampling parameters already, [1, vocab] by row."""

    @staticmethod
    def split(result: PassResult, sequences: Seq[Sequence], draft: DraftBatch) -> list[_RequestRows]:
        tokens, parents, offsets = (
            draft.tokens.tolist(),
            draft.parent_rows.tolist(),
            draft.node_offsets.tolist(),
        )
        return [
            _RequestRows(
                sequence,
                result.logits[result.row_offsets[index] : result.row_offsets[index + 1]],
                tokens[offsets[index] : offsets[index + 1]],
                parents[offsets[index] : offsets[index + 1]],
            )
            for index, sequence in enumerate(sequences)
        ]

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
            processed = self.process(row, verdict.tokens[:index])
            error = self._row_error(row, processed[0], run[index])
            if error is not None:
                run = run[:index]
                verdict = Verdict(verdict.path[:index], verdict.tokens[:index], verdict.next_token)
                break
            if logprobs is not None and params.logprobs is not None:
                source = self.logits[row] if params.logprobs_mode == "raw" else processed[0]
                logprobs.append(token_logprobs(source, run[index], params.logprobs))
        return Judgement(run, verdict, error, logprobs, self.draft_tokens, self.logits)

    def _row_error(self, row: int, processed: Tensor, token: int) -> DraftproofError | None:
        """Why nothing can be emitted from a row, or None. `processed` [vocab]; `token` was chosen from it."""
        # The best of a row with a NaN or an infinity is not finite itself: no second look at the vocabulary.
        is_best = self.sequence.rule is Rule.MATCH and self.sequence.sampling.leaves_logits
        if is_best and math.isfinite(float(self.logits[row, token])):
            return None
        return row_error(self.logits[row], processed)


def _target_rows(rows: list[_RequestRows], result: PassResult) -> TargetRows:
    """Own tokens for requests judged by matching, distributions for the others."""
    num_rows = result.row_offsets[-1]
    if all(r.sequence.rule is Rule.MATCH and r.sequence.sampling.leaves_logits for r in rows):
        return _tokens_only(greedy_tokens(result.logits))
    tokens = [0] * num_rows
    prob_rows = [0] * num_rows
    probs: list[Tensor] = []
    num_prob_rows = 0
    for first_row, request in zip(result.row_offsets, rows, strict=False):
        stop = first_row + len(request.draft_tokens) + 1
        if request.sequence.rule is not Rule.MATCH:
            probs.append(probabilities(request.sequence.sampling.process(request.logits, request.prefixes())))
            prob_rows[first_row:stop] = range(num_prob_rows, num_prob_rows + stop - first_row)
            num_prob_rows += stop - first_row
        elif request.sequence.sampling.leaves_logits:
            tokens[first_row:stop] = greedy_tokens(request.logits).tolist()
        else:
            tokens[first_row:stop] = tokens_along_path(
                request.draft_tokens, request.parent_rows, request.own_token
            )
    if not probs:
        return _tokens_only(torch.tensor(tokens))
    return TargetRows(torch.tensor(tokens), torch.tensor(prob_rows), torch.cat(probs))


def _tokens_only(tokens: Tensor) -> TargetRows:
    """`tokens` int64 [num_rows]"""
    return TargetRows(tokens, torch.zeros_like(tokens), torch.zeros((0, 0), dtype=torch.float64))
