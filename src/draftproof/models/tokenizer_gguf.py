"""A `tokenizers` tokenizer from GGUF metadata. Called by `tokenizer.py`; knows the metadata keys and nothing else.

GGUF names the pre-tokenizer (`tokenizer.ggml.pre`) instead of describing it; the rules below are those that the
named models' own tokenizer.json files carry. What is not in the table is refused: a wrong rule would give other
tokens than the model was trained on, without any visible error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from draftproof.core.errors import DraftproofError

_CONTROL, _USER_DEFINED = 3, 4
_MAX_TOKEN_CHARACTERS = 4096
_PHI3_PLAIN_TOKENS = ("<unk>", "<s>", "<|endoftext|>")

_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}|"
    r" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _case_split(ending: str, digits: str) -> str:
    """Words end where lower case is followed by upper case; `ending` may follow a word."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}{_UPPER}*{_LOWER}+{ending}|{start}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one `tokenizer.ggml.pre` cuts text before merging: the patterns, each applied to what the last left."""

    patterns: tuple[str, ...]
    is_nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


_QWEN2 = _Rule((_CL100K_SPLIT.format(digits=""),), is_nfc=True)
_CL100K = (_CL100K_SPLIT.format(digits="{1,3}"),)
_LLAMA3 = _Rule(_CL100K, ignore_merges=True, adds_bos=True)

RULES: dict[str, _Rule] = {
    "gpt-2": _Rule((_GPT2_SPLIT,)),
    "smollm": _Rule((r"\p{N}", _GPT2_SPLIT)),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _Rule(_CL100K, ignore_merges=True),  # SmolLM3: Llama 3's tokens without its beginning
    "dbrx": _Rule(_CL100K),  # Phi-4
    "gpt-4o": _Rule((_case_split("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "{1,3}"),)),  # Phi-4-mini
    "tekken": _Rule((_case_split("", ""),), ignore_merges=True, adds_bos=True),  # Mistral since Nemo
}


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Builds the tokenizer that `metadata` describes. Raises DP405 for kinds that are not supported."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens = _list(metadata, "tokenizer.ggml.tokens", str)
    if len(set(tokens)) != len(tokens) or not tokens or max(map(len, tokens)) > _MAX_TOKEN_CHARACTERS:
        expected = f"distinct tokens of at most {_MAX_TOKEN_CHARACTERS} characters"
        raise _unsupported("tokenizer.ggml.tokens", f"{len(tokens)} tokens that are not", expected)
    if kind == "gpt2":
        tokenizer, adds_bos = _byte_level(metadata, tokens)
    elif kind == "llama":
        tokenizer, adds_bos = _sentencepiece(metadata, tokens), True
    else:
        raise _unsupported("tokenizer.ggml.model", kind, "gpt2 or llama")
    _add_special_tokens(tokenizer, metadata, tokens)
    if metadata.get("tokenizer.ggml.add_bos_token", adds_bos):
        bos = metadata.get("tokenizer.ggml.bos_token_id")
        if type(bos) is not int or not 0 <= bos < len(tokens):
            raise _unsupported("tokenizer.ggml.bos_token_id", bos, f"a token id below {len(tokens)}")
        try:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)]
            )
        except Exception as error:  # the library reads some texts as its own notation
            raise _unsupported(
                "tokenizer.ggml.bos_token_id", tokens[bos], "a token of ordinary text"
            ) from error
    return tokenizer


def _byte_level(metadata: Mapping[str, Any], tokens: list[str]) -> tuple[Tokenizer, bool]:
    name = metadata.get("tokenizer.ggml.pre")
    if not isinstance(name, str) or name not in RULES:
        raise _unsupported("tokenizer.ggml.pre", name, f"one of {', '.join(RULES)}")
    rule = RULES[name]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    merges = [merge.partition(" ")[::2] for merge in _list(metadata, "tokenizer.ggml.merges", str)]
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the library's own check, with the token that it lacks
        expected = "pairs of tokens that join to a token"
        raise _unsupported("tokenizer.ggml.merges", f"{error}"[:200], expected) from error
    tokenizer = Tokenizer(model)
    if rule.is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, rule.adds_bos


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str]) -> Tokenizer:
    """SentencePiece's BPE with byte fallback: pieces are merged in order of score, spaces are ▁."""
    scores = _list(metadata, "tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise _unsupported("tokenizer.ggml.scores", f"{len(scores)} scores", f"{len(tokens)}, one per token")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise _unsupported("tokenizer.ggml.unknown_token_id", unknown, f"a token id below {len(tokens)}")
    model = models.BPE(
        vocabulary,
        _merges_by_score(vocabulary, scores),
        unk_token=tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    has_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    prefix = [normalizers.Prepend("▁")] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_by_score(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to join two pieces to a third, best-scored result first."""
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, token_id in vocabulary.items():
        for cut in range(1, len(piece)):
            first, second = piece[:cut], piece[cut:]
            if first in vocabulary and second in vocabulary:
                ranked.append((-scores[token_id], vocabulary[first], vocabulary[second], first, second))
    return [entry[3:] for entry in sorted(ranked)]


def _add_special_tokens(tokenizer: Tokenizer, metadata: Mapping[str, Any], tokens: list[str]) -> None:
    types = _list(metadata, "tokenizer.ggml.token_type", int) or [1] * len(tokens)
    if len(types) != len(tokens):
        raise _unsupported(
            "tokenizer.ggml.token_type", f"{len(types)} types", f"{len(tokens)}, one per token"
        )
    is_phi3 = (
        metadata.get("general.architecture") == "phi3" and metadata.get("tokenizer.ggml.model") == "llama"
    )

    def swallows_spaces(token: str) -> bool:
        """Phi-3's own file says so of its markers; GGUF files cannot."""
        return is_phi3 and token not in _PHI3_PLAIN_TOKENS

    added = [
        AddedToken(token, special=kind == _CONTROL, normalized=False, rstrip=swallows_spaces(token))
        for token, kind in zip(tokens, types, strict=True)
        if kind in (_CONTROL, _USER_DEFINED) and token
    ]
    tokenizer.add_tokens(added)


def _list(metadata: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = metadata.get(key, [])
    if not isinstance(values, list) or not set(map(type, values)) <= {kind}:
        raise _unsupported(key, f"{str(values)[:60]}", f"an array of {kind.__name__}")
    return values


def _unsupported(field: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP405", f"GGUF: {field}", found, expected, "Convert the model again with a current converter."
    )
