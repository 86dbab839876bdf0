"""Tokenizers of both formats: Transformers' ids, round trips, bytes of tokens, and refusals by name."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import open_checkpoint, read_gguf
from draftproof.core.errors import DraftproofError
from draftproof.models.tokenizer import Tokenizer, load_tokenizer
from draftproof.models.tokenizer_gguf import RULES, tokenizer_from_gguf
from support.checkpoints import write_checkpoint, write_gguf
from support.specs import EOS_ID, START_ID, TINY

TEXTS = [
    "Hello world's 1234 tests, it's 2026!\n\n  x = 5\t\n",
    "Der Straßenbahnführer sagt: „Grüß Gott“ – 3,14 €",
    "def f(a, b):\r\n    return a+b  # 💥🙂👨‍👩‍👧 ünïcödé",
    "   leading and trailing   ",
    "\n\n\n",
    "",
    "日本語のテキスト 한국어 العربية",
    "<|im_start|>user\nhi<|im_end|>\n",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_gguf(write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf")).metadata


@pytest.fixture(scope="module", params=["directory", "gguf"])
def tokenizer(request: pytest.FixtureRequest, directory: Path, metadata: dict[str, Any]) -> Tokenizer:
    if request.param == "directory":
        return load_tokenizer(open_checkpoint(directory))
    return Tokenizer(tokenizer_from_gguf(metadata))


def test_a_files_vocabulary_has_the_size_that_its_tokens_say(
    metadata: dict[str, Any], tmp_path: Path
) -> None:
    loaded = load_tokenizer(read_gguf(write_gguf(tmp_path / "m.gguf")))
    assert loaded.vocab_size == Tokenizer(tokenizer_from_gguf(metadata)).vocab_size


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_transformers(directory: Path, tokenizer: Tokenizer, text: str) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    ids = reference(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(text) == ids
    for skip_special in (False, True):
        assert tokenizer.decode(ids, skip_special) == reference.decode(ids, skip_special_tokens=skip_special)


@settings(deadline=None, max_examples=100)
@given(text=st.text(max_size=40))
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == text.encode()


def test_special_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user<|im_end|>")
    assert (ids[0], ids[-1]) == (START_ID, EOS_ID)
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.token_bytes(EOS_ID) == b"<|im_end|>"
    assert tokenizer.token_id("<|im_end|>") == EOS_ID
    assert tokenizer.token_id("nothing like this") is None


def test_ids_without_a_token_stand_for_nothing(directory: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(directory))
    assert tokenizer.vocab_size <= TINY.vocab
    ids = tokenizer.encode("word")
    assert tokenizer.decode([10**6, *ids, tokenizer.vocab_size]) == "word"
    assert tokenizer.token_bytes(10**6) == b""


def test_half_a_character_is_a_replacement_in_text_and_exact_in_bytes(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("💥")
    assert len(ids) == 4
    assert tokenizer.decode(ids[:3]) == "\ufffd"
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids[:3]) == "💥".encode()[:3]


def pieces(rule: str, metadata: dict[str, Any], text: str) -> list[str]:
    """What is left of `text` after the rule's cuts, before merging."""
    backend = tokenizer_from_gguf(metadata | {"tokenizer.ggml.pre": rule})
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    tokenizer = Tokenizer(backend)
    places = [place for _, place in backend.pre_tokenizer.pre_tokenize_str(text)]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    return [text[start:stop] for start, stop in places]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("gpt-2", "I'LL we're 12345 x\n\n y", ["I", "'", "LL", " we", "'re", " 12345", " x", "\n\n", " y"]),
        ("smollm", "a 123 4x", ["a", " ", "1", "2", "3", " ", "4", "x"]),
        ("smollm", "I'LL  b", ["I", "'", "LL", " ", " b"]),
        ("qwen2", "I'LL 123 x\n\n y", ["I", "'LL", " ", "1", "2", "3", " x", "\n\n", " y"]),
        ("qwen2", "e\u0301!\r\nb", ["é", "!\r\n", "b"]),
        ("llama-bpe", "I'll 12345 x\n\n y", ["I", "'ll", " ", "123", "45", " x", "\n\n", " y"]),
        ("llama-bpe", "e\u0301", ["e", "\u0301"]),
        ("smaug-bpe", "I'll 12345 x\n\n y", ["I", "'ll", " ", "123", "45", " x", "\n\n", " y"]),
        ("dbrx", "I'LL 1234 getHTTPResponse", ["I", "'LL", " ", "123", "4", " getHTTPResponse"]),
        (
            "gpt-4o",
            "I'LL 1234 getHTTPResponse we're",
            ["I'LL", " ", "123", "4", " get", "HTTPResponse", " we're"],
        ),
        ("gpt-4o", "e\u0301!/\r\nÄb", ["e\u0301", "!/\r\n", "Äb"]),
        (
            "tekken",
            "I'LL 12 getHTTPResponse we're",
            ["I", "'LL", " ", "1", "2", " get", "HTTPResponse", " we", "'re"],
        ),
    ],
)
def test_rules_cut_as_the_models_own_files_say(
    metadata: dict[str, Any], rule: str, text: str, expected: list[str]
) -> None:
    assert pieces(rule, metadata | {"tokenizer.ggml.add_bos_token": False}, text) == expected


