"""`--config FILE`: what the file says counts where the command line says nothing, in every engine that takes one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import Parsed
from draftproof.configs.registry import dialect
from draftproof.core.errors import DraftproofError

COMMANDS = {"vllm": "vllm serve", "sglang": "python3 -m sglang.launch_server"}
ENGINES = pytest.mark.parametrize("engine", COMMANDS)

FILES = {
    "vllm": "# ours\nmodel: org/M\nmax_num_seqs: 8\ndtype: half\nenable-prefix-caching: false\nport: 99\n"
    "lora-modules: [a=x, b=y]\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 3\n",
    "sglang": "model: org/M\nmax-running-requests: 8\ndtype: half\ndisable-radix-cache: true\nport: 99\n"
    "lora-paths: [a=x, b=y]\nenable-lora: false\nspeculative-algorithm: NGRAM\nspeculative-num-draft-tokens: 3\n",
}
WHOLE = {
    "vllm": "vllm serve org/M --max-num-seqs 8 --dtype half --no-enable-prefix-caching --port 99 "
    """--lora-modules a=x b=y --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""",
    "sglang": "python3 -m sglang.launch_server --model org/M --max-running-requests 8 --dtype half --port 99 "
    "--disable-radix-cache --lora-paths a=x b=y --speculative-algorithm NGRAM --speculative-num-draft-tokens 3",
}  # fmt: skip


def reader(text: str) -> Callable[[str], str]:
    def read(name: str) -> str:
        if name != "dir/serve.yaml":
            raise DraftproofError("DP002", name, f"{name}: nothing", "a file", "Create it.")
        return text

    return read


def parse(engine: str, arguments: str, text: str | None = None) -> Parsed:
    read = reader(FILES[engine] if text is None else text)
    return dialect(engine).parse(f"{COMMANDS[engine]} {arguments}", read=read)


@ENGINES
def test_a_file_says_what_flags_would(engine: str) -> None:
    found = parse(engine, "--config dir/serve.yaml")
    whole = dialect(engine).parse(WHOLE[engine])
    assert found.remarks == whole.remarks
    assert said(found.deployment) == said(whole.deployment)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("engine", "flags", "path", "value"),
    [
        ("vllm", "--max-num-seqs 9", "max_num_seqs", 9),
        ("vllm", "--enable-prefix-caching", "prefix_caching", True),
        ("vllm", '--speculative-config \'{"method": "suffix"}\'', "speculation.method", "suffix"),
        ("vllm", "--speculative-config.method suffix", "speculation.method", "suffix"),
        ("sglang", "--max-running-requests 9", "max_num_seqs", 9),
        ("sglang", "--speculative-algorithm EAGLE3", "speculation.method", "eagle3"),
    ],
)
def test_the_command_line_wins(engine: str, flags: str, path: str, value: object, before: bool) -> None:
    text = f"{flags} --config dir/serve.yaml" if before else f"--config dir/serve.yaml {flags}"
    assert said(parse(engine, text).deployment)[path] == value


def test_a_model_before_the_flags_wins_over_the_files() -> None:
    found = dialect("vllm").parse("vllm serve org/N --config dir/serve.yaml", read=reader(FILES["vllm"]))
    assert found.deployment.target is not None
    assert found.deployment.target.name == "org/N"


@ENGINES
@pytest.mark.parametrize("name", ["gone.yaml", "/other/machine/serve.yml"])
def test_a_file_that_is_not_here_is_told(engine: str, name: str) -> None:
    found = parse(engine, f"--config {name}")
    [remark] = [remark for remark in found.remarks if remark.effect == "unread"]
    assert remark.setting == "--config"
    assert name in remark.reason
    assert name in found.deployment.rest
    [remark] = [
        remark
        for remark in dialect(engine).parse(f"{COMMANDS[engine]} --config {name}").remarks
        if remark.effect == "unread"
    ]
    assert "not at hand" in remark.reason


@ENGINES
def test_in_one_word_with_its_value_it_is_read_by_nobody(engine: str) -> None:
    found = parse(engine, "--config=dir/serve.yaml")
    assert ("ignored", "--config FILE") in [(remark.effect, remark.today) for remark in found.remarks]
    assert found.deployment.max_num_seqs is None
    assert "--config" not in " ".join(found.deployment.rest)


@ENGINES
@pytest.mark.parametrize(
    ("arguments", "text", "place"),
    [
        ("--config", "", "line 1"),
        ("--config dir/serve.yaml --config dir/serve.yaml", "", "line 1"),
        ("--config dir/serve.json", "", "line 1"),
        ("--config dir/serve.yaml", "- a\n- b", "dir/serve.yaml, line 1"),
        ("--config dir/serve.yaml", "port: 1\nport: 2", "dir/serve.yaml, line 2"),
        ("--config dir/serve.yaml", "a: {", "dir/serve.yaml, line 1"),
        ("--config dir/serve.yaml", "port: 1\ntp: 2\ntensor-parallel-size: many", "dir/serve.yaml, line 3"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(engine: str, arguments: str, text: str, place: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        parse(engine, arguments, text)
    assert caught.value.code == "DP111"
    assert place in caught.value.field


@ENGINES
def test_an_empty_file_says_nothing(engine: str) -> None:
    assert parse(engine, "--config dir/serve.yaml --dtype bfloat16", "").deployment.dtype == "bfloat16"


@ENGINES
def test_a_flag_in_two_spellings_is_told(engine: str) -> None:
    """vLLM takes underscores for dashes; an alias is another name in both."""
    first, second = {"vllm": ("max-num-seqs", "max_num_seqs"), "sglang": ("tp", "tensor-parallel-size")}[
        engine
    ]
    field = {"vllm": "max_num_seqs", "sglang": "tensor_parallel"}[engine]
    target = {"vllm": "m", "sglang": "--model m"}[engine]
    found = parse(engine, f"{target} --config dir/serve.yaml", f"{first}: 8\n{second}: 16\n")
    assert getattr(found.deployment, field) == 16
    [remark] = [remark for remark in found.remarks if "given again" in remark.reason]
    assert remark.effect == "ignored"
    assert "8" in remark.found
