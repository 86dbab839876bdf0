"""Cases of the PAIR family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Method, ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def head(verifier: dict[str, Any] | None = None, **changes: Any) -> Checkpoint:
    declared = {"speculators_config": {"verifier": verifier}} if verifier is not None else {}
    return Checkpoint({**QWEN, **declared, **changes}, tokens=None)


def run(
    drafter: Checkpoint,
    target: str = "org/Target-8B",
    name: str = "someone/head",
    method: Method = "eagle3",
    revision: str | None = None,
) -> Build:
    speculation = Speculation(method=method, drafter=ModelRef(name=name), depth=4)
    return case(
        "vllm", speculation, Checkpoint(QWEN), drafter, target=ModelRef(name=target, revision=revision)
    )


LLAMA, EAGLE = "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"

FIXTURES = {
    "PAIR-01": Fixtures(
        positive=(run(head()), run(head(), method="draft_model"), run(head(), target=LLAMA)),
        negative=(run(head(), target=LLAMA, name=EAGLE), run(head({"name_or_path": "org/Target-8B"}))),
    ),
    "PAIR-02": Fixtures(
        positive=(
            run(head({"name_or_path": "org/Target-70B"})),
            run(head(target_model_name_or_path="org/Other")),
            run(head({"name_or_path": "org/Target-8B"}), target="org/Target-8B-FP8"),
            run(head({"name_or_path": "org/Target-8B"}), target="/mnt/models"),
            run(head({"name_or_path": "/home/me/checkpoint"})),
            run(head({"name_or_path": "org/Target-8B", "architectures": ["LlamaForCausalLM"]}), target="/mnt/models"),
        ),
        negative=(run(head({"name_or_path": "org/Target-8B"})), run(head({"name_or_path": "/models/target-8b/"})),
            run(head()),
            run(head({"name_or_path": "org/Target-8B"}), target="/hub/models--org--Target-8B/snapshots/" + "a" * 40),
        ),
    ),
    "PAIR-03": Fixtures(
        positive=(run(head({"name_or_path": "org/Target-8B", "revision": "a" * 40}), revision="b" * 40),),
        negative=(
            run(head({"name_or_path": "org/Target-8B", "revision": "a" * 40}), revision="a" * 8),
            run(head({"name_or_path": "org/Target-8B"}), revision="b" * 40),
        ),
    ),
}  # fmt: skip
