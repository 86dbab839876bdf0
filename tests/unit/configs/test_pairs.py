"""The catalogue of pairs: its data hold what its fields promise, and it knows names and nothing but names."""

import re
from datetime import date
from importlib import resources
from typing import get_args

import pytest

from draftproof.cli.pairs import ENGINES, METHODS
from draftproof.configs.pairs import Catalogue, Pair, Shape, load_catalogue
from draftproof.configs.speculation import Method

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def _all_pairs() -> list[object]:
    return [pytest.param(pair, id=f"{pair.target}:{pair.drafter}") for pair in load_catalogue().pairs]


def test_it_is_large_enough_to_be_worth_asking(catalogue: Catalogue) -> None:
    assert len(catalogue.pairs) >= 60
    methods = {pair.method for pair in catalogue.pairs}
    assert methods == set(METHODS) <= set(get_args(Method))
    assert {engine for pair in catalogue.pairs for engine in pair.engines} == set(ENGINES)


@pytest.mark.parametrize("pair", _all_pairs())
def test_every_pair_names_repositories_engines_and_a_dated_source(pair: Pair, catalogue: Catalogue) -> None:
    assert HUB_ID.fullmatch(pair.target)
    assert pair.target in catalogue.models
    assert pair.drafter is None or HUB_ID.fullmatch(pair.drafter)
    assert pair.drafter is not None or pair.method == "mtp"
    assert pair.sources
    assert pair.depth is None or 1 <= pair.depth <= 16
    for source in [*pair.sources, *(item.source for item in (*pair.acceptance, *pair.trouble))]:
        assert date.fromisoformat(source.read) <= date.fromisoformat(catalogue.date)
        assert source.url is not None
        assert source.url.startswith("https://")
    for report in pair.acceptance:
        assert 1.0 <= report.length <= 1 + (report.depth or 15)
        assert report.by
        assert report.condition
    for trouble in pair.trouble:
        assert trouble.text.endswith(".")
        assert set(trouble.refused_by) <= set(ENGINES)


def test_draft_models_are_smaller_than_what_their_target_uses_per_token(catalogue: Catalogue) -> None:
    compared = 0
    for pair in catalogue.pairs:
        if pair.method not in ("draft_model", "pard") or pair.drafter is None:
            continue
        target, drafter = catalogue.models[pair.target], catalogue.models[pair.drafter]
        if target.used_billions and drafter.used_billions:
            compared += 1
            assert drafter.used_billions < target.used_billions / 2, pair.target
    assert compared >= 8


def test_no_pair_twice_and_sorted_by_target(catalogue: Catalogue) -> None:
    keys = [(pair.target, pair.method, pair.drafter) for pair in catalogue.pairs]
    assert len(keys) == len(set(keys))
    targets = [pair.target.casefold() for pair in catalogue.pairs]
    assert targets == sorted(targets)


def test_every_source_and_model_is_used() -> None:
    text = resources.files("draftproof.configs").joinpath("data", "pairs.toml").read_text(encoding="utf-8")
    for key in re.findall(r"^\[sources\.(.+)\]$", text, re.MULTILINE):
        assert text.count(f'"{key}"') >= 1, key
    for name in re.findall(r'^\[models\."(.+)"\]$', text, re.MULTILINE):
        assert re.search(rf'^(target|drafter) = "{re.escape(name)}"$', text, re.MULTILINE), name


def test_an_alias_and_other_letter_case_are_the_same_repository(catalogue: Catalogue) -> None:
    pairs = catalogue.of_target("meta-llama/Llama-3.1-8B-Instruct")
    assert pairs
    assert catalogue.of_target("meta-llama/meta-llama-3.1-8b-INSTRUCT") == pairs


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-8B-Base", "someone/Qwen3-8B", "Qwen/Qwen3", "Qwen3-8B", "", "deepseek-ai/DeepSeek-R1-0528"],
)
def test_a_name_of_the_same_family_is_not_the_target(name: str, catalogue: Catalogue) -> None:
    assert catalogue.of_target(name) == ()
    assert catalogue.find(name, "RedHatAI/Qwen3-8B-speculator.eagle3") == ()


def test_find_needs_both_names(catalogue: Catalogue) -> None:
    [pair] = catalogue.find("Qwen/Qwen3-8B", "redhatai/qwen3-8b-speculator.eagle3")
    assert pair.method == "eagle3"
    assert catalogue.find("Qwen/Qwen3-14B", "RedHatAI/Qwen3-8B-speculator.eagle3") == ()
    assert catalogue.find("Qwen/Qwen3-8B", "nobody/knows") == ()
    [built_in] = catalogue.find("XiaomiMiMo/MiMo-7B-Base", None)
    assert built_in.method == "mtp"
    assert catalogue.find("Qwen/Qwen3-8B", None) == ()


def test_shapes_give_candidates_and_architectures_separate_them(catalogue: Catalogue) -> None:
    shape = Shape("Qwen3ForCausalLM", 4096, 36, 151936)
    assert "Qwen/Qwen3-8B" in catalogue.of_shape(shape)
    assert "Qwen/Qwen3-8B" in catalogue.of_shape(Shape(None, 4096, 36, 151936))
    assert catalogue.of_shape(Shape("LlamaForCausalLM", 4096, 36, 151936)) == ()
    assert catalogue.of_shape(Shape("Qwen3ForCausalLM", 4096, 35, 151936)) == ()
