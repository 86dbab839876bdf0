"""Which engine speculates by which method, since when, how it is written, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Reading
from draftproof.configs.speculation import Method
from draftproof.core.finding import Source

Drafter = Literal["none", "checkpoint", "either"]
"""none: drafts from text or from the target's own checkpoint. checkpoint: needs one. either: bundled, or given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodFact:
    """One method of one engine. `written`: how it is spelled there. `gone`: the range of versions that do not have it
    although others do; `needs` are preconditions in words."""

    method: Method
    reading: Reading
    written: str
    drafter: Drafter
    needs: tuple[str, ...] = ()
    gone: Reading | None = None
    instead: str = ""


def _vllm(method: Method, drafter: Drafter, *needs: str, written: str | None = None) -> MethodFact:
    spelled = written or f'"method": "{method}"'
    return MethodFact(method=method, reading=read.VLLM, written=spelled, drafter=drafter, needs=needs)


def _sglang(method: Method, algorithm: str, drafter: Drafter, *needs: str) -> MethodFact:
    written = f"--speculative-algorithm {algorithm}"
    return MethodFact(method=method, reading=read.SGLANG, written=written, drafter=drafter, needs=needs)


def _trtllm(method: Method, kind: str, drafter: Drafter, *needs: str) -> MethodFact:
    return MethodFact(
        method=method, reading=read.TRTLLM, written=f"decoding_type: {kind}", drafter=drafter, needs=needs
    )


def _llamacpp(method: Method, kind: str, drafter: Drafter, *needs: str) -> MethodFact:
    return MethodFact(
        method=method, reading=read.LLAMACPP, written=f"--spec-type {kind}", drafter=drafter, needs=needs
    )


def _other(reading: Reading, method: Method, written: str, drafter: Drafter, *needs: str) -> MethodFact:
    return MethodFact(method=method, reading=reading, written=written, drafter=drafter, needs=needs)


_REMOVED_IN_033 = Reading(
    "vllm", ">=0.33", Source(name="vLLM 0.32.0 and 0.33.0 sources, compared", read="2026-11")
)
_PYTORCH_ONLY = Reading(
    "trtllm", ">=1.3", Source(name="TensorRT-LLM, main branch of mid-2026 against 1.2", read="2026-11")
)
_HEAD = "a head that was trained for the target"
_SAME_SIZE = "equal vocab_size in both models"

