"""MEMORY: buffers and bounds that a configuration fixes by itself. Bytes of weights and caches are `plan`'s."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Hit, Reading, Rule
from draftproof.configs.speculation import DRAFTING
from draftproof.core.finding import Evidence, Severity, Source

_VLLM = Source(name="vLLM 0.33.0 source; issue 48630", read="2026-11")
_SGLANG = Source(name="SGLang 0.5.23 source", read="2026-11")
_GRAPHS = Source(name="SGLang issue 5274, vLLM issue 43295", read="2026-11")
_LARGE_BYTES = 1 << 30


def _draft_logits(case: Case) -> Iterator[Hit]:
    depth, requests = case.speculation.draft_tokens, case.deployment.max_num_seqs
    if case.speculation.draft_sampling != "probabilistic" or depth is None or requests is None:
        return
    vocab = case.whole(case.target, "vocab_size", "target")
    num_bytes = requests * depth * vocab * 4
    if num_bytes >= _LARGE_BYTES:
        yield Hit(
            detail=(
                f"Probabilistic drafts keep logits of {requests} requests × {depth} tokens × {vocab} entries: "
                f"{num_bytes / 2**30:.1f} GiB in float32."
            ),
            evidence=(Evidence(where="command", key="--max-num-seqs", found=str(requests)),),
        )


def _graphs(case: Case) -> Iterator[Hit]:
    graphs, requests = case.deployment.graph_max_batch, case.deployment.max_num_seqs
    if graphs is not None and requests is not None and graphs < requests:
        yield Hit(
            detail=(
                f"Graphs are captured up to a batch of {graphs}, and up to {requests} requests run: above it "
                "rounds are slower."
            ),
            evidence=(
                Evidence(where="command", key="graph batch size", found=str(graphs), expected=f"{requests}"),
            ),
        )


def _token_budget(case: Case) -> Iterator[Hit]:
    budget, requests, depth = (
        case.deployment.max_num_batched_tokens,
        case.deployment.max_num_seqs,
        case.speculation.draft_tokens,
    )
    if budget is None or requests is None or depth is None or budget >= requests * (depth + 1):
        return
    needed = requests * (depth + 1)
    effect = (
        "vLLM refuses this with LoRA" if case.deployment.lora else "a full batch takes two steps to verify"
    )
    yield Hit(
        detail=(
            f"{requests} requests × {depth + 1} rows are {needed} tokens per step, and --max-num-batched-tokens is "
            f"{budget}: {effect}."
        ),
        evidence=(
            Evidence(
                where="command",
                key="--max-num-batched-tokens",
                found=str(budget),
                expected=f"at least {needed}",
            ),
        ),
        severity=Severity.ERROR if case.deployment.lora else Severity.WARNING,
    )


def _capped_requests(case: Case) -> Iterator[Hit]:
    if case.deployment.max_num_seqs is None:
        yield Hit(
            detail="--max-running-requests is not given, and SGLang sets it to 48 as soon as speculation is on.",
            evidence=(Evidence(where="command", key="--max-running-requests", found="not given"),),
        )


RULES = (
    Rule(
        code="MEMORY-01",
        title="A large buffer for the drafter's distributions",
        severity=Severity.WARNING,
        about="To verify sampled drafts, their distributions are kept until then, for every request that may run.",
        remedy="Lower max_num_seqs or the number of draft tokens, or draft greedily.",
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
