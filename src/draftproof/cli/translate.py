"""`draftproof translate`: one engine's configuration of speculation in another engine's words, with an account."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import decode, file_of, files_beside, json_option, read_text
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.configs.engines.base import Note, Parsed, Reader, Remark, Rendered
    from draftproof.configs.engines.dialect import Dialect
    from draftproof.core.finding import Source

EXAMPLES = (
    "draftproof translate --from vllm --to llamacpp "
    """'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}'""",
    "echo 'vllm serve Qwen/Qwen3-8B --spec-method ngram --spec-tokens 5' | "
    "draftproof translate --from vllm --to draftproof",
)
_MAX_BYTES = 1 << 20
_FILE_LINE = "# --- file {} ---"
"""In front of a file that the first text names: a comment for shells and for YAML."""
_FILE = re.compile(r"^# --- file (\S+) ---[ \t\r]*\n", re.MULTILINE)


@click.command(
    name="translate",
    short_help="Say one engine's speculation settings in another engine's words.",
    epilog=output.examples(*EXAMPLES),
)
@click.option(
    "--from", "source", metavar="ENGINE", help="The engine that TEXT is written for. Default: what TEXT says."
)
@click.option("--to", "target", required=True, metavar="ENGINE", help="The engine to write for.")
@click.option("--from-version", metavar="X", help="Default: the version whose rules were read.")
@click.option("--to-version", metavar="Y", help="Default: the version whose rules were read.")
@click.option("--file", type=click.Path(path_type=Path), help="Read the text from this file; also as @FILE.")
@click.argument("text", required=False)
@json_option
def command(
    source: str | None,
    target: str,
    from_version: str | None,
    to_version: str | None,
    file: Path | None,
    text: str | None,
    as_json: bool,
) -> int:
    """Say the speculation settings of one engine in another engine's words: what was kept, converted or dropped.

    TEXT is what starts the engine: a command line with its line continuations, a JSON object, a YAML file; without
    it, standard input is read. ENGINE is one of draftproof, vllm, sglang, trtllm, llamacpp, transformers, openvino,
    fireworks. Nothing is guessed: where the other engine cannot say it, the exit status is 2 (DP113).
    """
    from draftproof.configs.registry import dialect

    writing = dialect(target)
    given, source_file = _text(text, file)
    given, read = _apart(given, files_beside(source_file))
    reading = dialect(source or _told(given))
    parsed = reading.parse(given, from_version, read=read)
    rendered = writing.render(parsed.deployment, to_version)
    told = _Told(reading, from_version, writing, to_version, parsed, rendered)
    error = told.error()
    if as_json:
        output.print_json(told.document() | ({"error": error.as_dict()} if error else {}))
    else:
        told.show()
    if error is not None:
        return output.report_mistake(error, as_json=False)
    return output.DONE


def _text(text: str | None, file: Path | None) -> tuple[str, Path | None]:
    """The text, and the file that it stands in. Raises DP001, DP002."""
    named = file_of(text or "")
    if named is not None:
        if file is not None:
            raise _two_sources()
        file, text = named, None
    if file is not None:
        if text is not None:
            raise _two_sources()
        return read_text(file, "--file"), file
    if text is not None and text != "-":
        return text, None
    if output.is_terminal("stdin"):
        output.note("Paste the configuration and end it with Ctrl-D.")
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise DraftproofError(
            "DP002", "standard input", "more than 1 MiB", "one configuration", "Give the configuration alone."
        )
    return decode(data, "standard input", "standard input"), None


def _told(text: str) -> str:
    """The engine whose program or image the text names. Raises DP001."""
    from draftproof.configs.engines.told import told_by

    found = told_by(text).engine
    if found is None:
        raise DraftproofError(
            "DP001", "--from", "a text that does not say its engine", "--from ENGINE", "Name it."
        )
    return found


def _apart(text: str, read: Reader) -> tuple[str, Reader]:
    """A text that `_Told.show` printed as its first part, and `read` with the files that follow it."""
    first, *others = _FILE.split(text)
    if not others or not first.strip():
        return text, read
    files = dict(zip(others[::2], others[1::2], strict=True))
    return first, lambda name: files[name] if name in files else read(name)


def _two_sources() -> DraftproofError:
    return DraftproofError(
        "DP001",
        "TEXT",
        "TEXT and a file",
        "one of TEXT, --file and standard input",
        "Give the text in one way.",
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """One translation, as a document and as text."""

    reading: Dialect
    from_version: str | None
    writing: Dialect
    to_version: str | None
    parsed: Parsed
    rendered: Rendered

    def error(self) -> DraftproofError | None:
        """DP113 with the reasons, where there is no translation."""
        notes = [note for note in self._notes() if note.kind.value == "impossible"]
        if not notes:
            return None
        return DraftproofError(
            "DP113",
            ", ".join(note.setting for note in notes),
            ", ".join(note.before or "nothing" for note in notes),
            "; ".join(note.reason for note in notes),
            "Change these settings, or choose another engine.",
        )

    def document(self) -> dict[str, Any]:
        from draftproof.configs.lock.redaction import redact
        from draftproof.configs.speculation import as_dict

        return {
            "from": {
                "engine": self.reading.engine,
                "version": self.from_version or self.parsed.deployment.version or self.reading.read_version,
            },
            "to": {"engine": self.writing.engine, "version": self.to_version or self.writing.read_version},
            "artifacts": [{"name": part.name, "text": part.text} for part in self.rendered.artifacts],
            "notes": [_note(note) for note in self._notes()],
            "remarks": [_remark(remark) for remark in self._remarks()],
            "deployment": redact(as_dict(self.parsed.deployment)),
        }

    def show(self) -> None:
        """Artifacts on standard output, ready to paste and for `_apart` to read; the account on standard error."""
        for number, part in enumerate(self.rendered.artifacts):
            if number:
                click.echo(_FILE_LINE.format(part.name))
            click.echo(part.text.rstrip("\n"))
        rows = [
            (note.kind.value, note.setting, _change(note.before, note.after), _reason(note))
            for note in self._notes()
        ]
        rows += [
            (remark.effect, remark.setting, _change(remark.found, remark.today), remark.reason)
            for remark in self._remarks()
        ]
        output.note()
        for line in _table(rows):
            output.note(line)

    def _notes(self) -> Sequence[Note]:
        return [
            replace(note, before=_hidden(note.before), after=_hidden(note.after))
            for note in self.rendered.notes
        ]

    def _remarks(self) -> Sequence[Remark]:
        from draftproof.configs.engines.base import Remark

        unread = [
            Remark(
                effect="unread",
                setting="version",
                found=f"{dialect.title} {version}",
                today=dialect.read_version,
                reason=f"the rules were read for {dialect.read_version}; what differs in {version} may be missing",
            )
            for dialect, version in ((self.reading, self.from_version), (self.writing, self.to_version))
            if version is not None and version != dialect.read_version
        ]
        told = [
            replace(remark, found=_hidden(remark.found) or "", today=_hidden(remark.today))
            for remark in self.parsed.remarks
        ]
        return [*told, *unread]


def _hidden(text: str | None) -> str | None:
    """The account is for logs: keys and passwords stand in what is ready to paste alone."""
    from draftproof.configs.lock.redaction import redact_text

    return None if text is None else redact_text(text)


def _note(note: Note) -> Mapping[str, object]:
    return {
        "kind": note.kind.value,
        "setting": note.setting,
        "before": note.before,
        "after": note.after,
        "reason": note.reason,
        "source": _source(note.source),
    }


def _remark(remark: Remark) -> Mapping[str, object]:
    return {
        "effect": remark.effect,
        "setting": remark.setting,
        "found": remark.found,
        "today": remark.today,
        "reason": remark.reason,
        "versions": remark.versions,
        "position": remark.position,
        "source": _source(remark.source),
    }


def _source(source: Source | None) -> Mapping[str, object] | None:
    return {"name": source.name, "read": source.read, "url": source.url} if source is not None else None


def _change(before: str | None, after: str | None) -> str:
    if before is None or after is None:
        return before or after or ""
    return before if before == after else f"{before} → {after}"


def _reason(note: Note) -> str:
    return "" if note.kind.value == "kept" and note.reason == "the same meaning" else note.reason


def _table(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Kind, setting, values; the reason below them, indented and wrapped."""
    import textwrap

    if not rows:
        return []
    width = max(len(kind) for kind, *_ in rows)
    names = min(40, max(len(setting) for _, setting, *_ in rows))
    indent = " " * (width + 2)
    lines: list[str] = []
    for kind, setting, change, reason in rows:
        shown = change.replace("\n", " ")
        cut = shown if len(shown) <= 200 else shown[:199] + "…"
        lines.append(f"{kind.ljust(width)}  {setting.ljust(names)}  {cut}".rstrip())
        if reason:
            lines += textwrap.wrap(reason, 108, initial_indent=indent, subsequent_indent=indent)
    return lines
