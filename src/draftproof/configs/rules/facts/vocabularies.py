"""What each engine asks of the vocabularies of a target and a draft model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from draftproof.configs.rules.rule import ANY_VERSION, Reading
from draftproof.core.finding import Source

ADVISED_OVERLAP = 0.9
"""Below it, drafting across vocabularies is advised against: reported acceptance was a quarter and less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyDemand:
    """size_slack   by how many rows the embeddings may differ; None: by any number
    compares_ids  whether the engine itself refuses different tokens under one id
    different     whether it can draft across different vocabularies: never, always, or asked (by a setting)
    how           that setting, as it is written
    least_overlap share of the smaller vocabulary below which drafting across vocabularies is an error
    doubt         what speaks against `size_slack`: a pair beyond it gets a warning with both facts
    """

    reading: Reading
    size_slack: int | None
    compares_ids: bool
    different: Literal["never", "asked", "always"] = "never"
    how: str = ""
    least_overlap: float = ADVISED_OVERLAP
    doubt: str = ""


def _reading(engine: str, versions: str, name: str, url: str | None = None) -> Reading:
    return Reading(engine, versions, Source(name=name, read="2026-11", url=url))


DEMANDS: Mapping[str, VocabularyDemand] = MappingProxyType(
    {
        "draftproof": VocabularyDemand(
            reading=_reading("draftproof", ANY_VERSION, "draftproof: proposers/drafter"),
            size_slack=None,
            compares_ids=False,
            different="always",
            how="nothing to set: tokens are mapped by their bytes",
            least_overlap=0.5,
        ),
        "vllm": VocabularyDemand(
            reading=_reading(
                "vllm", ">=0.28,<=0.33.0", "vLLM 0.33.0 source; tried with a CPU build of 0.32.0"
            ),
            size_slack=0,
            compares_ids=False,
            different="asked",
            how='"use_heterogeneous_vocab": true (greedy drafts, model runner V1)',
        ),
        "sglang": VocabularyDemand(
            reading=_reading(
                "sglang", "==0.5.23", "SGLang 0.5.23 source: standalone_worker_v2.py; pull request 23838"
            ),
            size_slack=0,
            compares_ids=True,
            doubt=(
                "its documentation starts STANDALONE with Qwen2.5 7B and 1.5B, which differ by 128 rows, while the "
                "worker of 0.5.23 raises a ValueError"
            ),
        ),
        "trtllm": VocabularyDemand(
            reading=_reading("trtllm", ">=1.2,<1.4", "TensorRT-LLM, main branch of mid-2026"),
            size_slack=None,
            compares_ids=False,
        ),
        "llamacpp": VocabularyDemand(
            reading=_reading("llamacpp", "<=11434", "llama.cpp, build 11434"),
            size_slack=128,
            compares_ids=True,
        ),
        "transformers": VocabularyDemand(
            reading=_reading("transformers", ">=5,<=5.24.0", "Transformers 5.24.0; transformers issue 45307"),
            size_slack=0,
            compares_ids=False,
            different="asked",
            how="tokenizer=… and assistant_tokenizer=… as arguments of generate",
        ),
        "openvino": VocabularyDemand(
            reading=_reading("openvino", ANY_VERSION, "openvino.genai of 2026-08"),
            size_slack=None,
            compares_ids=False,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ReportedAcceptance:
    """Acceptance that others measured when vocabularies overlapped by `overlap`: an orientation, not a promise."""

    overlap: float
    acceptance: float


REPORTED_ACCEPTANCE = (
    ReportedAcceptance(1.0, 0.80),
    ReportedAcceptance(0.998, 0.61),
    ReportedAcceptance(0.798, 0.25),
    ReportedAcceptance(0.696, 0.15),
)
REPORTED_BY = Source(name="vLLM pull request 38174, SGLang pull request 16290", read="2026-11")


def reported_loss(overlap: float) -> str:
    """In words, what was reported at the nearest overlap below and above."""
    below = next((row for row in REPORTED_ACCEPTANCE if row.overlap <= overlap), REPORTED_ACCEPTANCE[-1])
    above = next(
        (row for row in reversed(REPORTED_ACCEPTANCE) if row.overlap >= overlap), REPORTED_ACCEPTANCE[0]
    )
    rows = sorted({(row.overlap, row.acceptance) for row in (below, above)}, reverse=True)
    reported = " and ".join(f"{rate:.0%} acceptance at {share:.1%} overlap" for share, rate in rows)
    return f"others reported {reported} (same vocabulary: {REPORTED_ACCEPTANCE[0].acceptance:.0%})"
