"""The real Transformers judges what is rendered for it: the text runs on tiny models, and drafts as long as it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, ModelRef, Speculation
from support.checkpoints import write_checkpoint
from support.specs import Spec

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A target, and a drafter of the same vocabulary."""
    folder = tmp_path_factory.mktemp("judge")
    for name, seed in (("target", 1), ("draft", 2)):
        (folder / name).mkdir()
        write_checkpoint(folder / name, Spec(seed=seed))
    return str(folder / "target"), str(folder / "draft")


def run(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Runs a rendered text; the generated tokens, and how many were drafted in each round."""
    drafted: list[int] = []
    from transformers.generation import candidate_generator as generators

    for kind in (generators.AssistedCandidateGenerator, generators.PromptLookupCandidateGenerator):
        original = kind.get_candidates

        def counted(
            self: Any, input_ids: torch.Tensor, *rest: Any, _original: Any = original, **more: Any
        ) -> Any:
            found = _original(self, input_ids, *rest, **more)
            drafted.append(found[0].shape[1] - input_ids.shape[1])
            return found

        monkeypatch.setattr(kind, "get_candidates", counted)
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]]),
        "attention_mask": torch.ones(1, 10),
    }
    scope: dict[str, Any] = {"inputs": inputs}
    exec(text, scope)
    return scope["outputs"][0].tolist(), drafted


def rendered(speculation: Speculation, target: str, **arguments: object) -> str:
    extras = {f"transformers.{name}": value for name, value in arguments.items()}
    deployment = Deployment(
        engine="transformers",
        target=ModelRef(name=target),
        speculation=speculation,
        extras=extras,
        dtype="float32",
    )
    return dialect("transformers").render(deployment).artifacts[0].text


def plain(target: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return run(rendered(Speculation(), target, max_new_tokens=24, do_sample=False), monkeypatch)[0]


@pytest.mark.parametrize("depth", [1, 3, 7])
def test_an_assistant_drafts_as_many_tokens_as_the_rendered_text_says(
    depth: int, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = models
    speculation = Speculation(
        method="draft_model", drafter=ModelRef(name=draft), depth=depth, adaptive=False, min_confidence=0.0
    )
    text = rendered(speculation, target, max_new_tokens=24, do_sample=False)
    tokens, drafted = run(text, monkeypatch)
    assert tokens == plain(target, monkeypatch)
    assert max(drafted) == depth


def test_as_an_argument_the_depth_does_nothing(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the remark says: generate takes the argument, and the drafter goes by its own generation config."""
    target, draft = models
    text = (
        "from transformers import AutoModelForCausalLM\n"
        f"model = AutoModelForCausalLM.from_pretrained({target!r})\n"
        f"assistant_model = AutoModelForCausalLM.from_pretrained({draft!r})\n"
        "assistant_model.generation_config.assistant_confidence_threshold = 0.0\n"
        "outputs = model.generate(**inputs, assistant_model=assistant_model, num_assistant_tokens=2, "
        "do_sample=False, max_new_tokens=40)\n"
    )
    parsed = dialect("transformers").parse(text)
    assert parsed.deployment.speculation.depth == 2
    assert [(remark.effect, remark.setting) for remark in parsed.remarks] == [
        ("ignored", "num_assistant_tokens")
    ]
    assert max(run(text, monkeypatch)[1]) == 20  # the drafter's own default


def test_prompt_look_up_drafts_as_many_tokens_as_the_rendered_text_says(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = models
    speculation = Speculation(method="ngram", depth=3, lookup=LookUp(max_ngram=2))
    text = rendered(speculation, target, max_new_tokens=24, do_sample=False)
    tokens, drafted = run(text, monkeypatch)
    assert tokens == plain(target, monkeypatch)
    assert max(drafted) == 3


def test_every_rendered_setting_of_a_drafter_is_one_that_transformers_has(models: tuple[str, str]) -> None:
    """Arguments of `generate` that its configuration does not know would be refused as unused by the model."""
    from draftproof.configs.engines.transformers import words

    config = transformers.GenerationConfig()
    for name in (
        *words.OF_ASSISTANT,
        *words.OWN,
        "prompt_lookup_num_tokens",
        "max_matching_ngram_size",
        "use_mtp",
    ):
        assert hasattr(config, name), name
    acting = transformers.GenerationConfig()._get_default_generation_params()
    found = dialect("transformers").defaults(
        Deployment(engine="transformers", speculation=Speculation(method="draft_model"))
    )
    values = {item.setting: item.value for item in found}
    assert values["speculation.depth"] == acting["num_assistant_tokens"]
    assert values["speculation.min_confidence"] == acting["assistant_confidence_threshold"]
