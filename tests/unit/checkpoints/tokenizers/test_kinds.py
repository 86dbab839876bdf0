"""Tokenizer files of every kind: the same tokens are the same map, whichever file they lie in."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from draftproof.checkpoints.hub_settings import HubSettings
from draftproof.checkpoints.view import open_view
from draftproof.checkpoints.vocabulary import Vocabulary, compare
from support.checkpoints import SPECIAL_TOKENS, build_tokenizer, write_checkpoint, write_gguf
from support.fake_hub import fake_hub
from support.tokenizers import (
    decoder_of,
    special_of,
    tekken,
    train_sentencepiece,
    write_documents,
    write_tiktoken,
    write_vocab_json,
)


def vocabulary(directory: Path) -> Vocabulary:
    found = open_view(str(directory)).vocabulary()
    assert found is not None
    return found


# vocab.json with merges.txt


@pytest.mark.parametrize(
    "documents",
    [
        {"tokenizer_config": decoder_of(special_of())},
        {
            "tokenizer_config": {
                "eos_token": {"content": "<|im_end|>"}, "additional_special_tokens": list(SPECIAL_TOKENS),
            },
        },
        {"special_tokens_map": {"extra_special_tokens": dict(enumerate(SPECIAL_TOKENS))}},
        {
            "special_tokens_map": {"bos_token": SPECIAL_TOKENS[0], "additional_special_tokens": list(SPECIAL_TOKENS)},
            "added_tokens": {name: token_id for token_id, name in special_of().items()},
        },
    ],
    ids=["decoder", "config", "map", "added"],
)  # fmt: skip
def test_vocab_json_is_the_map_of_tokenizer_json(tmp_path: Path, documents: dict[str, Any]) -> None:
    view = open_view(str(write_vocab_json(tmp_path / "old", **documents)))
    assert view.tokenizer == "vocab.json"
    assert view.vocabulary() == vocabulary(write_checkpoint(tmp_path / "new", vocab=400))
    gguf = open_view(str(write_gguf(tmp_path / "model.gguf", vocab=400)))
    fit = compare(vocabulary(tmp_path / "old"), gguf.vocabulary() or Vocabulary((), frozenset()))
    assert (fit.same_ids, fit.overlap) == (True, 1.0)


def test_added_tokens_come_behind_the_vocabulary(tmp_path: Path) -> None:
    added = {401: "<tool>", 403: "<think>"}
    config = decoder_of(added, special=False)
    config["added_tokens_decoder"]["405"] = {"content": "<|eot|>", "special": True}
    found = vocabulary(write_vocab_json(tmp_path, tokenizer_config=config, added_tokens={"<old>": 402}))
    assert found.tokens[401:] == (b"<tool>", None, b"<think>", None, b"<|eot|>")
    assert found.special == {405}


def test_the_end_of_text_is_special_without_being_said(tmp_path: Path) -> None:
    """As openai-community/gpt2 has it: its tokenizer_config.json names no token."""
    found = vocabulary(write_vocab_json(tmp_path, tokenizer_config={"model_max_length": 1024}))
    assert found.special == {build_tokenizer(400).token_to_id("<|endoftext|>")}


@pytest.mark.parametrize("vocab", [{"▁the": 0, "a": 1}, {"Ġ": 0, "a</w>": 1}, {"a": 0, "b": 1}])
def test_other_alphabets_are_told(tmp_path: Path, vocab: dict[str, int]) -> None:
    write_documents(tmp_path, vocab=vocab)
    (tmp_path / "merges.txt").write_text("")
    view = open_view(str(tmp_path))
    assert view.vocabulary() is None
    assert "byte-level" in view.tokenizer


# SentencePiece


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_is_what_the_library_reads(tmp_path: Path, kind: str) -> None:
    model = train_sentencepiece(kind)
    (write_documents(tmp_path) / "tokenizer.model").write_bytes(model)
    found = vocabulary(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import sentencepiece
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert len(found.tokens) == library.get_piece_size()
    kinds = set()
    for token_id, token in enumerate(found.tokens):
        piece = library.id_to_piece(token_id)
        is_special = library.is_control(token_id) or library.is_unknown(token_id)
        assert (token_id in found.special) == is_special
        if is_special:
            assert token == piece.encode()
        elif library.is_byte(token_id):
            assert token == bytes([int(piece[3:5], 16)])
        else:
            assert token == piece.replace("▁", " ").encode()
        kinds.add((is_special, library.is_byte(token_id)))
    assert len(kinds) == 3


def test_sentencepiece_is_the_map_of_the_same_tokenizer_json(tmp_path: Path) -> None:
    """tokenizer.json as Transformers converts one: control symbols are added as special tokens, user-defined ones as
    others."""
    (write_documents(tmp_path / "model") / "tokenizer.model").write_bytes(train_sentencepiece())
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model/tokenizer.model"))
    pieces = [library.id_to_piece(token_id) for token_id in range(library.get_piece_size())]
    tokenizer = Tokenizer(
        models.BPE({piece: token_id for token_id, piece in enumerate(pieces)}, [], unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    tokenizer.add_tokens(
        [AddedToken(name, special=name not in ("▁▁", "<think>"), normalized=False)
         for name in ("<s>", "</s>", "[INST]", "▁▁", "<think>")]
    )  # fmt: skip
    write_documents(tmp_path / "json")
    tokenizer.save(str(tmp_path / "json/tokenizer.json"))
    assert vocabulary(tmp_path / "model") == vocabulary(tmp_path / "json")


def test_sentencepiece_with_added_tokens(tmp_path: Path) -> None:
    size = len(vocabulary_of_model(tmp_path / "plain").tokens)
    write_documents(tmp_path / "more", tokenizer_config=decoder_of({size: "<|im_end|>"}))
    (tmp_path / "more/tokenizer.model").write_bytes(train_sentencepiece())
    found = vocabulary(tmp_path / "more")
    assert found.tokens[size:] == (b"<|im_end|>",)
    assert size in found.special


def vocabulary_of_model(directory: Path) -> Vocabulary:
    (write_documents(directory) / "tokenizer.model").write_bytes(train_sentencepiece())
    return vocabulary(directory)


# tiktoken and tekken


def ordinary(vocab: int = 400) -> list[bytes]:
    """The generated tokenizer's tokens without its special ones, which have the first ids."""
    from draftproof.checkpoints.vocabulary import parse_vocabulary

    whole = parse_vocabulary("tokenizer.json", build_tokenizer(vocab).to_str())
    assert whole.special == {0, 1, 2}
    return [token for token in whole.tokens[3:] if token is not None]