def test_markers_of_phi3_swallow_the_spaces_behind_them() -> None:
    metadata = sentencepiece_metadata(0)
    tokens = [*metadata["tokenizer.ggml.tokens"], "<|user|>"]
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [*metadata["tokenizer.ggml.scores"], -1000.0],
        "tokenizer.ggml.token_type": [*metadata["tokenizer.ggml.token_type"], 3],
    }
    for architecture in ("phi3", "llama"):
        tokenizer = Tokenizer(tokenizer_from_gguf(metadata | {"general.architecture": architecture}))
        ids = tokenizer.encode("<|user|>\n a")
        assert ids[0] == len(tokens) - 1
        assert (ids == tokenizer.encode("<|user|>a")) == (architecture == "phi3")
    plain = Tokenizer(tokenizer_from_gguf(metadata | {"general.architecture": "phi3"}))
    assert len(plain.encode("<s> a")) > len(plain.encode("<s>a"))


def test_every_rule_builds(metadata: dict[str, Any]) -> None:
    for rule in RULES:
        assert Tokenizer(tokenizer_from_gguf(metadata | {"tokenizer.ggml.pre": rule})).encode("a b")


def test_what_texts_begin_with_is_added_on_demand(metadata: dict[str, Any]) -> None:
    silent = Tokenizer(tokenizer_from_gguf(metadata))
    assert silent.encode("a", add_special=True) == silent.encode("a")
    for changes in ({"tokenizer.ggml.add_bos_token": True}, {"tokenizer.ggml.pre": "llama-bpe"}):
        changed = {key: value for key, value in metadata.items() if key != "tokenizer.ggml.add_bos_token"}
        adding = Tokenizer(tokenizer_from_gguf(changed | changes))
        assert adding.encode("a", add_special=True) == [0, *silent.encode("a")]
        assert adding.encode("a") == silent.encode("a")


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.model": "bert"},
        {"tokenizer.ggml.model": None},
        {"tokenizer.ggml.pre": "falcon"},
        {"tokenizer.ggml.pre": "default"},
        {"tokenizer.ggml.pre": None},
        {"tokenizer.ggml.pre": 5},
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.tokens": [1, 2]},
        {"tokenizer.ggml.tokens": "abc"},
        {"tokenizer.ggml.tokens": ["a" * 10_000]},
        {"tokenizer.ggml.token_type": [1, 2]},
        {"tokenizer.ggml.merges": ["no-such pair"]},
        {"tokenizer.ggml.merges": ["alone"]},
        {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 10**6},
        {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": None},
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0]},
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.unknown_token_id": -1},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_other_kinds_are_refused(metadata: dict[str, Any], changes: dict[str, Any]) -> None:
    if changes.get("tokenizer.ggml.model") == "llama":
        metadata = metadata | {"tokenizer.ggml.scores": [0.0] * len(metadata["tokenizer.ggml.tokens"])}
    with pytest.raises(DraftproofError) as caught:
        tokenizer_from_gguf(metadata | changes)
    assert caught.value.code == "DP405"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "Other"}}', "\x00"])
def test_a_broken_tokenizer_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DraftproofError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == "DP402"


# SentencePiece: checked against the algorithm written out.

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab", "cab", "ß", "▁▁", "ca"]


def sentencepiece_metadata(seed: int) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *WORDS]
    scores = random.Random(seed).sample(range(-1000, 0), len(tokens))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(score) for score in scores],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(WORDS)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def merge_best_first(text: str, metadata: dict[str, Any]) -> list[int]:
    """SentencePiece's BPE: of all neighbours that join to a piece, the best-scored pair joins, the left one first."""
    ids = {token: token_id for token_id, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    scores = metadata["tokenizer.ggml.scores"]
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joins = [
            (-scores[ids[a + b]], at) for at, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ids
        ]
        if not joins:
            break
        _, at = min(joins)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [
        token_id
        for part in parts
        for token_id in ([ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()])
    ]


@settings(deadline=None, max_examples=150)
@given(text=st.text(alphabet="abc ßé🙂", max_size=20), seed=st.integers(0, 5))
def test_sentencepiece_merges_by_score(text: str, seed: int) -> None:
    metadata = sentencepiece_metadata(seed)
    tokenizer = Tokenizer(tokenizer_from_gguf(metadata))
    ids = tokenizer.encode(text)
    assert ids == merge_best_first(text, metadata)
    assert tokenizer.decode(ids) == text
    expected = (" " + text if text else "").encode()
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == expected
    assert tokenizer.encode(text, add_special=True) == [1, *ids]
