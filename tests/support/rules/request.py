"""Cases of the REQUEST family."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from draftproof.configs.rules.case import Traffic
from draftproof.configs.speculation import LookUp, Method, Speculation
from support.rules.building import Build, Fixtures, case


def run(
    engine: str, *parameters: str, method: Method = "ngram", version: str | None = None, **fields: Any
) -> Build:
    traffic = Traffic(num_requests=10, parameters=dict.fromkeys(parameters, 3))
    lookup = fields.pop("lookup", None)
    return case(
        engine, Speculation(method=method, depth=4, lookup=lookup), traffic=traffic, version=version, **fields
    )


FIXTURES = {
    "REQUEST-01": Fixtures(
        positive=(
            run("vllm", "min_p"),
            run("vllm", "logit_bias"),
            run("trtllm", "logprobs", method="mtp", version="1.3.0"),
            run("trtllm", "presence_penalty", method="mtp", version="1.3.0rc5"),
            run("openvino", "n"),
        ),
        negative=(
            run("vllm", "temperature"),
            run("sglang", "min_p"),
            run(
                "trtllm", "presence_penalty", method="mtp", version="1.3.0",
                extras=MappingProxyType({"trtllm.enable_penalty": True}),
            ),
        ),
    ),
    "REQUEST-02": Fixtures(
        positive=(
            run("trtllm", "repetition_penalty", method="eagle3", version="1.2.1"),
            run("trtllm", "temperature", method="eagle3", version="1.2.1"),
            run("vllm", "prediction"),
            run("vllm", "prediction", version="0.32.0"),
        ),
        negative=(
            run("trtllm", "stop", method="eagle3", version="1.2.1"),
            run("trtllm", "temperature", method="eagle3", version="1.2.1",
                extras=MappingProxyType({"trtllm.allow_advanced_sampling": True})),
            run("draftproof", "prediction", method="predicted"),
        ),
    ),
    "REQUEST-03": Fixtures(
        positive=(
            run("vllm", "response_format"), run("vllm", "tools"), run("sglang", "stop"), run("vllm", "seed"),
            run("vllm", "prompt_logprobs", method="mtp"),
        ),
        negative=(run("vllm", "temperature"), run("vllm", "prompt_logprobs")),
    ),
    "REQUEST-04": Fixtures(
        positive=(run("vllm", "dry_multiplier"), run("llamacpp", "min_p")),
        negative=(run("vllm", "temperature", "min_p"),),
    ),
    "REQUEST-05": Fixtures(
        positive=(run("vllm", "tools", lookup=LookUp(min_ngram=2, max_ngram=5)),),
        negative=(
            run("vllm", "tools", lookup=LookUp(min_ngram=8, max_ngram=8)),
            run("vllm", "stop", lookup=LookUp(min_ngram=2, max_ngram=5)),
        ),
    ),
}  # fmt: skip
