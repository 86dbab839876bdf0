"""Views of local checkpoints: what is known of a directory and of a GGUF file without loading it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from draftproof.checkpoints import gguf_view
from draftproof.checkpoints.gguf_cursor import StoredArray
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import CHAT_TEMPLATE, write_checkpoint, write_gguf


def write_config(directory: Path, config: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def refused(reference: Path | str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        open_view(str(reference))
    return caught.value


@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_directory_as_transformers_writes_it(tmp_path: Path, num_shards: int) -> None:
    view = open_view(str(write_checkpoint(tmp_path, num_shards=num_shards, layers=2, vocab=320)))
    assert (view.kind, view.revision, view.remarks) == ("safetensors", None, ())
    assert view.config["num_hidden_layers"] == view.language_config["num_hidden_layers"] == 2
    assert view.generation_config["eos_token_id"]
    assert view.chat_template == CHAT_TEMPLATE
    assert view.tensors is not None
    assert view.tensor_names == frozenset(view.tensors)
    embedding = view.tensors["model.embed_tokens.weight"]
    assert embedding.shape[0] == 320
    assert embedding.num_bytes == embedding.shape[0] * embedding.shape[1] * 4
    assert embedding.dtype == "F32"
    vocabulary = view.vocabulary()
    assert vocabulary is not None
    assert len(vocabulary.tokens) <= 320
    hashes = view.hashes()
    assert hashes["config.json"] == hashlib.sha256((tmp_path / "config.json").read_bytes()).hexdigest()
    assert sum(name.endswith(".safetensors") for name in hashes) == num_shards


def test_gguf_says_the_same_by_transformers_names(tmp_path: Path) -> None:
    directory = open_view(str(write_checkpoint(tmp_path / "hf", layers=2, vocab=320)))
    file = open_view(str(write_gguf(tmp_path / "model.gguf", layers=2, vocab=320)))
    assert file.kind == "gguf"
    assert file.config["general.architecture"] == "llama"
    shared = set(file.language_config) & set(directory.language_config) - {"pad_token_id", "head_dim"}
    assert {
        "hidden_size",
        "num_hidden_layers",
        "num_key_value_heads",
        "vocab_size",
        "rope_theta",
    } <= shared | {"rope_theta"}
    for key in shared - {"rms_norm_eps", "eos_token_id", "rope_theta"}:
        assert file.language_config[key] == directory.language_config[key], key
    assert file.chat_template == CHAT_TEMPLATE
    assert file.tensors is not None
    assert file.tensors["token_embd.weight"].shape[0] == 320
    ours, theirs = file.vocabulary(), directory.vocabulary()
    assert ours is not None
    assert theirs is not None
    assert ours.tokens[: len(theirs.tokens)] == theirs.tokens
    assert list(file.hashes()) == ["model.gguf"]


def test_equal_vocabularies_have_equal_digests_and_others_have_not(tmp_path: Path) -> None:
    views = {
        name: open_view(str(write_gguf(tmp_path / f"{name}.gguf", layers=layers, vocab=vocab)))
        for name, layers, vocab in (("target", 2, 320), ("drafter", 1, 320), ("other", 1, 352))
    }
    digests = {name: view.tokenizer_digest() for name, view in views.items()}
    assert digests["target"] == digests["drafter"]
    assert digests["target"] != digests["other"]
    assert views["target"].vocabulary() == views["drafter"].vocabulary() != views["other"].vocabulary()


def test_opening_a_gguf_file_reads_no_token_and_no_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_view, "_MAX_SHOWN_ARRAY", 2)
    paths = [write_gguf(tmp_path / f"{name}.gguf", vocab=320) for name in ("target", "drafter")]
    asked: list[int] = []
    read = StoredArray.elements

    def elements(array: StoredArray) -> list[Any]:
        asked.append(len(array))
        return read(array)

    monkeypatch.setattr(StoredArray, "elements", elements)
    ours, theirs = (open_view(str(path)) for path in paths)
    assert ours.tokenizer_digest() == theirs.tokenizer_digest()
    assert ours.language_config["vocab_size"] == 320
    assert not any(key in ours.config for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"))
    assert asked == []
    assert ours.vocabulary() is not None
    assert asked == [320, 320]  # tokens and their types


def test_a_configuration_alone(tmp_path: Path) -> None:
    view = open_view(str(write_config(tmp_path, {"model_type": "llama"})))
    assert (view.kind, view.tensors, view.tensor_names) == ("config", None, None)
    assert view.remarks == ("no weights at hand",)
    assert view.vocabulary() is None
    assert view.integers("d2t") is None
    assert list(view.hashes()) == ["config.json"]


def test_pickled_weights_are_told_and_not_read(tmp_path: Path) -> None:
    (write_config(tmp_path, {}) / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    view = open_view(str(tmp_path))
    assert (view.kind, view.tensors) == ("config", None)
    assert "pytorch_model.bin" in view.remarks[0]


def test_an_index_without_shards_still_names_the_tensors(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, num_shards=2)
    whole = open_view(str(tmp_path)).tensor_names
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    view = open_view(str(tmp_path))
    assert view.kind == "safetensors"
    assert view.tensors is None
    assert view.tensor_names == whole
    assert "model-00002-of-00002.safetensors" in view.remarks[0]


def test_shards_without_index_are_taken_together(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, num_shards=2)
    whole = open_view(str(tmp_path)).tensors
    (tmp_path / "model.safetensors.index.json").unlink()
    assert open_view(str(tmp_path)).tensors == whole
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    view = open_view(str(tmp_path))
    assert view.tensors is None
    assert view.tensor_names is None
    assert "model-00001-of-00002.safetensors" in view.remarks[0]


@pytest.mark.parametrize("name", ["eagle3.safetensors", "consolidated.safetensors", "model.safetensors"])
def test_weights_under_other_names_and_small_integers(tmp_path: Path, name: str) -> None:
    tensors = {
        "d2t": torch.tensor([0, 5, 7], dtype=torch.int64),
        "t2d": torch.tensor([True, False, True]),
        "fc.weight": torch.zeros(4, 12, dtype=torch.bfloat16),
    }
    save_file(tensors, write_config(tmp_path, {}) / name)
    view = open_view(str(tmp_path))
    assert view.integers("d2t") == [0, 5, 7]
    assert view.integers("t2d") == [1, 0, 1]
    assert view.integers("d2t", limit=2) is None
    assert view.tensors is not None
    assert view.tensors["fc.weight"].shape == (4, 12)
    with pytest.raises(DraftproofError) as caught:
        view.integers("fc.weight")
    assert caught.value.code == "DP402"


@pytest.mark.parametrize(
    "nesting",
    [("text_config",), ("llm_config",), ("thinker_config", "text_config"), ("transformer_layer_config",)],
)
def test_nested_language_models(tmp_path: Path, nesting: tuple[str, ...]) -> None:
    inner: dict[str, Any] = {"hidden_size": 64, "model_type": "inner"}
    for name in reversed(nesting):
        inner = {name: inner, "model_type": "outer", "tie_word_embeddings": True}
    view = open_view(str(write_config(tmp_path, inner)))
    assert view.config["model_type"] == "outer"
    config = view.language_config
    assert (config["hidden_size"], config["model_type"], config["tie_word_embeddings"]) == (64, "inner", True)


def test_quantisation_wherever_it_is_written(tmp_path: Path) -> None:
    given = {"quant_method": "fp8"}
    assert (
        open_view(str(write_config(tmp_path / "a", {"quantization_config": given}))).quantization_config
        == given
    )
    nested = {"text_config": {"quantization_config": given}}
    assert open_view(str(write_config(tmp_path / "b", nested))).quantization_config == given
    modelopt = write_config(tmp_path / "c", {})
    (modelopt / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    assert open_view(str(modelopt)).quantization_config == {"quant_algo": "NVFP4"}
    assert open_view(str(write_config(tmp_path / "d", {}))).quantization_config == {}


def test_chat_templates_wherever_they_are_written(tmp_path: Path) -> None:
    directory = write_config(tmp_path, {})
    assert open_view(str(directory)).chat_template is None
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert open_view(str(directory)).chat_template == "plain"
    (directory / "chat_template.json").write_text('{"chat_template": "of the document"}')
    assert open_view(str(directory)).chat_template == "of the document"
    (directory / "chat_template.jinja").write_text("of the file")
    assert open_view(str(directory)).chat_template == "of the file"


def test_a_directory_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    assert open_view(str(tmp_path)).kind == "gguf"
    shutil.copy(tmp_path / "model.gguf", tmp_path / "other.gguf")
    assert refused(tmp_path).code == "DP401"
    assert "model.gguf" in refused(tmp_path).remedy


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing").code == "DP401"
    assert refused(tmp_path).code == "DP401"
    assert refused("/dev/zero").code == "DP402"
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert refused(tmp_path / "pytorch_model.bin").code == "DP407"
