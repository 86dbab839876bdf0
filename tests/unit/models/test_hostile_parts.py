"""Tokenizers, templates and tensors that are well-formed enough to be read and harmful when used: always a code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.core.errors import DraftproofError
from draftproof.models.loading import load_model
from draftproof.models.template import ChatTemplate
from support.checkpoints import write_checkpoint
from support.specs import TINY

TEMPLATES = [
    "{{ lipsum(n=100000000) }}",
    "{% set ns=namespace(x=7) %}{% for i in range(40) %}{% set ns.x = ns.x*ns.x %}{% endfor %}",
    "{% for i in range(99999) %}{% set _ = range(99999)|sum %}{% endfor %}",
    "{{ ('a '*3000000)|wordwrap(1)|length }}",
    "{{ '%200000000d' % 1 }}",
    "{{ 'a'.ljust(200000000)|length }}",
    "{{ 'a'|center(200000000) }}",
    "{{ 7 ** 10000000 }}",
]


@pytest.mark.parametrize("source", TEMPLATES)
def test_templates_that_ask_for_too_much(source: str) -> None:
    with pytest.raises(DraftproofError, match="DP304"):
        ChatTemplate({"default": source}, {}).render([{"role": "user", "content": "hi"}])


def test_indentation_is_bounded() -> None:
    source = "{{ messages|tojson(indent=100000000) }}"
    assert len(ChatTemplate({"default": source}, {}).render([{"role": "user", "content": "hi"}])) < 2000


TOKENIZERS: list[dict[str, Any]] = [
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "QQ", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
    {"pre_tokenizer": None, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}},
    {"pre_tokenizer": None, "model": {"type": "Unigram", "vocab": [], "unk_id": None}},
]


@pytest.mark.parametrize("change", TOKENIZERS, ids=["panic on load", "panic on use", "no unknown", "empty"])
def test_tokenizers_that_cannot_be_used(change: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", TINY)
    file = checkpoint / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DraftproofError) as error:
        load_model(checkpoint, kernels="python").tokenizer.encode("hi zz", add_special=True)
    assert error.value.code in ("DP402", "DP405")


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    loaded = load_model(write_checkpoint(tmp_path / "model", TINY), kernels="python")
    with pytest.raises(DraftproofError, match="DP307"):
        loaded.tokenizer.encode("a\udcffb")


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", TINY)
    file = checkpoint / "model.safetensors"
    save_file(load_file(file) | {"model.norm.weight": torch.zeros(0)}, file)
    with pytest.raises(DraftproofError, match="DP404"):
        load_model(checkpoint, kernels="python")


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta"])
def test_numbers_that_no_float_holds(key: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", TINY)
    file = checkpoint / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: 10**400}))
    with pytest.raises(DraftproofError, match="DP406"):
        load_model(checkpoint, kernels="python")
