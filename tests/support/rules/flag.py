"""Cases of the FLAG family."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from draftproof.configs.engines.base import Remark
from draftproof.configs.speculation import BatchRange, Method, ModelRef, Speculation, Tree
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(
    engine: str, method: Method, remarks: tuple[Remark, ...] = (), fields: Any = None, **said: Any
) -> Build:
    return case(engine, Speculation(method=method, **said), remarks=remarks, **(fields or {}))


def remark(effect: str, today: str | None = "--new-flag") -> tuple[Remark, ...]:
    return (
        Remark(
            effect=effect, setting="--old-flag", found="--old-flag 3", today=today, reason="it was renamed"
        ),
    )


def noticed(effect: str) -> Fixtures:
    others = {"removed", "deprecated", "ignored", "rewritten", "inferred", "refused", "unread", "lost"} - {
        effect
    }
    return Fixtures(
        positive=(
            run("vllm", "ngram", remark(effect)),
            run("vllm", "ngram", remark(effect, None)),
        ),
        negative=(run("vllm", "ngram"), *(run("vllm", "ngram", remark(other)) for other in sorted(others))),
    )


def untyped() -> tuple[Remark, ...]:
    return (
        Remark(
            effect="inferred",
            setting="--spec-type",
            found="no --spec-type",
            today=None,
            reason="from the file",
        ),
    )


def ordinary_drafter(remarks: tuple[Remark, ...], engine: str = "llamacpp") -> Build:
    said = Speculation(method="draft_model", drafter=ModelRef(name="drafter"), depth=4)
    files = Checkpoint(QWEN, tensors={"model.embed_tokens.weight": ("BF16", (16, 64))})
    return case(engine, said, drafter_files=files, remarks=remarks)


V1 = {"extras": MappingProxyType({"vllm.env": MappingProxyType({"VLLM_USE_V2_MODEL_RUNNER": "0"})})}
V2 = {"extras": MappingProxyType({"vllm.env": MappingProxyType({"VLLM_USE_V2_MODEL_RUNNER": "1"})})}
SCHEDULE = (BatchRange(low=1, high=2, depth=2), BatchRange(low=3, high=None, depth=0))


def several_modules(count: int) -> Build:
    files = Checkpoint({**QWEN, "num_nextn_predict_layers": count}, tokens=None)
    return case("vllm", Speculation(method="mtp", schedule=SCHEDULE), files)


REJECTION = MappingProxyType({"trtllm.use_rejection_sampling": True})


def ranked(engine: str, ranks: int | None, **fields: Any) -> Build:
    """A target of four heads on as many ranks."""
    return case(engine, Speculation(method="ngram"), Checkpoint(QWEN), tensor_parallel=ranks, **fields)


FIXTURES = {
    "FLAG-01": noticed("removed"),
    "FLAG-02": noticed("deprecated"),
    "FLAG-03": noticed("ignored"),
    "FLAG-04": noticed("rewritten"),
    "FLAG-05": noticed("inferred"),
    "FLAG-06": Fixtures(
        positive=(
            run("vllm", "ngram", depth=200, fields=V1),
            run("vllm", "suffix", depth=200, fields={"version": "0.32.0"}),
            run("trtllm", "eagle3", tree=Tree(depth=4, branching=64, num_nodes=64), extras=REJECTION),
            run("trtllm", "eagle3", tree=Tree(depth=4, branching=2, num_nodes=20)),
        ),
        negative=(
            run("vllm", "ngram", depth=200),
            run("vllm", "ngram", depth=128, fields=V1),
            run("trtllm", "eagle3", tree=Tree(depth=4, branching=2, num_nodes=8)),
            run("trtllm", "eagle3", tree=Tree(depth=4, branching=64, num_nodes=64)),
        ),
    ),
    "FLAG-07": Fixtures(
        positive=(run("sglang", "eagle", tree=Tree(depth=3, branching=4, num_nodes=15)),),
        negative=(
            run("sglang", "eagle", depth=3),
            run(
                "sglang", "eagle", fields={"rest": ("--disable-overlap-schedule",)},
                tree=Tree(depth=3, branching=4, num_nodes=15),
            ),
        ),
    ),
    "FLAG-08": Fixtures(
        positive=(
            run("vllm", "eagle3", fields=V1, verification="block"),
            run("vllm", "suffix", verification="block"),
            run("vllm", "draft_model", verification="block", different_vocabulary=True),
            run("vllm", "eagle3", fields={"rest": ("--enable-dbo",)}, verification="block"),
        ),
        negative=(run("vllm", "eagle3", verification="block"), run("vllm", "eagle3", fields=V1)),
    ),
    "FLAG-09": Fixtures(
        positive=(
            run("vllm", "mtp", fields={**V2, "version": "0.20.0"}, schedule=SCHEDULE),
            run("vllm", "draft_model", schedule=SCHEDULE),
            run("vllm", "draft_model", fields={"version": "0.32.0"}, schedule=SCHEDULE),
            run("vllm", "dflash", fields={"version": "0.32.0"}, schedule=SCHEDULE),
            run("vllm", "suffix", schedule=SCHEDULE),
            run("vllm", "eagle3", fields=V1, schedule=SCHEDULE),
            several_modules(3),
        ),
        negative=(
            run("vllm", "mtp", schedule=SCHEDULE),
            run("vllm", "mtp", fields=V2),
            run("vllm", "mtp", fields=V2, schedule=SCHEDULE),
            run("vllm", "eagle3", fields={"version": "0.32.0"}, schedule=SCHEDULE),
            run("vllm", "dflash", schedule=SCHEDULE),
            run("vllm", "eagle3", fields={**V1, "enforce_eager": True}, schedule=SCHEDULE),
            run("vllm", "draft_model", fields={"data_parallel": 2}, schedule=SCHEDULE),
            several_modules(1),
        ),
    ),
    "FLAG-10": Fixtures(
        positive=(
            run("vllm", "ngram", verification="lossy"),
            run("sglang", "eagle", verification="lossy", extras={"sglang.accept-threshold-single": 0.9}),
        ),
        negative=(run("vllm", "ngram", verification="standard"), run("vllm", "ngram", verification="block")),
    ),
    "FLAG-11": Fixtures(
        positive=(run("trtllm", "mtp", extras={"trtllm.acceptance_rate_threshold": 0.3}),),
        negative=(run("trtllm", "mtp"),),
    ),
    "FLAG-12": Fixtures(
        positive=(ordinary_drafter(untyped()),),
        negative=(ordinary_drafter(()), ordinary_drafter(untyped(), engine="vllm")),
    ),
    "FLAG-13": noticed("refused"),
    "FLAG-14": Fixtures(
        positive=tuple(build for effect in ("unread", "unknown", "stray") for build in noticed(effect).positive),
        negative=noticed("unread").negative,
    ),
    "FLAG-15": Fixtures(
        positive=(
            ranked("vllm", 3),
            ranked("sglang", 8),
            ranked("sglang", 16, data_parallel=2, rest=("--enable-dp-attention",)),
        ),
        negative=(
            ranked("vllm", 2),
            ranked("sglang", 4),
            ranked("vllm", None),
            ranked("sglang", 3, data_parallel=3, rest=("--enable-dp-attention",)),
            ranked("sglang", 8, rest=("--attn-dp-size", "2")),
            ranked("sglang", 8, rest=("--attn-cp-size", "4")),
            ranked("llamacpp", 3),
        ),
    ),
}  # fmt: skip
