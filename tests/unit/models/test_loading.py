"""Loading: both formats give the same model, and every kind of damage is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.core.errors import DraftproofError
from draftproof.models import native
from draftproof.models.loading import load_model, load_weights
from support.checkpoints import write_checkpoint, write_gguf
from support.passes import logits_in_chunks
from support.specs import TINY, build_weights


def refusal(path: Path, **options: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        load_model(path, kernels="python", **options)
    return caught.value


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model")


def rewrite(directory: Path, change: dict[str, Tensor | None]) -> Path:
    """Writes the weights again with some tensors changed or, where None, left out."""
    weights = load_file(directory / "model.safetensors") | change
    save_file({name: w for name, w in weights.items() if w is not None}, directory / "model.safetensors")
    return directory


def test_directory_and_gguf_file_give_the_same_text_and_bits(tmp_path: Path) -> None:
    from_directory = load_model(write_checkpoint(tmp_path / "hf"), dtype="float32", kernels="python")
    from_file = load_model(write_gguf(tmp_path / "model.gguf"), dtype="float32", kernels="python")
    text = "def add(first, second): # Straße 🙂"
    token_ids = from_directory.tokenizer.encode(text)
    assert from_file.tokenizer.encode(text) == token_ids
    assert torch.equal(*(logits_in_chunks(m.model, token_ids, [99]) for m in (from_directory, from_file)))
    assert from_directory.source == tmp_path / "hf"


def test_a_catalogue_of_types_and_shards_loads(tmp_path: Path) -> None:
    for number, dtype in enumerate((torch.float16, torch.bfloat16)):
        path = write_checkpoint(tmp_path / str(number), dtype=dtype, num_shards=2)
        _, weights = load_weights(open_checkpoint(path))
        for name, weight in build_weights(TINY).items():
            assert torch.equal(weights[name], weight.to(dtype))


def test_choices_are_reported(directory: Path) -> None:
    loaded = load_model(directory, dtype="bfloat16", kernels="python")
    assert (loaded.model.dtype, loaded.model.kernels) == (torch.bfloat16, "python")
    assert loaded.kernels_reason == "asked for"
    assert loaded.config.eos_token_ids == (2,)


def test_auto_dtype_follows_the_processor(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftproof.models.loading.has_native_bfloat16", lambda: False)
    assert load_model(directory, kernels="python").model.dtype == torch.float32
    monkeypatch.setattr("draftproof.models.loading.has_native_bfloat16", lambda: True)
    assert load_model(directory, kernels="python").model.dtype == torch.bfloat16


@pytest.mark.skipif(not native.status().available, reason=native.status().reason)
def test_families_that_the_kernels_do_not_serve_fall_back_and_say_why(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, family="phi3", rotary_dim=12)
    loaded = load_model(path, dtype="float32")
    assert loaded.model.kernels == "python"
    assert "12 rotated elements" in loaded.kernels_reason
    with pytest.raises(DraftproofError) as caught:
        load_model(path, kernels="native")
    assert caught.value.code == "DP702"


def no_native(*args: object) -> None:
    raise DraftproofError("DP702", "kernels", "no compiler", "one", "Install one.")


def test_auto_kernels_fall_back_and_say_so(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftproof.models.native.NativeModel", no_native)
    monkeypatch.setattr("draftproof.models.native.quantize", no_native)
    loaded = load_model(directory, dtype="float32")
    assert loaded.model.kernels == "python"
    assert "no compiler" in loaded.kernels_reason
    assert load_model(directory, dtype="float32", weights="int8").weight_types["Q8_0"] > 0
    with pytest.raises(DraftproofError) as caught:
        load_model(directory, dtype="float32", kernels="native")
    assert caught.value.code == "DP702"


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [("dtype", "float16", "DP001"), ("kernels", "fast", "DP001"), ("device", "cuda", "DP703")],
)
def test_wrong_choices(directory: Path, option: str, value: str, code: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        load_model(directory, **{option: value})
    assert (caught.value.code, caught.value.field) == (code, option)


NORM = "model.layers.1.input_layernorm.weight"


def test_a_missing_tensor_is_named(directory: Path) -> None:
    error = refusal(rewrite(directory, {NORM: None}))
    assert (error.code, error.field) == ("DP404", NORM)


def test_an_unexpected_tensor_is_named(directory: Path) -> None:
    error = refusal(rewrite(directory, {"model.layers.1.self_attn.q_proj.bias": torch.zeros(64)}))
    assert (error.code, error.field) == ("DP404", "model.layers.1.self_attn.q_proj.bias")


def test_a_wrong_shape_is_named(directory: Path) -> None:
    error = refusal(rewrite(directory, {NORM: torch.zeros(63)}))
    assert (error.code, error.field) == ("DP404", NORM)
    assert "63" in error.found
    assert "64" in error.expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(directory: Path, value: float) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    weight = build_weights(TINY)[name]
    weight[3, 5] = value
    error = refusal(rewrite(directory, {name: weight}), dtype="float32")
    assert (error.code, error.field) == ("DP404", name)


def test_large_finite_weights_are_no_fault(directory: Path) -> None:
    weight = torch.full((64,), 3e38)
    _, weights = load_weights(open_checkpoint(rewrite(directory, {NORM: weight})))
    assert torch.equal(weights[NORM], weight)


def test_gguf_scales_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, "Q4_0")
    file = open_checkpoint(path)
    assert not isinstance(file, Path)
    content = bytearray(path.read_bytes())
    offset = file.tensors["blk.1.ffn_up.weight"].offset
    content[offset : offset + 2] = b"\x00\x7c"  # the first block's scale becomes infinite
    path.write_bytes(content)
    error = refusal(path, dtype="float32")
    assert (error.code, error.field) == ("DP404", "model.layers.1.mlp.up_proj.weight")


def test_unknown_gguf_tensors_are_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY)
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    assert refusal(path).code == "DP404"


def test_a_tied_checkpoint_may_repeat_its_head(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, tie=True)
    embedding = build_weights(replace(TINY, tie=True))["model.embed_tokens.weight"]
    loaded = load_model(rewrite(directory, {"lm_head.weight": embedding.clone()}), kernels="python")
    assert loaded.config.tie_embeddings


def test_buffers_of_old_checkpoints_are_ignored(directory: Path) -> None:
    rewrite(directory, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    assert load_model(directory, kernels="python")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn])
def test_other_element_types_are_refused(directory: Path, dtype: torch.dtype) -> None:
    error = refusal(rewrite(directory, {NORM: torch.ones(64).to(dtype)}))
    assert (error.code, error.field) == ("DP406", NORM)


def test_files_that_are_missing(directory: Path) -> None:
    (directory / "tokenizer.json").rename(directory / "tokenizer.model")
    assert refusal(directory).code == "DP405"
    (directory / "config.json").unlink()
    assert refusal(directory).code == "DP401"


def test_a_truncated_file_is_broken(directory: Path, tmp_path: Path) -> None:
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert refusal(directory).code == "DP402"
    file = write_gguf(tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:-10])
    assert refusal(file).code == "DP402"


def test_a_file_that_shrinks_after_its_header_was_read(directory: Path) -> None:
    _, weights = load_weights(open_checkpoint(directory))
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(DraftproofError) as caught:
        [weights[name] for name in weights]
    assert caught.value.code == "DP402"


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "small", vocab=300)
    other = write_checkpoint(tmp_path / "large", vocab=384)
    (directory / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())
    assert refusal(directory).code == "DP405"


def test_a_broken_generation_config_is_named(directory: Path) -> None:
    (directory / "generation_config.json").write_text(json.dumps([1]))
    error = refusal(directory)
    assert error.code == "DP402"
    assert "generation_config.json" in error.field


@pytest.mark.parametrize("form", ["native", "int8", "int4", "float"])
@pytest.mark.parametrize("types", [None, "F32", "Q8_0", "Q4_0"])
def test_weights_beyond_the_limit_are_not_begun_with(tmp_path: Path, form: str, types: str | None) -> None:
    """And whatever fits is: what is counted beforehand is never more than what is loaded."""
    model = (
        write_checkpoint(tmp_path / "m") if types is None else write_gguf(tmp_path / "m.gguf", types=types)
    )
    loaded = load_model(model, dtype="float32", weights=form)
    load_model(model, dtype="float32", weights=form, memory=loaded.weights_bytes + 4096)  # norms
    with pytest.raises(DraftproofError, match=r"DP701.*at least 1 MiB for the weights alone") as caught:
        load_model(model, dtype="float32", weights=form, memory=1000)
    gains = form == "float" or (form != "int4" and types != "Q4_0")
    assert ("--weights int4" in caught.value.remedy) == gains
