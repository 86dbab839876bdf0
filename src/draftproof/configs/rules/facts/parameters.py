"""What becomes of request parameters under speculation, by engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import ANY_VERSION, Reading
from draftproof.configs.speculation import Method
from draftproof.core.finding import Source

Effect = Literal["refused", "ignored", "reported", "unknown"]
"""refused: the request fails. ignored: accepted without acting on every token. reported: faults were reported, and in
which versions is not known."""

_CHAT_PENALTIES = ("frequency_penalty", "presence_penalty", "repetition_penalty")
_STRUCTURED = ("response_format", "structured_outputs", "guided_json", "json_schema")
_TOOLS = ("tools",)

PARAMETERS: tuple[str, ...] = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias", "logprobs", "top_logprobs",
    "prompt_logprobs", *_CHAT_PENALTIES, *_STRUCTURED, *_TOOLS, "n", "best_of", "use_beam_search", "bad_words",
    "min_tokens", "prediction", "lora", "stream",
)  # fmt: skip
"""Parameters that the tables know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFact:
    """`methods` empty: all. `unless`: a setting of the deployment (engine's key) under which it does not hold."""

    parameters: tuple[str, ...]
    effect: Effect
    reading: Reading
    words: str
    remedy: str
    methods: frozenset[Method] = frozenset()
    unless: str | None = None


def _reported(engine: str, name: str) -> Reading:
    return Reading(engine, ANY_VERSION, Source(name=name, read="2026-11"))


_ONE_MODEL: frozenset[Method] = frozenset(
    {"eagle", "eagle3", "mtp", "draft_model", "pard", "dflash", "dspark"}
)
_AUDIT = "Run the same requests with and without speculation on your version before you rely on it."

