"""One tokenizer in the files of every kind that is read, for tests."""

from __future__ import annotations

import base64
import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.checkpoints import SPECIAL_TOKENS, build_tokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.", "Der schnelle braune Fuchs springt über den faulen Hund.",
    "for index in range(10): print(index)", "Ein Beispiel für die Straße, 0123456789.",
]  # fmt: skip


def write_documents(directory: Path, **documents: Any) -> Path:
    """`config` becomes config.json, and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in {"config": {}, **documents}.items():
        (directory / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return directory


def decoder_of(names: Mapping[int, str], special: bool = True) -> dict[str, Any]:
    """A tokenizer_config.json that adds these tokens."""
    return {
        "added_tokens_decoder": {
            str(token_id): {"content": name, "special": special} for token_id, name in names.items()
        }
    }


def write_vocab_json(directory: Path, vocab: int = 400, **documents: Any) -> Path:
    """The tokenizer of `support.checkpoints` as GPT-2 and Qwen2 keep it: the special ones are the first ids."""
    write_documents(directory, **documents)
    build_tokenizer(vocab).model.save(str(directory))
    return directory


def write_tiktoken(path: Path, tokens: Mapping[int, bytes]) -> Path:
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in tokens.items()]
    path.write_bytes(b"".join(lines))
    return path


def tekken(
    tokens: list[bytes], special: list[str] | None, num_special: int, size: int | None = None
) -> dict[str, Any]:
    return {
        "config": {
            "pattern": ".", "num_vocab_tokens": len(tokens), "default_num_special_tokens": num_special,
            "default_vocab_size": num_special + len(tokens) if size is None else size, "version": "v7",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
        **({} if special is None else {"special_tokens": [
            {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(special)
        ]}),
    }  # fmt: skip


def train_sentencepiece(kind: str = "bpe", size: int = 320) -> bytes:
    """A model by the library itself, with every type of piece: bytes, control and user-defined ones with blanks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its bindings, from Python 3.12 on
        import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 4), model_writer=model, model_type=kind, vocab_size=size, byte_fallback=True,
        control_symbols=["[INST]"], user_defined_symbols=["▁▁", "<think>"], hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def special_of(vocab: int = 400) -> dict[int, str]:
    return {build_tokenizer(vocab).token_to_id(name): name for name in SPECIAL_TOKENS}
