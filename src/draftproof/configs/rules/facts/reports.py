"""What engines report of speculation: where totals are counted, what comes with an answer, and how it is to be read."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`totals` over all requests, `answers` with each; names as the engine writes them. `words`: how to read them."""

    reading: Reading
    totals: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    words: str


REPORTS: tuple[Report, ...] = (
    Report(
        reading=read.DRAFTPROOF,
        answers=("`speculation` of `generate --json`", "`Completion.stats`"),
        words="rounds, proposed, accepted and emitted tokens, by position; times of drafting, verifying and the rest; "
        "why a request was not drafted for",
    ),
    Report(
        reading=read.VLLM_BOTH,
        totals=tuple(
            f"`vllm:spec_decode_num_{name}_total`"
            for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
        ),
        answers=("`metrics.speculative_decoding`, with `--per-request-spec-decode-metrics summary`",),
        words="no rate: accepted ÷ draft tokens; tokens per round are 1 + accepted ÷ drafts; accepted tokens behind a "
        "stop are counted",
    ),
    Report(
        reading=read.SGLANG,
        totals=("`sglang:spec_accept_length`", "`sglang:spec_accept_rate`", "`sglang:spec_verify_calls_total`"),
        answers=("`meta_info.spec_…`", "`sglext.spec_tokens_details`, asked for by `return_spec_tokens_details`"),
        words="with `--enable-metrics`; the length counts the target's own token; under adaptive steps the proposed "
        "tokens of an answer are those of the configured width",
    ),
    Report(
        reading=read.TRTLLM,
        totals=(
            "`trtllm_spec_decode_num_draft_tokens_total`", "`trtllm_spec_decode_num_accepted_tokens_total`",
            "`specDecodingStats` of `GET /metrics`",
        ),
        answers=("`avg_decoded_tokens_per_iter`",),
        words="at `/prometheus/metrics`; `GET /metrics` is drained when it is read; tokens per iteration count the "
        "target's own token",
    ),
    Report(
        reading=read.LLAMACPP,
        totals=tuple(
            f"`llamacpp:spec_decode_num_{name}_total`"
            for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
        ),
        answers=("`timings.draft_n`", "`timings.draft_n_accepted`"),
        words="totals with `--metrics`; in an answer only where something was drafted",
    ),
    Report(reading=read.TRANSFORMERS, words="nothing was found: time it, or count calls of the model"),
    Report(
        reading=read.OPENVINO,
        answers=("`extended_perf_metrics.get_num_accepted_tokens()`", "`main_model_metrics`, `draft_model_metrics`"),
        words="accepted tokens ÷ iterations of the main model is what one iteration adds",
    ),
    Report(
        reading=read.FIREWORKS,
        answers=("`speculation-generated-tokens`", "`speculation-acceptance`", "`speculation-prompt-matched-tokens`"),
        words="headers, or `perf_metrics` with `perf_metrics_in_response`; acceptance by position, on dedicated "
        "deployments only",
    ),
)  # fmt: skip
