"""Look-up in C++: n-gram, suffix and predicted, alone or in order, for all requests of a round in one call.

Made by the registry where the library can be had. It drafts what `ngram.py`, `suffix.py` and `predicted.py` draft,
token for token; these say how, and run where there is no compiler. The C++ side (`kernels/`) keeps each request's
text, its index, its guesses and what they were good for, and the pools; new tokens and drafts cross over here.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import weakref
from array import array
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from draftproof.core import compilation, heap
from draftproof.core.compilation import Sources
from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NGram, Predicted, Suffix
from draftproof.kv.budget import Account, ByteBudget
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers import evidence, ngram, pool, predicted, suffix
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.verify.types import Verdict

SOURCES = Sources("look-up", Path(__file__).parent / "kernels", "look_up.cpp")

LookUpIntent = NGram | Suffix | Predicted

logger = logging.getLogger("draftproof.proposers")


class PartStruct(ctypes.Structure):
    """Mirrors dp::Part in parts.h."""

    _fields_ = [
        *((name, c_int32) for name in ("kind", "depth")),
        *((name, c_int32) for name in ("max_candidates", "max_agreement")),
        *((name, c_int32) for name in ("max_outputs", "max_tokens", "max_output_tokens")),
        *((name, c_double) for name in ("max_factor", "min_share")),
        *((name, c_int32) for name in ("near_tokens", "far_size", "anchor_length")),
    ]


class PriorStruct(ctypes.Structure):
    """Mirrors dp::Prior in evidence.h."""

    _fields_ = [
        ("agreement", c_double * len(evidence.PRIOR_AGREEMENT)),
        ("weight", c_double),
        ("decay", c_double),
    ]


_SIGNATURES: compilation.Signatures = {
    "dp_look_up_new": (
        c_void_p,
        [POINTER(PartStruct), c_int32, POINTER(c_int32), POINTER(c_int32), POINTER(PriorStruct)],
    ),
    "dp_look_up_free": (None, [c_void_p]),
    "dp_look_up_begin": (c_int64, [c_void_p, c_char_p, c_int64, c_int32, c_void_p, c_int64]),
    "dp_look_up_draft": (c_int64, [c_void_p, c_void_p, c_int32, c_void_p, c_void_p]),
    "dp_look_up_commit": (c_int64, [c_void_p, c_void_p, c_int32]),
    "dp_look_up_end": (c_int64, [c_void_p, c_int32, c_void_p, c_int64]),
    "dp_look_up_num_bytes": (c_int64, [c_void_p]),
    "dp_look_up_num_pool_bytes": (c_int64, [c_void_p]),
    "dp_look_up_shrink_pools": (None, [c_void_p, c_int64]),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded library, compiled first if need be; None, with a warning, where it cannot be had.

    Its calls keep the interpreter to themselves: they are shorter than it takes to get it back.
    """
    try:
        return compilation.load(compilation.build(SOURCES), _SIGNATURES, ctypes.PyDLL)
    except DraftproofError as error:
        logger.warning("look-up runs in Python: %s", error)
        return None


@dataclass(slots=True)
class _Request:
    number: int
    """What the library calls it."""
    num_read: int = 0
    """Tokens of its text that the library has."""
    num_told: int = 0
    """How many it will have after the message that is being written."""
    has_guess: bool = False


