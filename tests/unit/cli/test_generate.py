"""`draftproof generate`: sources of the prompt, the document, streaming, and what bad input gets."""

import json
from pathlib import Path

import pytest

from draftproof.cli.options import ModelOptions
from draftproof.core.intent import Auto, Cascade, NGram, NoSpeculation, Predicted
from draftproof.engine.config import EngineConfig
from support.fake_engine import FakeEngine

ANSWER = "an answer of some length, always the same"


def test_text_goes_to_standard_output_and_the_rest_to_standard_error(invoke, engine: FakeEngine) -> None:
    result = invoke("generate", "m", "--prompt", "Hello")
    assert result.status == 0
    assert result.stdout == ANSWER + "\n"
    assert "float32 · weights native (1 float) · python kernels" in result.stderr
    assert "equal to plain decoding to the last bit" in result.stderr
    assert "40 tokens (length)" not in result.stderr
    assert f"+ {len(ANSWER)} tokens (length) · 100.0 tokens/s" in result.stderr
    [request] = engine.requests
    assert engine.tokenizer.decode(request.prompt_token_ids) == "<user>Hello\n<assistant>"
    assert request.params.is_greedy
    assert request.params.max_tokens == 256
    assert isinstance(request.intent, NoSpeculation)


def test_the_document_has_the_agreed_keys_and_nothing_else(invoke, engine: FakeEngine) -> None:
    result = invoke(
        "generate", "m", "--prompt", "Hello", "--json", "--speculative-config", '{"method": "ngram"}'
    )
    document = result.document
    assert result.stderr == ""
    assert set(document) == {
        "schema_version", "text", "token_ids", "finish_reason", "usage", "timing", "dtype", "weights",
        "weight_types", "kernels", "speculation",
    }  # fmt: skip
    assert document["text"] == ANSWER
    assert document["token_ids"] == [ord(character) for character in ANSWER]
    assert document["usage"] == {"prompt_tokens": 23, "completion_tokens": 41}
    assert set(document["timing"]) == {"prefill_s", "decode_s", "tokens_per_s"}
    assert document["timing"]["tokens_per_s"] == pytest.approx(40 / 0.120)
    speculation = document["speculation"]
    assert set(speculation) == {
        "method", "rounds", "proposed", "accepted", "emitted", "acceptance_rate", "acceptance_length",
        "accepted_per_position", "proposed_per_position", "depth_histogram", "decision_reason",
        "drafters", "draft_s", "verify_s", "coordination_s",
    }  # fmt: skip
    assert speculation["method"] == "ngram"
    assert (speculation["rounds"], speculation["proposed"], speculation["accepted"]) == (10, 40, 30)
    assert speculation["acceptance_rate"] == pytest.approx(0.75)
    assert speculation["acceptance_length"] == pytest.approx(4.0)
    assert speculation["depth_histogram"] == {"4": 10}


def test_drafters_that_a_request_made_the_engine_load_are_told(invoke, engine: FakeEngine) -> None:
    arguments = ("generate", "m", "--prompt", "x", "--speculative-config", '{"method": "self"}')
    assert "drafter: 3 MiB of weights, int4" in invoke(*arguments).stderr
    engine.requests.clear()
    [drafter] = invoke(*arguments, "--json").document["speculation"]["drafters"]
    assert drafter["weights_bytes"] == 3 << 20


def test_plain_decoding_has_no_acceptance_rate(invoke, engine: FakeEngine) -> None:
    speculation = invoke("generate", "m", "--prompt", "Hello", "--json").document["speculation"]
    assert speculation["method"] == "none"
    assert speculation["acceptance_rate"] is None


