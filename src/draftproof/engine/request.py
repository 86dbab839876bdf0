"""What goes into the engine and what comes out: requests, streamed events, finished outputs. No behaviour.

Made by the command line, the server and users of the library (requests) and by the engine (the rest).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from draftproof.core.cost import SpeculationStats
from draftproof.core.intent import SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.kv.pool import CacheUsage
from draftproof.ops.logprobs import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and how it is to be answered.

    intent       None: what the engine's configuration says
    prediction   the user's expected output as token ids; empty if none was given
    scope        text is remembered and prefixes are shared only within one scope (API key or cache_salt)
    priority     lower runs earlier and is preempted later; first come, first served among equals
    arrival_s    `time.monotonic()` when it was made
    """

    req_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    intent: SpeculationIntent | None = None
    prediction: tuple[int, ...] = ()
    scope: str = ""
    priority: int = 0
    arrival_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """A finished request. One id, one logprobs entry (if asked for) and one unit of usage per emitted token.

    text             what the output tokens say, without the stop string or stop token that ended it
    stop_reason      the stop string, or the EOS or stop token id, that ended it; None for the other reasons
    seed             names the noise that was used, whether the request gave it or not
    decision_reason  why this request was or was not decoded with speculation, in words; None: as asked
    error            `DraftproofError.as_dict()` when `finish_reason` is "error"
    cached_tokens    of the prompt's tokens, those whose keys and values were in the prefix cache
    preemptions      how often the request was put back for lack of memory and computed again
    prefill_s        from admission to the first token; decode_s from there to the last
    """

    req_id: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    preemptions: int = 0
    prefill_s: float
    decode_s: float
    stats: SpeculationStats
    seed: int
    decision_reason: str | None = None
    error: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDraft:
    """What became of one request's draft in one round, for display.

    accepted    drafted tokens that were emitted, in order
    correction  the token that the target put behind them; None when the request ended before it
    rejected    drafted tokens that were not emitted
    """

    accepted: tuple[int, ...]
    correction: int | None
    rejected: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """What one round gave one request. Joined over a request, `text` and `token_ids` are those of its output.

    text       complete characters only, and nothing that may yet become a stop string: may be empty
    token_ids  all tokens emitted in this round
    draft      None when nothing was drafted
    finished   set on the last event of a request
    """

    req_id: str
    text: str
    token_ids: tuple[int, ...]
    draft: RoundDraft | None = None
    finished: RequestOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Where an engine stands. Counters run from its start.

    cache                between rounds; drafts hold nothing then
    cache_in_pass        while the last pass ran
    num_preemptions      requests put back for lack of memory, each time counted
    num_prompt_tokens    of the requests that were admitted
    num_cached_tokens    of them, taken from the prefix cache
    """

    num_running: int
    num_waiting: int
    cache: CacheUsage
    cache_in_pass: CacheUsage
    num_preemptions: int
    num_prompt_tokens: int
    num_cached_tokens: int
