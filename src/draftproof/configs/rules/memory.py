"""MEMORY: buffers and bounds that a configuration fixes by itself. Bytes of weights and caches are `plan`'s."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile

from draftproof.configs.engines.sglang.defaults import SPECULATIVE_REQUESTS
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.facts.runners import runner
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.configs.speculation import DRAFTING
from draftproof.core.finding import Severity, Source

_VLLM = Source(name="vLLM 0.32.0 and 0.33.0 source; issue 48630", read="2026-11")
_SGLANG = Source(name="SGLang 0.5.23 source", read="2026-11")
_GRAPHS = Source(
    name="SGLang issue 5274, vLLM issue 43295, vLLM 0.33.0 source: config/vllm.py", read="2026-11"
)
_LARGE_BYTES = 1 << 30


def _draft_logits(case: Case) -> Iterator[Hit]:
    depth, requests = case.speculation.draft_tokens, case.deployment.max_num_seqs
    if case.speculation.draft_sampling != "probabilistic" or depth is None:
        return
    vocab = case.whole(case.target, "vocab_size", "target")
    is_narrow = runner(case) == "V2" and case.deployment.dtype not in ("float", "float32")
    number = requests or _LEAST_REQUESTS
    num_bytes = number * depth * vocab * (2 if is_narrow else 4)
    if num_bytes >= _LARGE_BYTES:
        least, kind = "" if requests else "at least ", "16 bits" if is_narrow else "float32"
        yield on_command(
            f"Probabilistic drafts keep logits of {least}{number} requests × {depth} tokens × {vocab} entries: "
            f"{num_bytes / 2**30:.1f} GiB in {kind}.",
            "--max-num-seqs",
            requests or "not given",
        )


_LEAST_REQUESTS = 256
"""vLLM's default on devices below 70 GiB, where it is larger."""


def _graphs(case: Case) -> Iterator[Hit]:
    graphs, said = case.deployment.graph_max_batch, case.deployment.max_num_seqs
    requests = SPECULATIVE_REQUESTS if said is None and case.engine == "sglang" else said
    if requests is None:
        return
    if case.engine == "vllm" and not case.deployment.enforce_eager:
        yield from _graph_tokens(case, requests)
    elif graphs is not None and graphs < requests:
        by_default = "" if said is not None else " by default"
        yield on_command(
            f"Graphs are captured up to a batch of {graphs}, and up to {requests} requests run{by_default}: above it "
            "rounds are slower.",
            "graph batch size",
            graphs,
            f"{requests}",
            severity=Severity.WARNING if said is not None else Severity.INFO,
        )


_GRAPH_TOKENS = 512
"""What vLLM captures at most where nobody says it; 1,024 on Blackwell."""


def _graph_tokens(case: Case, requests: int) -> Iterator[Hit]:
    """vLLM's sizes count tokens: a request verifies one row and its drafts."""
    depth, said = case.speculation.draft_tokens, _said_graph_tokens(case)
    if depth is None or case.speculation.schedule or said == 0:
        return
    rows = depth + 1
    largest = min(_GRAPH_TOKENS, 2 * requests * rows) if said is None else said
    if largest // rows >= requests:
        return
    usual = " (the default; 1,024 on Blackwell)" if said is None else ""
    yield on_command(
        f"Graphs are captured up to {largest} tokens{usual}, which are {largest // rows} requests of {rows} rows, "
        f"and up to {requests} requests run: above it rounds are slower.",
        "--max-cudagraph-capture-size",
        "not given" if said is None else str(said),
        requests * rows,
        severity=Severity.INFO if said is None else None,
        remedy=f"Set --max-cudagraph-capture-size {requests * rows}, or run fewer requests; graphs take memory.",
        reading=read.VLLM_BOTH,
    )