class LookUpProposer:
    """The draft of the first part that has one."""

    needs = ProposerNeeds()
    sources = (Source(follows_prices=True),)

    def __init__(
        self,
        parts: Sequence[LookUpIntent],
        name: str | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        """`name` None: the first part's method. There must be a `library`.

        `budget`: what the remembered outputs are drawn from; None: they have their own bound alone.
        """
        found = library()
        assert found is not None
        self.name: str = name or parts[0].method
        self._library = found
        structs = (PartStruct * len(parts))(*(_part(part) for part in parts))
        sizes = [_sizes(part) for part in parts]
        flat = [size for each in sizes for size in each]
        prior = PriorStruct(evidence.PRIOR_AGREEMENT, evidence.PRIOR_WEIGHT, evidence.DECAY)
        self._handle = self._library.dp_look_up_new(
            structs,
            len(parts),
            (c_int32 * len(flat))(*flat),
            (c_int32 * len(sizes))(*map(len, sizes)),
            prior,
        )
        if not self._handle:
            raise MemoryError("none left to look up in")
        self._remembers = any(isinstance(part, Suffix) for part in parts)
        self._account: Account | None = None
        if budget is not None and self._remembers:
            self._account = Account(
                budget,
                functools.partial(found.dp_look_up_num_pool_bytes, self._handle),
                functools.partial(_shrink_pools, found, self._handle),
            )
        weakref.finalize(self, _free, found, self._handle, budget, self._account)
        self._requests: dict[str, _Request] = {}
        self._out = array("i")

    @property
    def num_bytes(self) -> int:
        """Memory that the library holds for running requests and for the pools."""
        return int(self._library.dp_look_up_num_bytes(self._handle))

    def begin(self, sequence: SequenceView) -> None:
        scope = sequence.scope.encode("utf-8", "surrogatepass")
        prediction = array("i", sequence.prediction)
        number = self._library.dp_look_up_begin(
            self._handle, scope, len(scope), sequence.num_prompt, *prediction.buffer_info()
        )
        self._requests[sequence.req_id] = _Request(_checked(number))

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """Nothing to learn from a prompt chunk: the whole prompt is in the view and read at the first draft."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains(self.chains(sequences, budgets))

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        chains: list[list[int]] = [[] for _ in sequences]
        places: list[int] = []
        told: list[_Request] = []
        message: list[int] = []
        prices: list[float] = []
        num_out = 0
        for index, (sequence, budget) in enumerate(zip(sequences, budgets, strict=True)):
            limit = min(budget, sequence.depth)
            if limit < 1:
                continue
            known = sequence.prices[: limit + 1]
            told.append(self._tell(sequence, limit, len(known), message))
            places.append(index)
            prices += known
            num_out += limit + 1
        if not told:
            return chains
        if len(self._out) < num_out:
            self._out = array("i", bytes(4 * num_out))
        rates = array("d", prices)
        drafted = self._send(
            self._library.dp_look_up_draft, told, message, rates.buffer_info()[0], self._out.buffer_info()[0]
        )
        for request in told:
            request.has_guess = True
        if drafted:
            stop = 0
            for index in places:
                start, stop = stop + 1, stop + 1 + self._out[stop]
                chains[index] = self._out[start:stop].tolist()
        return chains

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        told: list[_Request] = []
        message: list[int] = []
        for sequence in sequences:
            if self._requests[sequence.req_id].has_guess:
                told.append(self._tell(sequence, 0, 0, message))
        if told:
            self._send(self._library.dp_look_up_commit, told, message)
            for request in told:
                request.has_guess = False

    def end(self, sequence: SequenceView) -> None:
        """Frees the request; a suffix part remembers its output for later ones of its scope."""
        request = self._requests.pop(sequence.req_id, None)
        if request is None:
            return
        output = array("i", sequence.token_ids[sequence.num_prompt :] if self._remembers else ())
        try:
            _checked(self._library.dp_look_up_end(self._handle, request.number, *output.buffer_info()))
        finally:
            if self._account is not None:
                self._account.settle()

    def _tell(self, sequence: SequenceView, limit: int, num_prices: int, message: list[int]) -> _Request:
        """Adds to a message what is asked of a request and what its text gained: dp::Asked in look_up.cpp."""
        request = self._requests[sequence.req_id]
        text = sequence.token_ids
        start = request.num_read if request.num_read <= len(text) else 0
        message += (request.number, start, len(text) - start, limit, num_prices)
        message += text[start:]
        request.num_told = len(text)
        return request

    def _send(self, call: Callable[..., int], told: list[_Request], message: list[int], *buffers: int) -> int:
        """Where it fails nobody knows what was read: the next message begins with the whole texts."""
        packed = array("i", message)
        try:
            result = _checked(call(self._handle, packed.buffer_info()[0], len(told), *buffers))
        except MemoryError:
            for request in told:
                request.num_read = 0
            raise
        for request in told:
            request.num_read = request.num_told
        return result


def _shrink_pools(found: ctypes.CDLL, handle: int, most: int) -> None:
    found.dp_look_up_shrink_pools(handle, most)
    heap.trim()


def _free(found: ctypes.CDLL, handle: int, budget: ByteBudget | None, account: Account | None) -> None:
    if budget is not None and account is not None:
        budget.leave(account)
    found.dp_look_up_free(handle)


def _checked(result: int) -> int:
    if result < 0:
        raise MemoryError("none left to look up in")
    return result


def _sizes(part: LookUpIntent) -> list[int]:
    """N-gram sizes that a part looks up, ascending."""
    if isinstance(part, NGram):
        return list(range(part.prompt_lookup_min, part.prompt_lookup_max + 1))
    if isinstance(part, Suffix):
        return [size for size in suffix.SIZES if size <= part.suffix_decoding_max_tree_depth]
    return sorted(predicted.SIZES)


def _part(part: LookUpIntent) -> PartStruct:
    struct = PartStruct(depth=part.num_speculative_tokens)
    if isinstance(part, NGram):
        struct.kind = 0
        struct.max_candidates, struct.max_agreement = ngram.MAX_CANDIDATES, ngram.MAX_AGREEMENT
    elif isinstance(part, Suffix):
        struct.kind = 1
        struct.max_candidates = suffix.MAX_CANDIDATES
        struct.max_agreement = part.suffix_decoding_max_tree_depth
        struct.max_outputs = part.suffix_decoding_max_cached_requests
        struct.max_tokens, struct.max_output_tokens = pool.MAX_POOL_TOKENS, pool.MAX_OUTPUT_TOKENS
        struct.max_factor = part.suffix_decoding_max_spec_factor
        struct.min_share = part.suffix_decoding_min_token_prob
    else:
        struct.kind = 2
        struct.max_agreement = predicted.MAX_AGREEMENT
        struct.near_tokens, struct.far_size = predicted.NEAR_TOKENS, predicted.FAR_SIZE
        struct.anchor_length = predicted.ANCHOR_LENGTH
    return struct
