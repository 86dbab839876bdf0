"""What every row of the target's logits goes through before a token is chosen: exactly as in plain decoding.

Called by the engine. A row is described by its request's parameters and by *its own* history: the prompt,
the committed output and, for a row behind drafted tokens, the draft's tokens on the path to it (`prefix`),
which count as output. So the row of a draft that turns out right sees what it would have seen without
speculation.

Order, as in vLLM: allowed tokens, bad tokens and sequences, EOS and stop tokens before `min_tokens` → logit
bias → penalties (repetition over prompt and output, presence and frequency over output) → temperature →
min-p → top-k → top-p. A greedy request goes as far as the penalties. Among equal logits the lower token id
comes first everywhere.

Bits: a row is computed alone, in float64, on one vector of the vocabulary's length, so its result does not
depend on the other rows of a pass or on their parameters. NumPy does the element-wise work (no thread pool
to wake for vectors of this size, and its argmax is vectorised), PyTorch the softmax. Knows no randomness
and no verification.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.core.params import SamplingParams

Row = NDArray[np.float64]

UNLIKELY = 1e-6
"""Part of the best token's probability below which no token is worth drafting."""

_FEW_TOKENS = 256
"""What a nucleus usually holds at most: so many are ranked first."""


class SamplingState:
    """One request's parameters, prepared once, and its history as far as they need it; grown by `commit`.

    `end_token_ids` are EOS (unless ignored) and the request's stop tokens.
    """

    def __init__(
        self, params: SamplingParams, prompt_ids: Sequence[int], end_token_ids: Collection[int]
    ) -> None:
        self.params = params
        self.num_output = 0
        self._end_ids = _id_array(end_token_ids)
        self._allowed_ids = None if params.allowed_token_ids is None else _id_array(params.allowed_token_ids)
        single = {sequence[0] for sequence in params.bad_token_sequences if len(sequence) == 1}
        self._bad_ids = _id_array(params.bad_token_ids | single)
        self._bad_sequences = [(s[:-1], s[-1]) for s in params.bad_token_sequences if len(s) > 1]
        self._tail: tuple[int, ...] = ()
        self._num_tail = max((len(begin) for begin, _ in self._bad_sequences), default=0)
        self._bias_ids = _id_array(params.logit_bias)
        self._bias = np.array(
            [params.logit_bias[token] for token in self._bias_ids.tolist()], dtype=np.float64
        )
        self._penalties = _Penalties(params, prompt_ids) if _Penalties.wanted(params) else None

    def commit(self, tokens: Sequence[int]) -> None:
        """Tokens that were emitted, in order."""
        self.num_output += len(tokens)
        if self._num_tail:
            self._tail = (*self._tail, *tokens)[-self._num_tail :]
        if self._penalties is not None:
            self._penalties.commit(tokens)

    @property
    def leaves_logits(self) -> bool:
        """True while the request is greedy and nothing can change the order of any row's logits."""
        return self.params.is_greedy and not self._changes_logits

    @property
    def _changes_logits(self) -> bool:
        return (
            (self.num_output < self.params.min_tokens and self._end_ids.size > 0)
            or self._allowed_ids is not None
            or self._penalties is not None
            or bool(self._bad_ids.size or self._bad_sequences or self._bias_ids.size)
        )

    def process(
        self,
        logits: Tensor,  # float32 [num_rows, vocab]
        prefixes: Sequence[Sequence[int]],  # draft tokens on the path to each row; () for the root
    ) -> Tensor:
        """Logits to choose from, float64 [num_rows, vocab], -inf for what is excluded.

        The best logit of a sampled row is 0; their softmax is the distribution to sample from. While
        `leaves_logits`, `logits` is returned as it is. A row that is not usable (see `usable_rows`) stays so.
        """
        assert logits.dim() == 2
        assert len(prefixes) == logits.shape[0]
        if self.leaves_logits:
            return logits
        rows = logits.numpy().astype(np.float64, order="C")
        # Below what float64 or float32 can hold is -inf, which is meant.
        with np.errstate(over="ignore"):
            for row, prefix in zip(rows, prefixes, strict=True):
                if self._changes_logits:
                    self._change_logits(row, prefix)
                if not self.params.is_greedy:
                    _shape_distribution(row, self.params)
        return torch.from_numpy(rows)

    def likely(self, logits: Tensor, prefix: Sequence[int]) -> tuple[Tensor, Tensor]:
        """A distribution for drafts: that of `process`, but for tokens far below the best, which are left out.

        A draft may come from any distribution (`docs/exactness.md`), and most of a vocabulary is far below: what is
        left takes a small part of the time. Not for what decides about the output.

        logits  float32 [vocab]; prefix: draft tokens on the path to the row
        Returns token ids, int64 [num_likely], ascending, and probabilities, float64 [num_likely], which sum to 1;
        both empty where `usable_rows` would be False.
        """
        row: NDArray[Any] = logits.numpy()
        nothing = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
        with np.errstate(over="ignore"):
            if self._changes_logits:
                row = row.astype(np.float64)
                self._change_logits(row, prefix)
            best = float(row.max())
            if not math.isfinite(best):
                return nothing
            temperature = 1.0 if self.params.is_greedy else self.params.temperature
            ids = np.flatnonzero(row >= best + temperature * math.log(UNLIKELY))
            values = row[ids].astype(np.float64)
            if not self.params.is_greedy:
                _shape_distribution(values, self.params)
            kept = np.flatnonzero(values > -np.inf)
        ids, values = ids[kept], values[kept]
        return torch.from_numpy(ids), torch.softmax(torch.from_numpy(values), dim=0)

    def _change_logits(self, row: Row, prefix: Sequence[int]) -> None:
        """Masks, bias and penalties, in place."""
        if self._allowed_ids is not None:
            allowed = row[self._allowed_ids]
            row.fill(-np.inf)
            row[self._allowed_ids] = allowed
        row[self._bad_ids] = -np.inf
        if self._bad_sequences:
            tail = (*self._tail, *prefix)
            for begin, last in self._bad_sequences:
                if tail[-len(begin) :] == begin:
                    row[last] = -np.inf
        if self.num_output + len(prefix) < self.params.min_tokens:
            row[self._end_ids] = -np.inf
        row[self._bias_ids] += self._bias
        if self._penalties is not None:
            self._penalties.apply(row, prefix)