def _said_graph_tokens(case: Case) -> int | None:
    """The largest size that the command names; None where it names none, 0 where it chooses another mode."""
    sizes = [str(case.extra("max-cudagraph-capture-size"))]
    rest = list(case.deployment.rest)
    if _SIZES in rest:
        sizes += takewhile(str.isdecimal, rest[rest.index(_SIZES) + 1 :])
    for key in ("compilation-config", "cc"):
        if isinstance(text := case.extra(key), str):
            try:
                inner = json.loads(text)
            except (ValueError, RecursionError):
                return 0
            if not isinstance(inner, dict) or "cudagraph_mode" in inner:
                return 0
            listed = inner.get("cudagraph_capture_sizes")
            sizes.append(str(inner.get("max_cudagraph_capture_size")))
            sizes += map(str, listed if isinstance(listed, list) else ())
    return max((int(size) for size in sizes if size.isdecimal() and len(size) < 9), default=None)


_SIZES = "--cudagraph-capture-sizes"


def _token_budget(case: Case) -> Iterator[Hit]:
    budget, requests, depth = (
        case.deployment.max_num_batched_tokens,
        case.deployment.max_num_seqs,
        case.speculation.draft_tokens,
    )
    if budget is None or depth is None:
        return
    if budget <= depth and case.method not in ("ngram", "suffix"):
        yield on_command(
            f"--max-num-batched-tokens {budget} is no more than {depth} draft tokens: vLLM refuses it.",
            "--max-num-batched-tokens",
            budget,
            f"more than {depth}",
            reading=read.VLLM_BOTH,
        )
    if requests is None or budget >= requests * (depth + 1):
        return
    needed = requests * (depth + 1)
    effect = (
        "vLLM refuses this with LoRA" if case.deployment.lora else "a full batch takes two steps to verify"
    )
    yield on_command(
        f"{requests} requests × {depth + 1} rows are {needed} tokens per step, and --max-num-batched-tokens is "
        f"{budget}: {effect}.",
        "--max-num-batched-tokens",
        budget,
        f"at least {needed}",
        severity=Severity.ERROR if case.deployment.lora else Severity.WARNING,
    )


def _capped_requests(case: Case) -> Iterator[Hit]:
    if case.deployment.max_num_seqs is None:
        yield on_command(
            f"--max-running-requests is not given, and SGLang sets it to {SPECULATIVE_REQUESTS} as soon as "
            "speculation is on.",
            "--max-running-requests",
            "not given",
        )


RULES = (
    Rule(
        code="MEMORY-01",
        title="A large buffer for the drafter's distributions",
        severity=Severity.WARNING,
        about="To verify sampled drafts, their distributions are kept until then, for every request that may run.",
        remedy="Lower --max-num-seqs or the number of draft tokens, or draft greedily.",
        source=_VLLM,
        judge=_draft_logits,
        readings=(Reading("vllm", ">=0.24,<=0.33.0", _VLLM),),
    ),
    Rule(
        code="MEMORY-02",
        title="Graphs end below the number of requests",
        severity=Severity.WARNING,
        about=(
            "Above the largest captured batch every kernel is launched by itself. Measured there, speculation "
            "looks slower than it is, or is: reports of slow speculation ended in a graph limit of 2."
        ),
        remedy=(
            "Capture up to the number of requests that run, or run fewer; graphs take memory, which `draftproof "
            "plan` shows."
        ),
        source=_GRAPHS,
        judge=_graphs,
        methods=DRAFTING,
    ),
    Rule(
        code="MEMORY-03",
        title="The token budget of a step is below what verification needs",
        severity=Severity.ERROR,
        about="Each request verifies 1 + K rows in a step.",
        remedy="Raise --max-num-batched-tokens, or lower --max-num-seqs or the number of draft tokens.",
        source=_VLLM,
        judge=_token_budget,
        methods=DRAFTING,
        readings=(Reading("vllm", ">=0.24,<=0.33.0", _VLLM),),
    ),
    Rule(
        code="MEMORY-04",
        title="SGLang caps the number of running requests",
        severity=Severity.INFO,
        about=(
            "A server that ran hundreds of requests serves at most 48 at a time once speculation is on, unless "
            "told otherwise."
        ),
        remedy="Give --max-running-requests, and look at the cost in `draftproof plan`.",
        source=_SGLANG,
        judge=_capped_requests,
        methods=DRAFTING,
        readings=(Reading("sglang", "==0.5.23", _SGLANG),),
    ),
)
