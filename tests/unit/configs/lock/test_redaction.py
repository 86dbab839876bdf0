"""Nothing secret reaches a record, and nothing harmless is lost from it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.configs import engines
from draftproof.configs.lock.making import arguments_of
from draftproof.configs.lock.redaction import HIDDEN, is_secret_name, redact, redact_text, redact_words
from draftproof.configs.registry import DIALECTS

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
        f"PGPASSWORD={SECRET} DB_PWD={SECRET} MY_PASS={SECRET} AWS_ACCESS_KEY_ID={SECRET} vllm serve m",
        f"llama-server -hft {SECRET} -m model.gguf",
        f"vllm serve m --api-k {SECRET} --hf-tok={SECRET}",
        f'["vllm", "serve", "m", "--api-key", "{SECRET}"]',
        f"command: [vllm, serve, m, --api-key, {SECRET}]\nenv:\n- {{name: PGPASSWORD, value: {SECRET}}}\n",
        f"args:\n  - --api-key\n  - {SECRET}\nenv:\n  - name: HF_TOKEN\n    value: '{SECRET}'\n",
        f"[Service]\nEnvironment=MY_PASS={SECRET} 'DB_PWD={SECRET}'\nExecStart=llama-server -hft {SECRET}\n",
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


SECRET_FLAGS = {
    "draftproof": set(),
    "fireworks": {"api-key", "direct-route-api-keys"},
    "llamacpp": {"--api-key", "--hf-token", "-hft", "--cors-credentials", "--no-cors-credentials"},
    "openvino": set(),
    "sglang": {"--api-key", "--admin-api-key", "--ssl-keyfile-password"},
    "transformers": set(),
    "trtllm": set(),
    "vllm": {"--api-key", "--hf-token", "allow-credentials"},
}
"""By engine; what carries no secret but is named so is hidden, too."""
_LOOKS_SECRET = re.compile(r"key|token|secret|pass|pwd|auth|cred|hft|jwt|sig\b")
_OF_PYTHON = {"pass", "key", "keys", "token", "multi-token"}


@pytest.mark.parametrize("engine", DIALECTS)
def test_every_engine_s_flags_are_judged(engine: str) -> None:
    """All names in the tables of the dialect that look like a secret are listed above, or are none."""
    folder = Path(engines.__file__).parent / engine
    text = "\n".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    names = set(re.findall(r"(?<![\w-])-{0,2}[a-z][a-z0-9-]*(?![\w-])", text))
    found = {name for name in names if _LOOKS_SECRET.search(name) and is_secret_name(name)}
    assert {name.lstrip("-") for name in found - _OF_PYTHON} <= {
        name.lstrip("-") for name in SECRET_FLAGS[engine]
    }
    for name in SECRET_FLAGS[engine]:
        flag = name if name.startswith("-") else f"--{name}"
        for text in (f"x {flag} {SECRET}", f'["x", "{flag}", "{SECRET}"]', f"- x\n- {flag}\n- {SECRET}"):
            assert SECRET not in json.dumps(arguments_of(text)), text
    assert all(
        is_secret_name(name) for name in names if name.endswith(("api-key", "api-keys", "password", "hft"))
    )


def test_names() -> None:
    for name in (
        "PGPASSWORD", "DB_PWD", "MY_PASS", "MYSQL_ROOT_PASSWORD", "AWS_ACCESS_KEY_ID", "VAULT_SECRET_ID", "-hft",
        "--api-k", "--hf-tok", "--admin-api", "redisPassword", "CLIENTSECRET", "JWT", "smtp_pw", "sig",
    ):  # fmt: skip
        assert is_secret_name(name), name
    for name in (
        "PWD", "OLDPWD", "--api", "--max-passes", "bypass", "compass_id", "end_thinking_phase_token", "key_id",
        "PASSWORD_FILE", "--host",
    ):  # fmt: skip
        assert not is_secret_name(name), name
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