class _Penalties:
    """The tokens that penalties concern and how often each occurred in the output."""

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int]) -> None:
        self._params = params
        ids = sorted(set(prompt_ids)) if params.repetition_penalty != 1.0 else []
        self._slots = {token: slot for slot, token in enumerate(ids)}
        self._ids = np.array(ids, dtype=np.int64)
        self._counts = np.zeros(len(ids))

    @staticmethod
    def wanted(params: SamplingParams) -> bool:
        return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (
            1.0,
            0.0,
            0.0,
        )

    def commit(self, tokens: Sequence[int]) -> None:
        self._ids, self._counts = self._with(tokens)
        for token in tokens:
            self._slots.setdefault(token, len(self._slots))

    def apply(self, row: Row, prefix: Sequence[int]) -> None:
        """Penalises `row` in place for a history that ends in `prefix`."""
        ids, counts = self._with(prefix) if prefix else (self._ids, self._counts)
        values = row[ids]
        repetition = self._params.repetition_penalty
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= self._params.frequency_penalty * counts
        values -= self._params.presence_penalty * (counts > 0)
        row[ids] = values

    def _with(self, tokens: Sequence[int]) -> tuple[NDArray[np.int64], Row]:
        """Token ids and their counts after `tokens` more; new tokens follow in order of appearance."""
        new: dict[int, int] = {}
        for token in tokens:
            if token not in self._slots:
                new.setdefault(token, len(self._slots) + len(new))
        counts = np.concatenate([self._counts, np.zeros(len(new))])
        for token in tokens:
            counts[new[token] if token in new else self._slots[token]] += 1
        return np.concatenate([self._ids, np.array(list(new), dtype=np.int64)]), counts


def _id_array(ids: Collection[int]) -> NDArray[np.int64]:
    return np.array(sorted(ids), dtype=np.int64)


def _shape_distribution(row: Row, params: SamplingParams) -> None:
    """Temperature, min-p, top-k and top-p, in place.

    Dividing by the temperature keeps the order of logits, so what min-p and top-k exclude is found before
    it, and only what is left is computed further.
    """
    best = row.max()
    if not math.isfinite(best):
        return
    # Relative to the best logit no temperature can overflow.
    row -= best
    kept: NDArray[np.int64] | None = None
    if params.min_p > 0:
        kept = np.flatnonzero(row >= params.temperature * math.log(params.min_p))
    if 0 < params.top_k < row.shape[0]:
        values = row if kept is None else row[kept]
        best_k = np.sort(_ranked(values, params.top_k))
        kept = best_k if kept is None else kept[best_k]
    values = row if kept is None else row[kept]
    values /= params.temperature
    if params.top_p < 1:
        nucleus = _nucleus(values, params.top_p)
        kept = nucleus if kept is None else kept[nucleus]
        values = values[nucleus]
    if kept is not None:
        row.fill(-np.inf)
        row[kept] = values