@pytest.mark.parametrize("name", ["tiktoken.model", "tokenizer.model", "o200k_base.tiktoken"])
def test_tiktoken_with_the_special_tokens_of_its_configuration(tmp_path: Path, name: str) -> None:
    tokens = ordinary()
    special = {len(tokens) + 1: "<|im_end|>", len(tokens) + 3: "[EOS]"}
    write_documents(tmp_path, tokenizer_config=decoder_of(special))
    write_tiktoken(tmp_path / name, dict(enumerate(tokens)))
    view = open_view(str(tmp_path))
    found = view.vocabulary()
    assert found == Vocabulary((*tokens, None, b"<|im_end|>", None, b"[EOS]"), frozenset(special))
    assert view.tokenizer == name


def test_the_first_qwen_adds_its_special_tokens_in_code(tmp_path: Path) -> None:
    tokens = ordinary()
    write_tiktoken(write_documents(tmp_path) / "qwen.tiktoken", dict(enumerate(tokens)))
    found = vocabulary(tmp_path)
    assert found.tokens[len(tokens) : len(tokens) + 4] == (
        b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>", b"<|extra_0|>",
    )  # fmt: skip
    assert (len(found.special), found.tokens[-1]) == (208, b"<|extra_204|>")


def test_tekken_puts_special_tokens_first(tmp_path: Path) -> None:
    tokens = ordinary()
    document = tekken(tokens, list(SPECIAL_TOKENS), 3)
    found = vocabulary(write_documents(tmp_path / "tekken", tekken=document))
    assert found == vocabulary(write_checkpoint(tmp_path / "json", vocab=400))


def test_tekken_fills_names_and_cuts_the_tail(tmp_path: Path) -> None:
    document = tekken(ordinary(), ["<unk>", "<s>"], 4, size=14)
    found = vocabulary(write_documents(tmp_path / "listed", tekken=document))
    assert found.tokens[:4] == (b"<unk>", b"<s>", b"<SPECIAL_2>", b"<SPECIAL_3>")
    assert found.tokens[4:] == tuple(ordinary()[:10])
    old = vocabulary(write_documents(tmp_path / "old", tekken=tekken(ordinary(), None, 21)))
    assert (old.tokens[1], old.tokens[9], old.tokens[20]) == (b"<s>", b"[TOOL_CALLS]", b"<SPECIAL_20>")


# Which file is read