def test_prompt_from_a_file_from_standard_input_and_raw(invoke, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("\ufeffGrüße\n".encode())
    assert invoke("generate", "m", "--prompt-file", str(tmp_path / "prompt.txt"), "--raw").status == 0
    assert invoke("generate", "m", "-", stdin="Käse".encode()).status == 0
    prompts = [engine.tokenizer.decode(request.prompt_token_ids) for request in engine.requests]
    assert prompts == ["^Grüße\n", "<user>Käse\n<assistant>"]


def test_sampling_flags_reach_the_request(invoke, engine: FakeEngine) -> None:
    flags = "--max-tokens 7 --temperature 0.5 --top-p 0.9 --top-k 40 --min-p 0.05 --seed 11 --stop END --stop STOP"
    assert invoke("generate", "m", "--prompt", "x", *flags.split()).stdout == ANSWER[:7] + "\n"
    params = engine.requests[0].params
    assert (params.max_tokens, params.temperature, params.top_p) == (7, 0.5, 0.9)
    assert (params.top_k, params.min_p, params.seed, params.stop) == (40, 0.05, 11, ("END", "STOP"))


def test_configuration_as_json_as_a_file_and_by_the_prediction(
    invoke, engine: FakeEngine, tmp_path: Path
) -> None:
    config, expected = tmp_path / "spec.json", tmp_path / "expected.txt"
    config.write_text(json.dumps({"method": "cascade", "proposers": [{"method": "ngram"}]}))
    expected.write_text("an answer")
    base = ("generate", "m", "--prompt", "x")
    assert (
        invoke(*base, "--speculative-config", ' {"method": "ngram", "num_speculative_tokens": 3}').status == 0
    )
    assert invoke(*base, "--speculative-config", str(config)).status == 0
    assert invoke(*base, "--prediction-file", str(expected)).status == 0
    assert (
        invoke(*base, "--prediction-file", str(expected), "--speculative-config", '{"method": "auto"}').status
        == 0
    )
    kinds = [request.intent for request in engine.requests]
    assert kinds[0] == NGram(num_speculative_tokens=3)
    assert [type(kind) for kind in kinds[1:]] == [Cascade, Predicted, Auto]
    assert engine.tokenizer.decode(engine.requests[2].prediction) == "an answer"


def test_drafts_are_marked_without_colours_where_there_is_no_terminal(invoke, engine: FakeEngine) -> None:
    result = invoke(
        "generate", "m", "--prompt", "x", "--show-drafts", "--speculative-config", '{"method": "ngram"}'
    )
    assert result.stdout.startswith("a{+n a+}[-X-]{~n~}{+swe+}[-X-]{~r~}")
    assert "{+accepted+} {~corrected~} [-rejected-]" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_drafts_beside_a_document_go_to_standard_error(invoke, engine: FakeEngine) -> None:
    result = invoke(
        "generate",
        "m",
        "--prompt",
        "x",
        "--show-drafts",
        "--json",
        "--speculative-config",
        '{"method": "ngram"}',
    )
    assert result.document["text"] == ANSWER
    assert "{+n a+}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--prompt", "x", "-"], "DP001", "--prompt and -"),
        ([], "DP001", "no prompt"),
        (["Hello"], "DP001", "Quote the prompt"),
        (["--prompt", ""], "DP301", "empty prompt"),
        (["--prompt", " \n"], "DP301", "empty prompt"),
        (["-"], "DP301", "empty prompt"),
        (["--prompt-file", "missing.txt"], "DP002", "missing.txt: No such file"),
        (["--prompt-file", "."], "DP002", "Is a directory"),
        (["--prompt", "x", "--speculative-config", "ngram"], "DP002", "a JSON object or a file"),
        (["--prompt", "x", "--speculative-config", ""], "DP002", "an empty text"),
        (["--prompt", "x", "--speculative-config", "{"], "DP103", "no JSON"),
        (
            ["--prompt", "x", "--speculative-config", '{"method": "draft_model", "model": "missing"}'],
            "DP401",
            "speculation.model",
        ),
        (["--prompt", "x", "--speculative-config", '{"method": "telepathy"}'], "DP101", "telepathy"),
        (["--prompt", "x", "--speculative-config", '{"method": "eagle3"}'], "DP106", "EAGLE-3"),
        (["--prompt", "x", "--speculative-config", '{"method": "ngram", "depth": 3}'], "DP102", "depth"),
        (["--prompt", "x", "--temperature", "-1"], "DP201", "temperature"),
        (["--prompt", "x", "--max-tokens", "0"], "DP201", "max_tokens"),
        (["--prompt", "x", "--top-p", "nan"], "DP201", "top_p"),
        (["--prompt", "x", "--prediction-file", "missing.txt"], "DP002", "missing.txt"),
    ],
)
def test_bad_input_gets_a_code_before_any_model_is_loaded(
    invoke, monkeypatch, arguments, code, words
) -> None:
    def load(*args: object, **kwargs: object) -> None:
        raise AssertionError("a model was loaded for a command line that is wrong")

    monkeypatch.setattr("draftproof.cli.generate.load_engine", load)
    result = invoke("generate", "m", *arguments)
    assert result.status == 2
    assert result.code == code
    assert words in result.stderr
    assert result.stdout == ""
    assert invoke("generate", "m", *arguments, "--json").document["error"]["code"] == code