def _ranked(values: Row, num: int) -> NDArray[np.int64]:
    """Positions of the `num` largest values (all, if there are fewer), largest first, lower positions first."""
    candidates = np.arange(values.shape[0])
    if num < values.shape[0]:
        # Rounding keeps order, so this finds all that are needed and a few more, at a fraction of the time.
        rounded = values.astype(np.float32)
        candidates = np.flatnonzero(rounded >= np.partition(rounded, -num)[-num])
    return candidates[np.argsort(-values[candidates], kind="stable")[:num]]


def _nucleus(values: Row, top_p: float) -> NDArray[np.int64]:
    """Positions of the fewest values whose probabilities together reach `top_p`, ascending."""
    probs = torch.softmax(torch.from_numpy(values), dim=0).numpy()
    # Probabilities below this bound cannot sum up to 1 - top_p, so none of them is needed.
    candidates = np.flatnonzero(probs >= (1 - top_p) / probs.shape[0] * 0.999)
    probs = probs[candidates]
    # Sums from the largest on do not depend on how many are ranked, so more are ranked only where needed.
    for num in (_FEW_TOKENS, 16 * _FEW_TOKENS, probs.shape[0]):
        order = _ranked(probs, num)
        sums = np.cumsum(probs[order])
        if sums[-1] >= top_p:
            break
    num_needed = int(np.searchsorted(sums, top_p)) + 1
    return np.sort(candidates[order[:num_needed]])


def greedy_tokens(logits: Tensor) -> Tensor:
    """The best token of each row of `logits`, the lowest id among equals; int64 [num_rows]."""
    return torch.from_numpy(logits.numpy().argmax(axis=1))


def best_tokens(logits: Tensor) -> tuple[list[int], list[bool]]:
    """`greedy_tokens`, and of each row whether its best logit is a finite number."""
    rows = logits.numpy()
    tokens = rows.argmax(axis=1)
    return tokens.tolist(), np.isfinite(rows[np.arange(len(rows)), tokens]).tolist()


def probabilities(processed: Tensor) -> Tensor:
    """Softmax of each row, float64 [num_rows, vocab].

    A row that is not usable becomes a point mass on token 0, so that what is computed from it stays
    defined; the caller emits nothing from such a row.
    """
    result = torch.empty(processed.shape, dtype=torch.float64)
    for row, usable in enumerate(usable_rows(processed)):
        if usable:
            torch.softmax(processed[row], dim=0, dtype=torch.float64, out=result[row])
        else:
            result[row].zero_()[0] = 1.0
    return result


def usable_rows(logits: Tensor) -> list[bool]:
    """Per row of `logits` [num_rows, vocab]: whether a token can be chosen from it.

    False with a NaN or +inf anywhere, or with -inf everywhere.
    """
    best: list[bool] = np.isfinite(logits.numpy().max(axis=1)).tolist()
    return best


def row_error(logits: Tensor, processed: Tensor) -> DraftproofError | None:
    """What is wrong with one row that is to be emitted from (both [vocab]); None when nothing is.

    DP501 when the model's logits are not finite numbers, DP202 when the parameters leave no token. The
    caller asks only for rows on the accepted path: a row behind a rejected token never existed in plain
    decoding.
    """
    if not usable_rows(logits[None])[0]:
        return DraftproofError(
            "DP501",
            "logits",
            "NaN or infinity",
            "finite numbers",
            "The checkpoint's weights are broken or overflow in this precision; try --dtype float32.",
        )
    if not usable_rows(processed[None])[0]:
        return DraftproofError(
            "DP202",
            "sampling",
            "no token is left that may come next",
            "at least one token that is allowed, not bad and, before min_tokens, no stop token",
            "Allow more tokens, or forbid fewer.",
        )
    return None


def tokens_along_path(
    draft_tokens: Sequence[int],
    parent_rows: Sequence[int],
    choose: Callable[[int, tuple[int, ...]], int],
) -> list[int]:
    """The target's own tokens for one request that is judged by matching, one per row, root first.

    `choose(row, prefix)` gives the token of a row. It is asked only for rows that the target itself
    reaches: the root, and nodes whose token is the target's own in their parent's row. The others are 0,
    for matching never looks at them. So sampling costs as much per emitted token as in plain decoding,
    however deep the draft is.
    """
    tokens = [choose(0, ())]
    prefixes: list[tuple[int, ...] | None] = [()]
    for row, (draft_token, parent) in enumerate(zip(draft_tokens, parent_rows, strict=True), start=1):
        begin = prefixes[parent]
        prefix = (*begin, draft_token) if begin is not None and tokens[parent] == draft_token else None
        prefixes.append(prefix)
        tokens.append(0 if prefix is None else choose(row, prefix))
    return tokens