METHODS: tuple[MethodFact, ...] = (
    _other(read.DRAFTPROOF, "ngram", '"method": "ngram"', "none"),
    _other(read.DRAFTPROOF, "suffix", '"method": "suffix"', "none"),
    _other(read.DRAFTPROOF, "predicted", '"method": "predicted"', "none", "the expected text with the request"),
    _other(
        read.DRAFTPROOF, "draft_model", '"method": "draft_model"', "checkpoint",
        "a model of its own that is not larger than the target",
        "at least half of the smaller vocabulary shared",
    ),
    _other(read.DRAFTPROOF, "self", '"method": "self"', "none", "weights that are not yet quantised as far"),
    _other(read.DRAFTPROOF, "cascade", '"method": "cascade"', "either"),
    _other(read.DRAFTPROOF, "auto", '"method": "auto"', "either"),
    _vllm("ngram", "none", "num_speculative_tokens"),
    _vllm("suffix", "none", "arctic-inference installed", "model runner V1"),
    _vllm("draft_model", "checkpoint", "num_speculative_tokens", f"{_SAME_SIZE}, or use_heterogeneous_vocab"),
    _vllm("eagle", "checkpoint", "num_speculative_tokens", _HEAD),
    _vllm("eagle3", "checkpoint", "num_speculative_tokens", _HEAD, "a target class with EAGLE-3 support"),
    _vllm("mtp", "either", "MTP layers in the target, or an assistant checkpoint"),
    _vllm("dflash", "checkpoint", "mask_token_id in the drafter's configuration"),
    _vllm("dspark", "either", "model runner V2", "block_size in the drafter's configuration"),
    _vllm("pard", "checkpoint", "a mask token in the drafter's configuration",
          written='"method": "draft_model", "parallel_drafting": true'),
    _vllm("p_eagle", "checkpoint", "a mask token and a mask_hidden tensor in the head",
          written='"method": "eagle3", "parallel_drafting": true'),
    _vllm("custom", "either", "a class of yours", written='"method": "custom_class"'),
    MethodFact(
        method="medusa", reading=Reading("vllm", ">=0.6,<0.33", _REMOVED_IN_033.source), written='"method": "medusa"',
        drafter="checkpoint", gone=_REMOVED_IN_033,
        instead="Use an EAGLE-3 head or a draft model; 0.32.0 is the last release with Medusa.",
    ),
    MethodFact(
        method="mlp_speculator", reading=Reading("vllm", ">=0.5,<0.33", _REMOVED_IN_033.source),
        written='"method": "mlp_speculator"', drafter="checkpoint", gone=_REMOVED_IN_033,
        instead="Use an EAGLE-3 head or a draft model; 0.32.0 is the last release with MLP speculators.",
    ),
    _sglang("draft_model", "STANDALONE", "checkpoint", f"{_SAME_SIZE} and equal token ids", "no DP attention"),
    _sglang("eagle", "EAGLE", "checkpoint", _HEAD),
    _sglang("eagle3", "EAGLE3", "checkpoint", _HEAD, "the algorithm's name: nothing switches by itself"),
    _sglang("mtp", "NEXTN", "either", "MTP layers in the target, or their checkpoint"),
    _sglang("ngram", "NGRAM", "none", "CUDA, CPU or XPU", "no DP attention"),
    _sglang("dflash", "DFLASH", "checkpoint", "no pipeline parallelism"),
    _sglang("dspark", "DSPARK", "either"),
    _sglang("custom", "UNO", "either", "CUDA, no tensor or pipeline parallelism", "its own LoRA (--uno-lora-path)"),
    _trtllm("draft_model", "Draft_Target", "checkpoint", "max_draft_len", "one-model path"),
    _trtllm("eagle3", "Eagle3", "checkpoint", "max_draft_len", _HEAD),
    _trtllm("mtp", "MTP", "either", "MTP layers in the target, or their checkpoint"),
    _trtllm("ngram", "NGram", "none", "max_draft_len", "disable_overlap_scheduler: true in the documented example"),
    _trtllm("suffix", "SA", "none"),
    _trtllm("pard", "PARD", "checkpoint"),
    _trtllm("dflash", "DFlash", "checkpoint"),
    _trtllm("dspark", "DSpark", "either"),
    _trtllm("custom", "User_Provided", "none", "a drafter of yours, through the Python API"),
    _trtllm("auto", "AUTO", "none", "becomes NGram"),
    MethodFact(
        method="lookahead", reading=Reading("trtllm", "<1.3", _PYTORCH_ONLY.source),
        written="decoding_type: Lookahead", drafter="none", gone=_PYTORCH_ONLY,
        needs=("the TensorRT backend",), instead="Use NGram or SA.",
    ),
    MethodFact(
        method="medusa", reading=Reading("trtllm", "<1.3", _PYTORCH_ONLY.source),
        written="decoding_type: Medusa", drafter="checkpoint", gone=_PYTORCH_ONLY,
        needs=("the TensorRT backend",), instead="Use an EAGLE-3 head.",
    ),
    _llamacpp("draft_model", "draft-simple", "checkpoint", "vocabularies that differ by at most 128 rows"),
    _llamacpp("eagle3", "draft-eagle3", "checkpoint", "a GGUF file of the head"),
    _llamacpp("mtp", "draft-mtp", "either", "a GGUF file that kept the MTP layers"),
    _llamacpp("dflash", "draft-dflash", "checkpoint"),
    _llamacpp("dspark", "draft-dspark", "checkpoint"),
    _llamacpp("ngram", "ngram-simple", "none", "or ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache"),
    _llamacpp("cascade", "several, with commas", "either", "look-up wins where it has a draft"),
    _other(read.TRANSFORMERS, "draft_model", "generate(assistant_model=…)", "checkpoint", "batch 1",
           "greedy or sampling", "no model with a running state"),
    _other(read.TRANSFORMERS, "ngram", "generate(prompt_lookup_num_tokens=…)", "none", "batch 1"),
    _other(read.TRANSFORMERS, "early_exit", "generate(assistant_early_exit=…)", "none", "a model trained for it"),
    _other(read.TRANSFORMERS, "mtp", "generate(use_mtp=True)", "none", "MTP layers in the target"),
    _other(read.TRANSFORMERS, "dflash", 'generate(speculation_type="dflash")', "checkpoint"),
    _other(read.OPENVINO, "draft_model", "LLMPipeline(draft_model=…)", "checkpoint", "no beam search, n = 1"),
    _other(read.OPENVINO, "ngram", "LLMPipeline(prompt_lookup=True)", "none", "no draft model beside it"),
    _other(read.OPENVINO, "eagle3", "LLMPipeline(draft_model=…)", "checkpoint", "do_sample=False", _HEAD),
    _other(read.FIREWORKS, "draft_model", "draftModel, draftTokenCount", "checkpoint", "a dedicated deployment"),
    _other(read.FIREWORKS, "ngram", "ngramSpeculationLength", "none", "a dedicated deployment"),
    _other(read.FIREWORKS, "mtp", "enableMtp", "none", "a dedicated deployment", "MTP layers in the base model"),
    _other(read.FIREWORKS, "predicted", "prediction in the request", "none"),
)  # fmt: skip


def find_method(engine: str, method: Method) -> MethodFact | None:
    return next((fact for fact in METHODS if fact.reading.engine == engine and fact.method == method), None)


def of_engine(engine: str) -> tuple[MethodFact, ...]:
    return tuple(fact for fact in METHODS if fact.reading.engine == engine)