FACTS: tuple[ParameterFact, ...] = (
    ParameterFact(
        parameters=("min_p", "logit_bias"), effect="refused", reading=read.VLLM_RAN,
        words="answered with 400 (not yet supported with speculative decoding)",
        remedy="Leave them out, or serve these requests from an instance without speculation.",
    ),
    ParameterFact(
        parameters=("best_of", "use_beam_search"), effect="refused", reading=read.VLLM,
        words="not supported together with speculation",
        remedy="Serve these requests from an instance without speculation.",
    ),
    ParameterFact(
        parameters=("logprobs", "top_logprobs", "prompt_logprobs"), effect="refused",
        reading=Reading("trtllm", ">=1.3,<1.4", Source(name="TensorRT-LLM pull request 18401", read="2026-11")),
        words="refused at admission",
        remedy="Leave them out, or serve these requests without speculation.",
    ),
    ParameterFact(
        parameters=_CHAT_PENALTIES, effect="refused",
        reading=Reading("trtllm", ">=1.3,<1.4", Source(name="TensorRT-LLM, main branch of mid-2026", read="2026-11")),
        words="refused while enable_penalty is off", remedy="Set enable_penalty: true, and test that it acts.",
        methods=_ONE_MODEL, unless="enable_penalty",
    ),
    ParameterFact(
        parameters=_CHAT_PENALTIES, effect="ignored",
        reading=Reading(
            "trtllm", "<1.3", Source(name="TensorRT-LLM issue 9442, pull requests 16485, 17701", read="2026-11")
        ),
        words="read by nothing: the fused sampler knows temperature, top_k and top_p only",
        remedy="Leave them out, or serve these requests without speculation.",
        methods=_ONE_MODEL,
    ),
    ParameterFact(
        parameters=("temperature", "top_p", "top_k"), effect="ignored",
        reading=Reading("trtllm", "<1.3", Source(name="TensorRT-LLM issue 9885, pull request 14745", read="2026-11")),
        words="greedy text comes back unless allow_advanced_sampling is set",
        remedy="Set allow_advanced_sampling: true, and compare sampled answers with those of plain decoding.",
        methods=_ONE_MODEL, unless="allow_advanced_sampling",
    ),
    ParameterFact(
        parameters=("n", "use_beam_search"), effect="refused", reading=read.OPENVINO,
        words="no beam search and one sequence per request only", remedy="Ask for one sequence.",
    ),
    ParameterFact(
        parameters=("n", "use_beam_search"), effect="refused", reading=read.TRANSFORMERS,
        words="batch 1, greedy or sampling only", remedy="Ask for one sequence.",
    ),
    ParameterFact(
        parameters=("prediction",), effect="ignored", reading=read.VLLM_BOTH,
        words="not a parameter of this server: predicted outputs are not built",
        remedy="Use ngram or suffix, which draft from the prompt, or an engine with predicted outputs.",
    ),
    ParameterFact(
        parameters=("prediction",), effect="ignored", reading=read.SGLANG,
        words="not a parameter of this server",
        remedy="Use NGRAM, which drafts from the prompt, or an engine with predicted outputs.",
    ),
    ParameterFact(
        parameters=_STRUCTURED, effect="reported",
        reading=_reported("vllm", "vLLM pull requests 36138, 44297, 44441, 44993, 48516; issues 31858, 43388, 48228"),
        words=(
            "schema-valid answers fell where thinking ends inside a draft or the grammar advanced late "
            "(reported: 14 of 24 valid, 23 after the fix)"
        ),
        remedy=_AUDIT,
    ),
    ParameterFact(
        parameters=_TOOLS, effect="reported",
        reading=_reported("vllm", "vLLM issues 41967, 43221, 48020, 55082; pull requests 42006, 45068"),
        words="streaming parsers that expect one token per event lost arguments of tool calls",
        remedy=f"{_AUDIT} Compare streamed with non-streamed tool calls.",
    ),
    ParameterFact(
        parameters=("stop",), effect="reported",
        reading=_reported("vllm", "vLLM pull request 47616"),
        words="text was cut at a stop string inside an accepted run, token ids and logprobs were not",
        remedy=_AUDIT,
    ),
    ParameterFact(
        parameters=("stop",), effect="reported",
        reading=_reported("sglang", "SGLang issue 31599; pull requests 23802, 25980, 30291, 33758"),
        words="tokens behind a stop inside an accepted run leaked into the answer",
        remedy=_AUDIT,
    ),
    ParameterFact(
        parameters=("logprobs", "top_logprobs"), effect="reported",
        reading=_reported("sglang", "SGLang issues 10660, 17349, 19761; pull request 14046"),
        words="crashes, or logprobs of the first token of a run only",
        remedy=_AUDIT,
    ),
    ParameterFact(
        parameters=("prompt_logprobs",), effect="reported",
        reading=_reported("vllm", "vLLM issue 53488"),
        words="corrupted under MTP with chunked prefill", remedy=_AUDIT, methods=frozenset({"mtp"}),
    ),
    ParameterFact(
        parameters=("seed",), effect="reported",
        reading=_reported("vllm", "vLLM issues 6038, 9441, 13196; pull request 17509"),
        words="seeds were ignored, or parallel requests with different seeds gave gibberish",
        remedy="Send the same request twice with one seed, and several seeds at once, and compare.",
    ),
    ParameterFact(
        parameters=_CHAT_PENALTIES, effect="reported",
        reading=_reported("vllm", "vLLM issue 18902"),
        words="penalties of opposite sign gave the same text with EAGLE",
        remedy="Send two requests that differ in the penalty alone: the texts must differ.",
        methods=frozenset({"eagle", "eagle3"}),
    ),
)  # fmt: skip


def of_parameter(engine: str, parameter: str, method: Method) -> tuple[ParameterFact, ...]:
    return tuple(
        fact
        for fact in FACTS
        if fact.reading.engine == engine
        and parameter in fact.parameters
        and (not fact.methods or method in fact.methods)
    )


READ_ENGINES = frozenset({"vllm", "sglang", "trtllm", "transformers", "openvino", "draftproof"})
"""Engines whose handling of parameters was read at all."""
OWN_PARAMETERS = frozenset(PARAMETERS) - {"best_of", "use_beam_search"}
