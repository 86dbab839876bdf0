"""One fault is told once: no two rules speak of the same place, and a text with one fault has one alarm."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from draftproof.configs.own import normal
from draftproof.configs.registry import dialect
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rules_of
from draftproof.core.finding import Severity
from support.rules.building import Build
from support.rules.everything import POSITIVE, ids

TOGETHER: frozenset[frozenset[str]] = frozenset()
"""Pairs of rules that may speak of one place, because they say different things of it."""


@pytest.mark.parametrize(("code", "build"), POSITIVE, ids=ids(POSITIVE))
def test_no_two_rules_speak_of_one_place(code: str, build: Build, tmp_path: Path) -> None:
    case = build(tmp_path)
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    for finding in judge(case, rules_of()).findings:
        for seen in finding.evidence if finding.severity is not Severity.INFO else ():
            if seen.key:
                places[seen.where, normal(seen.key, case.engine)].add(finding.code)
    for place, codes in places.items():
        assert len(codes) == 1 or frozenset(codes) in TOGETHER, (place, codes)


def sglang(flags: str) -> str:
    return f"python3 -m sglang.launch_server --model-path org/m {flags}"


def vllm(config: str, before: str = "") -> str:
    return f"{before}vllm serve org/m --speculative-config '{config}'"


TEXTS = [
    ("sglang", "CONFIG-08", sglang(
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4 --speculative-use-rejection-sampling")),
    ("trtllm", "CONFIG-08",
     "speculative_config:\n  decoding_type: NGram\n  max_draft_len: 3\n  use_rejection_sampling: true\n"),
    ("sglang", "CONFIG-02", sglang(
        "--speculative-algorithm STANDALONE --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4")),
    ("trtllm", "CONFIG-02", "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 3\n"),
    ("vllm", "CONFIG-01", vllm('{"method": "medusa", "model": "org/heads", "num_speculative_tokens": 3}')),
    ("vllm", "FLAG-01", vllm('{"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 8}')),
    ("vllm", "FLAG-01", "vllm serve org/m --spec-method ngram --num-speculative-tokens 3"),
    ("sglang", "CONFIG-06", sglang("--speculative-algorithm DFLASH --speculative-draft-model-path org/d "
                                 "--speculative-dflash-block-size 8 --speculative-adaptive")),
    ("vllm", "CONFIG-10", vllm('{"method": "suffix"}', "VLLM_USE_V2_MODEL_RUNNER=1 ")),
    ("vllm", "CONFIG-06", vllm('{"method": "mtp", "num_speculative_tokens": 1, "enable_adaptive_verification": true}',
                               "VLLM_USE_V2_MODEL_RUNNER=0 ")),
    ("vllm", "FLAG-08", vllm('{"method": "suffix", "rejection_sample_method": "block"}')),
    ("vllm", "CONFIG-03", vllm('{"method": "ngram"}')),
    ("vllm", "FLAG-10", vllm('{"method": "ngram", "num_speculative_tokens": 3, "rejection_sample_method": "fly"}')),
    ("vllm", "FLAG-14", "vllm serve org/m --spec-method ngram --spec-tokens 3 --config gone.yaml"),
    ("llamacpp", "FLAG-01", "llama-server -m m.gguf --spec-type ngram-simple --draft-max 8"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "code", "text"), TEXTS, ids=[f"{row[0]}-{row[1]}" for row in TEXTS])
def test_a_text_with_one_fault_has_one_alarm(engine: str, code: str, text: str) -> None:
    parsed = dialect(engine).parse(text)
    judged = judge(Case(deployment=parsed.deployment, remarks=parsed.remarks), rules_of())
    alarms = [finding for finding in judged.findings if finding.severity is not Severity.INFO]
    assert [finding.code for finding in alarms] == [code], [finding.detail for finding in alarms]
