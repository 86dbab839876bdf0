"""The known-good pairs themselves: enough of them, in the catalogue, readable, and with shapes that fit together."""

import functools
import math
from collections.abc import Callable

import pytest

from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.configs.identity import identify, match
from draftproof.configs.pairs import load_catalogue
from support.known_pairs import KnownPair, config_of, known_pairs, write_model

PAIRS = known_pairs()


View = Callable[[str], CheckpointView]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Views by name, each written and read once: the largest have 90,000 tensors."""
    folder = tmp_path_factory.mktemp("known")
    return functools.cache(lambda name: open_view(str(write_model(name, folder))))


def _shapes(view: CheckpointView) -> dict[str, tuple[int, ...]]:
    assert view.tensors is not None
    return {name: tensor.shape for name, tensor in view.tensors.items()}


def test_there_are_at_least_forty_of_all_kinds() -> None:
    assert len(PAIRS) == len(set(PAIRS)) >= 40
    assert {pair.method for pair in PAIRS} == {"mtp", "eagle", "eagle3", "dflash", "draft_model"}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_each_is_in_the_catalogue_and_its_target_is_recognised(pair: KnownPair, view: View) -> None:
    catalogue = load_catalogue()
    assert pair.method in {known.method for known in catalogue.find(pair.target, pair.drafter)}
    shape = catalogue.models[pair.target].shape
    if shape is not None:
        found = identify("somewhere", view(pair.target))
        assert found.shape == shape
        assert pair.target in match(found, catalogue).same_shape


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.method in ("eagle", "eagle3")], ids=str)
def test_heads_have_the_generation_of_their_method(pair: KnownPair, view: View) -> None:
    assert pair.drafter is not None
    hidden = view(pair.target).language_config["hidden_size"]
    head = view(pair.drafter)
    shapes = _shapes(head)
    assert shapes["fc.weight"] == (hidden, (2 if pair.method == "eagle" else 3) * hidden)
    if pair.method == "eagle3":
        offsets, used = head.integers("d2t"), head.integers("t2d")
        assert offsets is not None
        assert used is not None
        kept = [token for token, is_used in enumerate(used) if is_used]
        assert [token + offset for token, offset in enumerate(offsets)] == kept


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.method == "mtp"], ids=str)
def test_targets_with_mtp_hold_a_layer_that_joins_two_hidden_states(pair: KnownPair, view: View) -> None:
    target = view(pair.target)
    if target.kind == "config":
        pytest.skip("its tensors are too many to be written out")
    hidden = target.language_config["hidden_size"]
    assert (hidden, 2 * hidden) in _shapes(target).values()


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-8B", 8.19), ("meta-llama/Llama-3.1-8B-Instruct", 8.03), ("meta-llama/Llama-3.2-1B-Instruct", 1.24),
        ("meta-llama/Llama-3.3-70B-Instruct", 70.55), ("Qwen/Qwen3-30B-A3B", 30.53),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.70), ("Qwen/Qwen2.5-Coder-32B-Instruct", 32.76),
        ("deepseek-ai/DeepSeek-V3", 684.5), ("openbmb/MiniCPM4-8B", 8.2), ("Qwen/Qwen3-Next-80B-A3B-Instruct", 81.3),
    ],
)  # fmt: skip
def test_written_out_sizes_are_those_that_the_models_are_known_for(
    name: str, billions: float, view: View
) -> None:
    """Published parameter counts; scales of block quantisation are not parameters."""
    shapes = _shapes(view(name))
    count = sum(math.prod(shape) for tensor, shape in shapes.items() if not tensor.endswith("_scale_inv"))
    assert count / 1e9 == pytest.approx(billions, rel=0.02)


def test_pairs_of_two_models_share_a_tokenizer_of_the_real_size(view: View) -> None:
    for pair in (pair for pair in PAIRS if pair.method == "draft_model"):
        assert pair.drafter is not None
        ours = view(pair.target).vocabulary()
        assert ours == view(pair.drafter).vocabulary()
        assert ours is not None
        assert len(ours.tokens) <= min(
            config_of(pair.target)["vocab_size"], config_of(pair.drafter)["vocab_size"]
        )
