"""Chat templates: Transformers' text, where they are found, and what hostile ones get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.core.errors import DraftproofError
from draftproof.models.template import ChatTemplate, load_template
from support.checkpoints import write_checkpoint, write_gguf

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße <b>&'\" 🙂"}]
TOOLS = [
    {"type": "function", "function": {"name": "find", "description": "größer < 5 & 'x'", "parameters": {}}}
]


def render(source: str, **variables: Any) -> str:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"}).render(MESSAGES, **variables)


def refusal(source: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        render(source)
    assert caught.value.code == "DP304"
    return caught.value


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_text_is_that_of_transformers(tmp_path: Path, tools: Any) -> None:
    transformers = pytest.importorskip("transformers")
    directory = write_checkpoint(tmp_path / "hf")
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    expected = reference.apply_chat_template(
        MESSAGES, tools=tools, add_generation_prompt=True, tokenize=False
    )
    assert load_template(open_checkpoint(directory)).render(MESSAGES, tools=tools) == expected
    from_file = load_template(open_checkpoint(write_gguf(tmp_path / "m.gguf")))
    assert from_file.render(MESSAGES, tools=tools) == expected
    assert expected.endswith("<|im_start|>assistant\n")
    assert not from_file.render(MESSAGES, tools=tools, add_generation_prompt=False).endswith("assistant\n")


def test_places_where_templates_are_kept(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path)
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": "from json"}))
    assert load_template(directory).render([]) == "from json"
    (directory / "chat_template.jinja").write_text("from {{ bos_token }} jinja")
    assert load_template(directory).render([]) == "from <|endoftext|> jinja"
    for name in ("chat_template.json", "chat_template.jinja"):
        (directory / name).unlink()
    config = {
        "bos_token": {"content": "<s>"},
        "chat_template": [
            {"name": "default", "template": "plain {{ bos_token }}"},
            {"name": "tool_use", "template": "tools"},
        ],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_template(directory).render([]) == "plain <s>"
    assert load_template(directory).render([], tools=TOOLS) == "tools"


def test_a_model_without_template_says_so(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path)
    (directory / "tokenizer_config.json").unlink()
    with pytest.raises(DraftproofError) as caught:
        load_template(directory).render(MESSAGES)
    assert caught.value.code == "DP304"


def test_what_templates_rely_on() -> None:
    assert render("{% for m in messages %}{% if loop.last %}{{ m.role }}{% endif %}{% endfor %}") == "user"
    assert render("{% for m in messages %}{{ loop.length }}{{ loop.revindex }}{% endfor %}") == "2221"
    assert (
        render("{% for m in messages if m.role == 'user' %}{{ m.role }}{% else %}none{% endfor %}") == "user"
    )
    assert render("{% for m in messages %}{% break %}{% endfor %}ok") == "ok"
    assert render("{% generation %}x{% endgeneration %}y") == "xy"
    assert (
        render(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
        )
        == "2"
    )
    assert render("{{ value }}", value="given") == "given"
    assert render("{{ {'ü': [1, '<']} | tojson }}") == '{"ü": [1, "<"]}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10
    assert render("{% if x is defined %}{{ x }}{% endif %}{{ 3 * '-' }}{{ 2 * 3 }}") == "---6"
    assert render("{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f('x') }}{{ messages | length }}") == "[x]2"
    assert render("  {%- if true %}\n  a\n  {%- endif %}\n") == "  a"


def test_a_template_may_refuse() -> None:
    error = refusal("{{ raise_exception('roles must alternate') }}")
    assert "roles must alternate" in error.found


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        "{{ messages.nothing.at_all }}",
        "{{ 1 / 0 }}",
        "{{ messages[0]['content'] + 1 }}",
        "{% include 'other' %}",
        "{{ messages | no_such_filter }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_faults_of_a_template_are_a_refusal(source: str) -> None:
    refusal(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append({}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['sys'] }}",
        "{{ self.__init__.__globals__ }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    refusal(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(10 ** 9) %}{% endfor %}",
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) if false %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{{ 9 ** 999999999 }}",
        "{% set draftproof_budget = 5 %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% for a in range(9999) %}{{ x }}{% endfor %}",
    ],
)
def test_endless_work_is_stopped(source: str) -> None:
    refusal(source)
