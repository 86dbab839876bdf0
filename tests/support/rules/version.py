"""Cases of the VERSION family."""

from __future__ import annotations

from draftproof.configs.speculation import Speculation
from support.rules.building import Build, Fixtures, case


def run(engine: str, version: str | None) -> Build:
    return case(engine, Speculation(method="ngram", depth=4), version=version)


FIXTURES = {
    "VERSION-01": Fixtures(
        positive=(run("vllm", "0.9.1"), run("sglang", "0.4.0"), run("llamacpp", "b5000")),
        negative=(
            run("vllm", "0.33.0"),
            run("vllm", None),
            run("sglang", "v0.5.23-cu129"),
            run("llamacpp", "b11434"),
        ),
    ),
}