@pytest.mark.parametrize(("data", "words"), [(b"\xff\xfe\x00x", "offset 0"), (b"a\0b", "zero byte")])
def test_files_that_are_no_text_are_refused(
    invoke, engine: FakeEngine, tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "prompt.bin"
    path.write_bytes(data)
    for result in (
        invoke("generate", "m", "--prompt-file", str(path)),
        invoke("generate", "m", "-", stdin=data),
        invoke("generate", "m", "--prompt", "x", "--prediction-file", str(path)),
    ):
        assert (result.status, result.code) == (2, "DP002")
        assert words in result.stderr


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--device", "cuda"], "DP703"),
    ],
)
def test_flags_of_later_versions_are_answered_with_a_code(invoke, flags: list[str], code: str) -> None:
    result = invoke("generate", "m", "--prompt", "x", *flags)
    assert (result.status, result.code) == (2, code)


def test_model_flags_reach_the_engine(invoke, monkeypatch, tmp_path: Path) -> None:
    """Each of them, with a value that is not its default."""
    given: dict[str, object] = {}

    class Loader(FakeEngine):
        @classmethod
        def load(cls, path: Path, config: EngineConfig, **flags: object) -> FakeEngine:
            given.update(flags, memory=config.memory, max_model_len=config.max_model_len)
            return FakeEngine()

    monkeypatch.setattr("draftproof.cli.options._import_engine", lambda: (Loader, EngineConfig))
    wanted = {
        "dtype": "float32", "weights": "int8", "kernels": "python", "threads": 3, "memory": 1 << 30,
        "max_model_len": 64,
    }  # fmt: skip
    flags = [part for name, value in wanted.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert invoke("generate", str(tmp_path), "--prompt", "x", *flags).status == 0
    assert given == wanted | {"device": "cpu"}
    assert set(given) == set(ModelOptions.__slots__)


def test_without_pytorch_the_extra_is_named(invoke, monkeypatch) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("draftproof.cli.options._import_engine", missing)
    result = invoke("generate", "m", "--prompt", "x")
    assert (result.status, result.code) == (2, "DP602")
    assert "pip install 'draftproof[engine]'" in result.stderr


def test_a_missing_module_of_our_own_is_our_fault(invoke, monkeypatch) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'draftproof.engine'", name="draftproof.engine")

    monkeypatch.setattr("draftproof.cli.options._import_engine", missing)
    assert invoke("generate", "m", "--prompt", "x").status == 1


def test_a_request_that_ends_with_an_error_keeps_its_text_and_has_status_2(
    invoke, engine: FakeEngine
) -> None:
    engine.error = {
        "code": "DP501", "field": "model", "found": "NaN", "expected": "finite logits", "remedy": "Check the weights."
    }  # fmt: skip
    plain = invoke("generate", "m", "--prompt", "x")
    assert (plain.status, plain.code) == (2, "DP501")
    assert plain.stdout == ANSWER + "\n"
    document = invoke("generate", "m", "--prompt", "x", "--json").document
    assert document["finish_reason"] == "error"
    assert document["error"]["code"] == "DP501"


def test_a_fault_of_ours_that_ended_the_request_has_status_1(invoke, engine: FakeEngine) -> None:
    engine.error = {
        "code": "DP901", "field": "request", "found": "KeyError", "expected": "tokens", "remedy": "Report it."
    }  # fmt: skip
    for arguments in (["generate", "m", "--prompt", "x"], ["generate", "m", "--prompt", "x", "--json"]):
        assert invoke(*arguments).status == 1
