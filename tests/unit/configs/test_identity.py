"""What a checkpoint is taken for: the name that the user gave, what its files state, and never its shape alone."""

import json
from pathlib import Path

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.identity import Claim, identify, is_hub_id, match
from draftproof.configs.pairs import load_catalogue
from support.checkpoints import write_gguf

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36, "vocab_size": 151936,
}  # fmt: skip


def _directory(path: Path, **config: object) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_the_users_name_comes_before_what_files_state(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "m", **QWEN3_8B, _name_or_path="Qwen/Qwen3-8B")
    identity = identify("Qwen/Qwen3-14B", open_view(str(directory)))
    assert identity.claims == (
        Claim("Qwen/Qwen3-14B", "as you named it"),
        Claim("Qwen/Qwen3-8B", "config.json, _name_or_path"),
    )
    found = match(identity, load_catalogue())
    assert found.model == "Qwen/Qwen3-14B"


def test_what_config_states_is_found_and_named_as_a_claim(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "m", **QWEN3_8B, _name_or_path="Qwen/Qwen3-8B")
    found = match(identify(str(directory), open_view(str(directory))), load_catalogue())
    assert found.claim == Claim("Qwen/Qwen3-8B", "config.json, _name_or_path")
    assert found.pairs
    assert found.same_shape == ()


@pytest.mark.parametrize(
    ("place", "is_known"),
    [
        ("hub/models--Qwen--Qwen3-8B/snapshots/0123abc", True),
        ("hub/models--Qwen--Qwen3-8B/snapshots/0123abc/", True),
        ("hub/models--Qwen--Qwen3-8B", False),
        ("hub/datasets--Qwen--Qwen3-8B/snapshots/0123abc", False),
        ("hub/models--Qwen--Qwen3-8B/snapshots/0123abc/adapted", False),
    ],
)
def test_the_hubs_cache_keeps_the_name(tmp_path: Path, place: str, is_known: bool) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    directory = _directory(tmp_path / place, **QWEN3_8B)
    reference = str(directory) + ("/" if place.endswith("/") else "")
    found = match(identify(reference, open_view(reference)), load_catalogue())
    assert (found.model == "Qwen/Qwen3-8B") == is_known
    assert not is_known or (found.claim is not None and not found.claim.is_of_files)


def test_a_shape_alone_is_a_hint_and_no_match(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "m", **QWEN3_8B, _name_or_path="/data/runs/17")
    found = match(identify(str(directory), open_view(str(directory))), load_catalogue())
    assert (found.claim, found.model, found.pairs) == (None, None, ())
    assert "Qwen/Qwen3-8B" in found.same_shape


@pytest.mark.parametrize(
    "broken", [{}, {"hidden_size": "4096"}, {"architectures": "Qwen3"}, {"vocab_size": True}]
)
def test_sizes_of_other_types_give_no_shape_of_the_catalogue(
    tmp_path: Path, broken: dict[str, object]
) -> None:
    config = {**QWEN3_8B, **broken} if broken else {}
    directory = _directory(tmp_path / "m", **config, _name_or_path=["Qwen/Qwen3-8B"])
    identity = identify(str(directory), open_view(str(directory)))
    assert identity.claims == ()
    if "architectures" not in broken:
        assert match(identity, load_catalogue()).same_shape == ()


def test_gguf_has_a_shape_without_architecture(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    identity = identify(str(file), open_view(str(file)))
    assert identity.claims == ()
    assert identity.shape is not None
    assert identity.shape.architecture is None


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("Qwen/Qwen3-8B", True),
        ("./m", False),
        ("a/b/c", False),
        ("/m", False),
        ("m", False),
        ("d/m.gguf", False),
    ],
)
def test_hub_ids_are_told_from_paths(reference: str, expected: bool) -> None:
    assert is_hub_id(reference) is expected
