"""Nothing secret reaches a record, and nothing harmless is lost from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.configs.lock.making import arguments_of
from draftproof.configs.lock.redaction import HIDDEN, is_secret_name, redact, redact_text, redact_words

SECRET = "s3cretValue0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {SECRET}",
        f"vllm serve m --api-key={SECRET}",
        f"vllm serve m --api-key first-{SECRET} second-{SECRET} --port 1",
        f"vllm serve m --api-key '{SECRET}'",
        f"vllm serve m --hf-token {SECRET}",
        f"HF_TOKEN={SECRET} vllm serve m",
        f"env OPENAI_API_KEY={SECRET} AWS_SECRET_ACCESS_KEY={SECRET} vllm serve m",
        f"vllm serve m --chat-template https://user:{SECRET}@host/x",
        f"vllm serve 'https://host/m?api_key={SECRET}&x=1'",
        f"curl -H 'Authorization: Bearer {SECRET}' host",
        f"llama-server --api-key {SECRET} -m model.gguf",
        f"python -m sglang.launch_server --admin-api-key {SECRET}",
        f'vllm serve m --kv-transfer-config \'{{"password": "{SECRET}"}}\'',
        f'{{"model": "m", "api_key": "{SECRET}"}}',
        f"model: m\napi_key: {SECRET}\nextra:\n  hf_token: '{SECRET}'\n",
        f"secrets: [{SECRET}, {SECRET}]\n",
        f"vllm serve m \\\n  --api-key \\\n {SECRET}",
        "vllm serve m --something hf_abcdefghijklmnopqrstuvwxyz",
        "vllm serve m --something sk-proj-abcdefghijklmnop",
        "vllm serve m --something eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    ],
)
def test_secrets_are_left_out(text: str) -> None:
    kept = json.dumps(arguments_of(text))
    assert HIDDEN in kept
    for secret in (SECRET, "abcdefghijklmnop", "eyJzdWIiOiIxIn0"):
        assert secret not in kept


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve Qwen/Qwen3-8B --num-speculative-tokens 5 --max-num-batched-tokens 8192 --tokenizer Qwen/Qwen3-8B",
        "vllm serve m --ssl-keyfile /etc/key.pem --api-key-env MY_KEY --eos-token '</s>' --mask-token-id 7",
        "llama-server -m a.gguf -md b.gguf --draft-max 16 --api-key-file /run/keys",
        "python -m sglang.launch_server --speculative-num-draft-tokens 4 --speculative-token-map x.pt",
    ],
)
def test_what_is_no_secret_is_kept(text: str) -> None:
    assert HIDDEN not in json.dumps(arguments_of(text))


def test_nested_values() -> None:
    given = {
        "rest": ["--api-key", SECRET],
        "env": {"HF_TOKEN": SECRET},
        "depth": 5,
        "ok": [1, {"password": SECRET}],
    }
    kept = redact(given)
    assert SECRET not in json.dumps(kept)
    assert kept["depth"] == 5


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
    assert len(redact_words(text.split())) == len(text.split())


@given(st.sampled_from(["--api-key", "--token", "--password", "--hf-token"]), st.text(min_size=1))
def test_no_word_after_a_secret_flag_survives(flag: str, value: str) -> None:
    if not value.startswith("-"):
        assert redact_words([flag, value]) == [flag, HIDDEN]


def test_names() -> None:
    for name in (
        "api_key",
        "apiKey",
        "X-Api-Key",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "password",
        "token",
        "auth",
    ):
        assert is_secret_name(name), name
    for name in (
        "tokenizer",
        "num_tokens",
        "eos_token",
        "eos_token_id",
        "key_length",
        "api_key_env",
        "cache_key",
        "",
    ):
        assert not is_secret_name(name), name