def test_tokenizer_json_goes_before_the_others(tmp_path: Path) -> None:
    write_vocab_json(write_checkpoint(tmp_path, vocab=320), vocab=400)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    view = open_view(str(tmp_path))
    assert view.tokenizer == "tokenizer.json"
    assert len(vocabulary(tmp_path).tokens) == 320


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sentencepiece.bpe.model", "not read"),
        ("spiece.model", "not read"),
        ("vocab.txt", "not read"),
        ("vocab.json", "not read"),
        ("rwkv_vocab_v20230424.txt", "not read"),
        ("readme.md", "no tokenizer"),
    ],
)
def test_kinds_that_are_not_read_are_named(tmp_path: Path, name: str, words: str) -> None:
    (write_documents(tmp_path) / name).write_text("{}")
    view = open_view(str(tmp_path))
    assert view.vocabulary() is None
    assert view.tokenizer_digest() is None
    assert words in view.tokenizer
    assert (name in view.tokenizer) == (words == "not read")


@pytest.mark.parametrize("kind", ["vocab.json", "tekken.json", "tiktoken.model", "tokenizer.model"])
def test_a_hub_gives_what_a_directory_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    documents = {"tokenizer_config": decoder_of({500: "<a>"}), "special_tokens_map": {"eos_token": "<a>"}}
    write_documents(tmp_path, **documents)
    if kind == "vocab.json":
        write_vocab_json(tmp_path, **documents)
    elif kind == "tekken.json":
        write_documents(tmp_path, tekken=tekken(ordinary(), None, 21), **documents)
    elif kind == "tiktoken.model":
        write_tiktoken(tmp_path / kind, dict(enumerate(ordinary())))
    else:
        (tmp_path / kind).write_bytes(train_sentencepiece())
    local = open_view(str(tmp_path))
    with fake_hub({"org/name": tmp_path}) as hub:
        remote = open_view("org/name", hub=HubSettings(endpoint=hub.endpoint))
        assert (remote.tokenizer, remote.vocabulary()) == (kind, local.vocabulary())
        assert not any("merges" in path for path in hub.paths())
        assert remote.tokenizer_digest() == local.tokenizer_digest()


def test_digests_follow_every_file_that_decides(tmp_path: Path) -> None:
    def digest(name: str, **documents: Any) -> str | None:
        return open_view(str(write_vocab_json(tmp_path / name, **documents))).tokenizer_digest()

    first = digest("first", added_tokens={"<a>": 401})
    assert first == digest("same", added_tokens={"<a>": 401})
    assert first != digest("other", added_tokens={"<b>": 401})
    assert first != digest("map", added_tokens={"<a>": 401}, special_tokens_map={"eos_token": "<a>"})


def test_check_compares_tokenizers_of_different_kinds(tmp_path: Path) -> None:
    """The rules see one map: a drafter with tekken.json against a target with tokenizer.json."""
    from draftproof.configs.rules.case import Case
    from draftproof.configs.speculation import Deployment, Speculation

    target = write_checkpoint(tmp_path / "target", vocab=400)
    equal = write_documents(tmp_path / "equal", tekken=tekken(ordinary(), list(SPECIAL_TOKENS), 3))
    other = write_documents(tmp_path / "other", tekken=tekken(ordinary(), list(SPECIAL_TOKENS), 4))
    fits = []
    for drafter in (equal, other):
        case = Case(
            deployment=Deployment(engine="draftproof", speculation=Speculation(method="draft_model")),
            target_view=open_view(str(target)), drafter_view=open_view(str(drafter)),
        )  # fmt: skip
        fits.append((case.has_same_tokenizer, case.fit.first_difference))
    assert fits[0] == (True, None)
    assert fits[1][0] is False
    assert "id 3 is" in str(fits[1][1])


def test_documents_may_be_written_as_json_dumps_does(tmp_path: Path) -> None:
    """Escapes are read: vocab.json is ASCII in some repositories, UTF-8 in others."""
    directory = write_vocab_json(tmp_path)
    before = vocabulary(directory)
    document = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    (directory / "vocab.json").write_text(json.dumps(document, ensure_ascii=True))
    assert vocabulary(directory) == before


@pytest.mark.parametrize(
    "name",
    ["tekken.json", "tiktoken.model", "o200k.tiktoken", "tokenizer.model.v3", "merges.txt", "vocab.txt"],
)
def test_the_record_of_a_deployment_knows_every_kind(tmp_path: Path, name: str) -> None:
    (write_documents(tmp_path) / name).write_text("x")
    (tmp_path / "README.md").write_text("x")
    assert set(open_view(str(tmp_path)).hashes()) == {"config.json", name}
