"""The chat template that comes with a model: messages in, prompt text out.

Called by the engine and the server. Knows where checkpoints keep templates, nothing of tokens.

A template is foreign code. It runs in Jinja's immutable sandbox, which bounds `range`; loop turns, calls and output
are counted here besides, and products of strings are bounded. That stops endless loops, not every way to ask for
much memory: whoever serves a checkpoint must trust it as far as a text file can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from draftproof.checkpoints.files import (
    CONFIG_MAX_BYTES,
    member,
    read_json,
    read_text,
)
from draftproof.checkpoints.gguf import Checkpoint, GgufFile
from draftproof.core.errors import DraftproofError

MAX_STEPS = 300_000
"""Loop turns and calls of one rendering."""
MAX_CHARACTERS = 64_000_000
"""Output of one rendering, and length of any repeated string."""

_PADDING = frozenset(("center", "expandtabs", "format", "format_map", "ljust", "rjust", "zfill"))
"""Methods of strings that ask for any length."""

_BUDGET = "draftproof_budget"
_COUNT = "draftproof_count"
_TOKEN_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class ChatTemplate:
    """`sources` are the checkpoint's templates by name ("default", "tool_use", …), `variables` its special tokens.

    A template that cannot be parsed is reported when it is used, so that prompts without chat still work.
    """

    def __init__(self, sources: Mapping[str, str], variables: Mapping[str, str]) -> None:
        self.sources = dict(sources)
        self.variables = dict(variables)
        self._compiled: dict[str, Template] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt text; `variables` reach the template as they are. Raises DP304."""
        source = self.sources.get("tool_use") if tools else None
        source = source or self.sources.get("default")
        if source is None:
            raise DraftproofError(
                "DP304",
                "messages",
                "a model without chat template",
                "a model made for chat",
                "Give a raw prompt.",
            )
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            template = self._compile(source)
            return template.render(self.variables | given | variables | {_BUDGET: _Budget()})
        except Exception as error:  # a template is foreign code: whatever it raises is its own way to say no
            raise DraftproofError(
                "DP304",
                "messages",
                f"{type(error).__name__}: {error}"[:500],
                "messages that the model's chat template accepts",
                "Check roles and their order, and whether the model takes tools or system messages.",
            ) from error

    def _compile(self, source: str) -> Template:
        if source not in self._compiled:
            environment = _environment()
            self._compiled[source] = environment.from_string(_Counting().visit(environment.parse(source)))
        return self._compiled[source]


def load_template(checkpoint: Checkpoint) -> ChatTemplate:
    """The template of a checkpoint, perhaps none. Raises DP402 for broken files."""
    if isinstance(checkpoint, GgufFile):
        return _from_gguf(checkpoint.metadata)
    path = member(checkpoint, "tokenizer_config.json")
    config = {} if path is None else read_json(path, CONFIG_MAX_BYTES)
    found = config.get("chat_template")
    document = member(checkpoint, "chat_template.json")
    if document is not None:
        found = read_json(document, CONFIG_MAX_BYTES).get("chat_template")
    plain = member(checkpoint, "chat_template.jinja")
    if plain is not None:
        found = read_text(plain, CONFIG_MAX_BYTES)
    if isinstance(found, str):
        found = [{"name": "default", "template": found}]
    sources = {}
    for entry in found if isinstance(found, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("template"), str):
            sources[str(entry.get("name"))] = entry["template"]
    variables = {}
    for name in _TOKEN_NAMES:
        token = config.get(f"{name}_token")
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            variables[f"{name}_token"] = content
    return ChatTemplate(sources, variables)


def _from_gguf(metadata: Mapping[str, Any]) -> ChatTemplate:
    prefix = "tokenizer.chat_template"
    sources = {}
    for key, value in metadata.items():
        if isinstance(value, str) and (key == prefix or key.startswith(prefix + ".")):
            sources[key.removeprefix(prefix).removeprefix(".") or "default"] = value
    tokens = metadata.get("tokenizer.ggml.tokens")
    tokens = tokens if isinstance(tokens, list) else []
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "cls": "cls"}
    variables = {}
    for name, key in keys.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(token_id) is int and 0 <= token_id < len(tokens):
            variables[f"{name}_token"] = str(tokens[token_id])
    return ChatTemplate(sources, variables)


@dataclass(slots=True)
class _Budget:
    """What one rendering may still use."""

    steps: int = field(default=MAX_STEPS)
    characters: int = field(default=MAX_CHARACTERS)

    def step(self, num_steps: int = 1) -> None:
        self.steps -= num_steps
        if self.steps < 0:
            raise TemplateError(f"the template takes more than {MAX_STEPS} steps")

    def emit(self, text: object) -> object:
        if isinstance(text, str):
            self.characters -= len(text)
            if self.characters < 0:
                raise TemplateError(f"the template writes more than {MAX_CHARACTERS} characters")
        return text

    def count(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.step()
            yield item


class _Counting(NodeTransformer):
    """Lets every loop draw its items through the budget."""

    def visit_For(self, node: nodes.For, *args: Any, **kwargs: Any) -> nodes.Node:  # noqa: N802
        self.generic_visit(node, *args, **kwargs)
        node.iter = nodes.Filter(node.iter, _COUNT, [], [], None, None, lineno=node.lineno)
        return node


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "**", "%"))

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _budget(__context).step()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "*" and _is_large_product(left, right)):
            raise TemplateError(f"the template asks for {left!r:.40} {operator} {right!r:.40}")
        if operator == "%" and isinstance(left, str):
            raise TemplateError("the template formats with %, which can ask for any width")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _PADDING and super().is_safe_attribute(obj, attr, value)


def _is_large_product(left: Any, right: Any) -> bool:
    """Whether a product is a number of more than 64 bits, or text or a list beyond the bound."""
    sizes = [abs(side) if isinstance(side, int | float) else len(side) for side in (left, right)]
    is_number = isinstance(left, int | float) and isinstance(right, int | float)
    return bool(sizes[0] * sizes[1] > (2**64 if is_number else MAX_CHARACTERS))


@pass_context
def _range(context: Context, *bounds: int) -> range:
    """Counted when it is made: filters walk through it without a step of the template's own."""
    made = range(*bounds)
    _budget(context).step(len(made))
    return made


class _GenerationBlock(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it only encloses text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _budget(context: Context) -> _Budget:
    budget = context.parent[_BUDGET]  # not what the template may have set under this name
    assert isinstance(budget, _Budget)
    return budget


@pass_context
def _count(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    return _budget(context).count(items)


@pass_context
def _emit(context: Context, value: object) -> object:
    return _budget(context).emit(value)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    """As templates expect it: characters as they are, nothing escaped for HTML."""
    known = {key: options[key] for key in ("separators", "sort_keys") if key in options}
    return json.dumps(
        value, indent=None if indent is None else min(int(indent), 64), ensure_ascii=ensure_ascii, **known
    )


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_emit,
        extensions=[loopcontrols, _GenerationBlock],
    )
    for name in ("center", "format", "wordwrap"):
        del environment.filters[name]
    del environment.globals["lipsum"]
    environment.globals["range"] = _range
    environment.filters |= {"tojson": _to_json, _COUNT: _count}
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment
