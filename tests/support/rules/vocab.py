"""Cases of the VOCAB family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import ModelRef, Speculation
from support.rules.building import QWEN, TOKENS, Build, Checkpoint, Fixtures, case

TARGET = Checkpoint(QWEN)
MODEL = Speculation(method="draft_model", drafter=ModelRef(name="org/drafter"), depth=4)
CROSSING = Speculation(
    method="draft_model", drafter=ModelRef(name="org/drafter"), depth=4, different_vocabulary=True
)

SWAPPED = (*TOKENS[:4], TOKENS[5], TOKENS[4], *TOKENS[6:])
OTHER = ("<|end|>", "<|start|>", *"abcdefghi", "zz", "yy", "xx", "ww", "vv")


def drafter(tokens: tuple[str, ...] = TOKENS, **changes: Any) -> Checkpoint:
    return Checkpoint({**QWEN, "num_hidden_layers": 2, **changes}, tokens=tokens)


def pair(engine: str, drafter: Checkpoint, speculation: Speculation = MODEL, **fields: Any) -> Build:
    return case(engine, speculation, TARGET, drafter, **fields)


def templated(text: str) -> Checkpoint:
    return Checkpoint(QWEN, documents={"tokenizer_config.json": {"chat_template": text, "unk_token": None}})


PADDED = drafter(vocab_size=24)

FIXTURES = {
    "VOCAB-01": Fixtures(
        positive=(pair("draftproof", PADDED), pair("vllm", PADDED), pair("llamacpp", PADDED)),
        negative=(pair("vllm", drafter()), pair("vllm", drafter(SWAPPED, vocab_size=24))),
    ),
    "VOCAB-02": Fixtures(
        positive=(
            pair("vllm", PADDED),
            pair("transformers", PADDED),
            pair("sglang", PADDED),
            pair("llamacpp", drafter(vocab_size=16 + 129)),
        ),
        negative=(
            pair("vllm", drafter()),
            pair("vllm", PADDED, CROSSING),
            pair("llamacpp", drafter(vocab_size=16 + 128)),
            pair("draftproof", PADDED),
        ),
    ),
    "VOCAB-03": Fixtures(
        positive=(pair("vllm", drafter(SWAPPED)), pair("sglang", drafter(SWAPPED)), pair("trtllm", drafter(SWAPPED))),
        negative=(
            pair("vllm", drafter()),
            pair("vllm", PADDED),
            pair("vllm", drafter(SWAPPED), CROSSING),
            pair("draftproof", drafter(SWAPPED)),
        ),
    ),
    "VOCAB-04": Fixtures(
        positive=(pair("draftproof", drafter(OTHER)), pair("vllm", drafter(OTHER), CROSSING)),
        negative=(pair("draftproof", drafter()), pair("draftproof", PADDED), pair("vllm", drafter(OTHER))),
    ),
    "VOCAB-05": Fixtures(
        positive=(pair("vllm", drafter(eos_token_id=1)), pair("sglang", drafter(bos_token_id=[0]))),
        negative=(pair("vllm", drafter(eos_token_id=[1, 0])), pair("vllm", drafter(bos_token_id=None))),
    ),
    "VOCAB-06": Fixtures(
        positive=(pair("vllm", drafter(TOKENS[:-2])), pair("sglang", drafter((*TOKENS[:5], "", *TOKENS[6:])))),
        negative=(pair("vllm", drafter()), pair("vllm", drafter((*TOKENS, "Ġmore")))),
    ),
    "VOCAB-07": Fixtures(
        positive=(case("vllm", MODEL, templated("{{ a }}"), templated("{{ b }}")),),
        negative=(case("vllm", MODEL, templated("{{ a }}"), templated(" {{ a }}\n")), pair("vllm", drafter())),
    ),
    "VOCAB-08": Fixtures(
        positive=(case("vllm", CROSSING, templated("{{ a }}"), templated("{{ b }}")),),
        negative=(
            case("vllm", MODEL, templated("{{ a }}"), templated("{{ b }}")),
            pair("vllm", drafter(), CROSSING),
        ),
    ),
}  # fmt: skip
