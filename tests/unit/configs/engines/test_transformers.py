"""Transformers' own ways: settings of an assistant say nothing where there is none."""

from __future__ import annotations

import pytest

from draftproof.configs.registry import DIALECTS, dialect

ALONE = [
    "model.generate(**inputs, num_assistant_tokens=5)",
    "model.generation_config.num_assistant_tokens = 5\nmodel.generate(**inputs)",
    "model.generate(**inputs, num_assistant_tokens=5, prompt_lookup_num_tokens=3)",
    "model.generate(**inputs, assistant_confidence_threshold=0.3, use_mtp=True)",
]


@pytest.mark.parametrize("text", ALONE)
def test_an_assistants_setting_without_one_is_ignored_and_told_so(text: str) -> None:
    parsed = dialect("transformers").parse(text)
    if "generation_config" not in text:
        assert [remark.effect for remark in parsed.remarks] == ["ignored"]
    notes = [
        note
        for note in dialect("transformers").render(parsed.deployment).notes
        if "assistant" in note.setting and note.setting.startswith(("extras", "speculation.extras"))
    ]
    assert [note.kind.value for note in notes] == ["dropped"] * len(notes)
    assert notes or not parsed.deployment.extras
    assert all("nothing drafts with one" in note.reason for note in notes)
    assert set(DIALECTS) >= {"transformers"}
