"""What every dialect of `configs.registry` promises. A new dialect is a row there and golden texts in `deployments`."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import dropwhile

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import NoteKind, Rendered
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.speculation import BatchRange, Deployment, Method, ModelRef, Speculation, Tree
from draftproof.core.errors import DraftproofError
from support.deployments import GOLDEN, Golden, deployments

ROUND = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
PLACE = re.compile(r"line \d+, column \d+")


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def reader(files: dict[str, str]) -> Callable[[str], str]:
    def read(name: str) -> str:
        if name not in files:
            raise DraftproofError("DP002", name, "nothing", "a file", "Create it.")
        return files[name]

    return read


def parsed_again(found: Dialect, rendered: Rendered) -> Deployment:
    files = {artifact.name: artifact.text for artifact in rendered.artifacts}
    return found.parse(rendered.artifacts[0].text, read=reader(files)).deployment


def rendered_or_none(found: Dialect, deployment: Deployment) -> Rendered | None:
    """None for a description that contradicts itself."""
    try:
        return found.render(deployment)
    except DraftproofError as error:
        if error.code != "DP104":
            raise
        return None


def test_names_and_versions(engine: str) -> None:
    found = dialect(engine)
    assert found.engine == engine
    assert found.title
    assert found.render(Deployment(engine=engine), found.read_version).artifacts
    for wrong in ("0.0.1", "yesterday"):
        for ask in (
            lambda version: found.parse("", version),
            lambda version: found.render(Deployment(engine=engine), version),
            lambda version: found.defaults(Deployment(engine=engine), version),
        ):
            with pytest.raises(DraftproofError) as caught:
                ask(wrong)
            assert caught.value.code == "DP112"


FIXED_BY_BATCH = Speculation(
    method="ngram",
    depth=3,
    adaptive=False,
    schedule=(BatchRange(low=1, high=3, depth=3), BatchRange(low=4, high=None, depth=0)),
)


@given(deployment=deployments())
@example(deployment=Deployment(engine="vllm", target=ModelRef(name="m"), speculation=FIXED_BY_BATCH))
@ROUND
@pytest.mark.parametrize("name", DIALECTS)
def test_every_setting_is_accounted_for_and_comes_back(name: str, deployment: Deployment) -> None:
    found = dialect(name)
    rendered = rendered_or_none(found, deployment)
    if rendered is None:
        return
    counted = Counter(note.setting for note in rendered.notes)
    assert max(counted.values()) == 1
    before = said(deployment)
    assert set(before) <= set(counted)
    impossible = [note for note in rendered.notes if note.kind is NoteKind.IMPOSSIBLE]
    assert bool(impossible) != bool(rendered.artifacts)
    for note in rendered.notes:
        assert note.reason
        assert not note.reason.startswith(f"a key of {name}'s own"), note
        assert (note.after is not None) == (note.kind in (NoteKind.KEPT, NoteKind.CONVERTED))
    if not rendered.artifacts:
        return
    again = parsed_again(found, rendered)
    after = said(again)
    acting = {item.setting: item.value for item in found.defaults(again)}
    for note in rendered.notes:
        if note.after is not None and note.setting in before:
            assert after.get(note.setting, acting.get(note.setting)) == before[note.setting], note


@pytest.mark.parametrize("text", ["", "  ", "\n\t\n"])
def test_nothing_is_no_configuration(engine: str, text: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        dialect(engine).parse(text)
    assert caught.value.code == "DP111"


@pytest.mark.parametrize("method", ["ngram", "eagle3"])
@pytest.mark.parametrize("source", DIALECTS)
def test_a_default_of_the_service_is_remarked_and_not_written_as_a_setting(
    engine: str, source: str, method: Method
) -> None:
    drafter = ModelRef(name="head") if method == "eagle3" else None
    bare = Speculation(method=method, depth=4, drafter=drafter)
    rendered = dialect(engine).render(Deployment(engine=source, target=ModelRef(name="m"), speculation=bare))
    noted = {note.setting: note for note in rendered.notes if not note.setting.startswith("speculation.")}
    assert all(note.after is None for name, note in noted.items() if name != "target")
    if rendered.artifacts:
        settings = said(parsed_again(dialect(engine), rendered))
        assert not {"max_num_seqs", "prefix_caching", "enforce_eager", "lora"} & set(settings)
    if source == "sglang" != engine and rendered.artifacts:
        assert "sglang takes 48" in noted["max_num_seqs"].reason


@given(data=st.data())
@ROUND
@pytest.mark.parametrize("name", DIALECTS)
def test_the_own_engine_gets_nothing_that_was_not_said(name: str, data: st.DataObject) -> None:
    found = dialect(name)
    deployment = data.draw(deployments(name))
    rendered = rendered_or_none(found, deployment)
    if rendered is None or not rendered.artifacts:
        return
    assert set(said(parsed_again(found, rendered))) - _how_written(name) <= set(said(deployment))
    assert {note.setting for note in rendered.notes} == set(said(deployment))


@pytest.mark.parametrize("drafter", [None, "draft"])
def test_weights_of_no_drafter_are_dropped_and_told(drafter: str | None) -> None:
    own = dialect("draftproof")
    named = None if drafter is None else ModelRef(name=drafter)
    speculation = Speculation(method="auto", drafter=named, draft_weights="int8")
    rendered = own.render(Deployment(engine="draftproof", speculation=speculation))
    read = parsed_again(own, rendered).speculation
    assert read is not None
    assert read.draft_weights == (None if drafter is None else "int8")
    kinds = {note.setting: note.kind for note in rendered.notes}
    expected = NoteKind.DROPPED if drafter is None else NoteKind.KEPT
    assert kinds["speculation.draft_weights"] is expected


def _how_written(name: str) -> set[str]:
    """How a command starts is no setting, but it is kept."""
    return {f"extras.{name}.launcher"}


@pytest.mark.parametrize("name", GOLDEN)
def test_documented_texts_are_read_without_false_alarm_and_come_back(name: str) -> None:
    golden = GOLDEN[name]
    found = dialect(golden.engine)
    first = found.parse(golden.text, read=reader(golden.files))
    assert tuple(remark.effect for remark in first.remarks) == golden.remarks
    rendered = found.render(first.deployment)
    assert {note.kind for note in rendered.notes} <= {NoteKind.KEPT, NoteKind.CONVERTED}
    again = parsed_again(found, rendered)
    assert again == first.deployment
    assert found.render(again) == rendered


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("target", DIALECTS)
def test_documented_texts_translate_to_every_engine_or_are_refused_with_a_reason(
    name: str, target: str
) -> None:
    golden = GOLDEN[name]
    deployment = dialect(golden.engine).parse(golden.text, read=reader(golden.files)).deployment
    rendered = dialect(target).render(deployment)
    assert rendered.artifacts or any(note.kind is NoteKind.IMPOSSIBLE for note in rendered.notes)
    if rendered.artifacts:
        assert parsed_again(dialect(target), rendered).speculation.method == deployment.speculation.method


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("target", DIALECTS)
def test_what_acts_unsaid_and_would_not_act_there_is_told(name: str, target: str) -> None:
    """Which exact rule verifies is left out: the text is the same."""
    golden = GOLDEN[name]
    source, found = dialect(golden.engine), dialect(target)
    deployment = source.parse(golden.text, read=reader(golden.files)).deployment
    rendered = found.render(deployment)
    if not rendered.artifacts or deployment.speculation.method == "none":
        return
    there = parsed_again(found, rendered)
    acting = {item.setting: item.value for item in found.defaults(there)} | said(there)
    told = {note.setting for note in rendered.notes}
    for item in source.defaults(deployment):
        if item.value and item.setting.startswith("speculation.") and not item.setting.endswith(ALIKE):
            assert item.setting in told or acting.get(item.setting) == item.value, item


ALIKE = ("verification", "draft_sampling")


def test_of_an_impossible_configuration_nothing_is_said_to_be_missing(engine: str) -> None:
    impossible = Speculation(method="cascade", drafter=ModelRef(name="d"), depth=3, min_confidence=0.5)
    rendered = dialect(engine).render(Deployment(engine="elsewhere", speculation=impossible))
    assert not rendered.artifacts
    for note in rendered.notes:
        assert "has no such setting" not in note.reason


@pytest.mark.parametrize(
    ("source", "name", "targets"),
    [
        ("vllm", "Qwen/Qwen3-8B", ("draftproof", "llamacpp", "openvino", "fireworks")),
        ("llamacpp", "m.gguf", ("vllm", "sglang", "trtllm", "transformers", "openvino", "fireworks")),
        ("openvino", "main-int4", ("vllm", "sglang", "trtllm", "transformers", "fireworks")),
        ("fireworks", "accounts/x/models/y", ("vllm", "sglang", "trtllm", "transformers", "openvino")),
    ],
)
def test_a_model_that_cannot_be_loaded_as_it_is_named_is_told(
    source: str, name: str, targets: tuple[str, ...]
) -> None:
    speculation = Speculation(method="draft_model", drafter=ModelRef(name=name), depth=3)
    deployment = Deployment(engine=source, target=ModelRef(name=name), speculation=speculation)
    for target in (source, *targets):
        kinds = {note.setting: note.kind for note in dialect(target).render(deployment).notes}
        expected = NoteKind.KEPT if target == source else NoteKind.CONVERTED
        assert (kinds["target"], kinds["speculation.drafter"]) == (expected, expected), target


COMMANDS = [
    name
    for name, golden in GOLDEN.items()
    if not golden.text.lstrip().startswith(("{", "import", "from", "pipe", "assistant"))
    and (golden.engine != "trtllm" or "trtllm-serve" in golden.text)
]
AROUND: dict[str, Callable[[str], str]] = {
    "sudo": lambda text: f"sudo -E -u llm {text}",
    "env": lambda text: f"env -u OTHER A=1 B='x y' {text}",
    "background": lambda text: f"nohup {text.strip()} > 'log' 2>&1 &",
    "exec": lambda text: f"exec numactl --membind=0 -N 0 {text}",
    "prompt and comment": lambda text: f"$ {text.strip()}  # as it runs today\n# and nothing else\n",
    "shell": lambda text: f"bash -lc {shlex.quote(text)}",
    "unit": lambda text: (
        f'[Unit]\nAfter=x\n\n[Service]\nEnvironment="A=1"\nExecStart=-{text.strip()}\nRestart=always\n'
    ),
    "words in quotes": lambda text: shlex.join(words_of(text)),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "JSON list": lambda text: json.dumps(words_of(text)),
    "YAML list": lambda text: yaml.safe_dump(words_of(text)),
    "container": lambda text: yaml.safe_dump({"command": words_of(text)[:1], "args": words_of(text)[1:]}),
    "string of a service": lambda text: f"command: {json.dumps(text)}",
    "Dockerfile": lambda text: f"CMD {json.dumps(words_of(text))}",
    "sh in a list": lambda text: json.dumps(["sh", "-c", text]),
}


def words_of(text: str) -> list[str]:
    """Without variables in front."""
    return [*dropwhile(lambda word: re.match(r"\w+=", word), shlex.split(text.replace("\\\n", " ")))]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_a_command_changes_nothing(name: str, around: str) -> None:
    golden = GOLDEN[name]
    found = dialect(golden.engine)
    plain = found.parse(golden.text, read=reader(golden.files))
    again = found.parse(AROUND[around](golden.text), read=reader(golden.files))

    def kept(deployment: Deployment) -> Deployment:
        own = {
            key: value for key, value in deployment.extras.items() if not key.endswith((".env", ".launcher"))
        }
        return replace(deployment, extras=own)

    assert kept(again.deployment) == kept(plain.deployment)
    effects = [remark.effect for remark in again.remarks if remark.setting != "unit"]
    assert effects == [remark.effect for remark in plain.remarks]
    env = again.deployment.extras.get(f"{golden.engine}.env", {})
    assert isinstance(env, Mapping)
    assert ("A" in env) == (around in ("env", "unit"))


SPOILT: dict[str, tuple[Callable[[str], str], str]] = {
    "no-break space": (lambda text: text.replace(" ", "\u00a0", 1), "U+00A0"),
    "zero-width space": (lambda text: text.replace(" -", " \u200b-", 1), "U+200B"),
    "long dash": (lambda text: text.replace(" -", " \u2013", 1), "U+2013"),
    "typographic quotes": (lambda text: f"{text.strip()} “x”", "U+201C"),
    "blank behind the backslash": (lambda text: text.replace(" ", " \\ \n", 1), "with a blank behind it"),
    "fence": (lambda text: f"```bash\n{text}\n```", "fence"),
    "comment": (lambda text: "# " + text.replace(" ", " \\\n", 1), "comment"),
    "nothing": (lambda text: f"# {' '.join(text.split())}", "nothing"),
    "substitution": (lambda text: f"{text.strip()} --x $(cat y", "not closed"),
    "pipe": (lambda text: f"{text.strip()} | grep -v INFO", "|"),
    "two": (lambda text: f"{text.strip()}\n{text}", "a second line"),
    "string in Kubernetes": (lambda text: f"command: {json.dumps(text)}\nargs: []", "--"),
    "unit without a command": (lambda text: "[Service]\nRestart=always\n# trtllm-serve", "ExecStart"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_no_shell_would_start_is_refused_where_it_is_spoilt(name: str, spoilt: str) -> None:
    golden = GOLDEN[name]
    change, reason = SPOILT[spoilt]
    text = change(golden.text)
    with pytest.raises(DraftproofError) as caught:
        dialect(golden.engine).parse(text, read=reader(golden.files))
    assert caught.value.code == "DP111"
    place = re.search(r"line (\d+), column (\d+)", caught.value.field)
    assert place is not None
    lines = text.split("\n")
    line, column = map(int, place.groups())
    assert column <= len(lines[line - 1]) + 1
    assert reason in caught.value.found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_variable_that_nothing_reads_is_kept_and_told(name: str) -> None:
    golden = GOLDEN[name]
    found = dialect(golden.engine)
    plain = found.parse(golden.text, read=reader(golden.files))
    text = f"""A=$B {golden.text.strip()} --port "$PORT" $MORE "$@" """
    if golden.engine == "fireworks":
        text = text.replace("--port", "--region")
    again = found.parse(text, read=reader(golden.files))
    assert again.deployment.speculation == plain.deployment.speculation
    assert again.deployment.target == plain.deployment.target
    assert "$PORT" in again.deployment.rest
    told = [remark for remark in again.remarks if remark.found in ("$B", "$PORT", "$MORE", "$@")]
    assert [remark.effect for remark in told] == ["unknown", "unknown", "unread", "unread"]
    for remark in told:
        assert remark.position is not None
        assert text[remark.position :].lstrip('"').removeprefix("A=").startswith(remark.found)


READ = {
    "vllm": "vllm serve m --max-num-seqs {}",
    "sglang": "sglang serve --model-path m --speculative-algorithm {}",
    "llamacpp": "llama-server -m {}",
    "trtllm": "trtllm-serve {}",
    "fireworks": "firectl deployment create {}",
    "draftproof": "draftproof serve m --speculative-config {}",
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("value", ["$X", '"$X"', "${X:-4}", "$(cat x)", "`cat x`", "a$X"])
def test_a_variable_in_what_is_read_is_refused_where_it_stands(name: str, value: str) -> None:
    text = READ[name].format(value)
    with pytest.raises(DraftproofError) as caught:
        dialect(name).parse(text)
    at = re.search("[$`]", text)
    assert at is not None
    assert caught.value.code == "DP111"
    assert caught.value.field.endswith(f"line 1, column {at.start() + 1}")
    assert "variable" in caught.value.found


def answered(name: str, text: str, files: dict[str, str] | None = None) -> None:
    """A text is read, or refused with its place."""
    found = dialect(name)
    try:
        first = found.parse(text, read=reader(files or {}))
    except DraftproofError as error:
        refusal = error
    else:
        with suppress(DraftproofError):
            found.render(first.deployment)
        return
    assert refusal.code in ("DP111", "DP002"), refusal
    assert refusal.code == "DP002" or PLACE.search(refusal.field), refusal


@given(text=st.text(max_size=60))
@FEW
@pytest.mark.parametrize("name", DIALECTS)
def test_any_text_is_read_or_refused_with_its_place(name: str, text: str) -> None:
    answered(name, text)


@given(data=st.data())
@ROUND
@pytest.mark.parametrize("name", DIALECTS)
def test_damaged_texts_are_read_or_refused_with_their_place(name: str, data: st.DataObject) -> None:
    mine = [golden for golden in GOLDEN.values() if golden.engine == name]
    if not mine:
        pytest.fail(f"no golden text of {name}")
    golden: Golden = data.draw(st.sampled_from(mine))
    texts = {"": golden.text, **golden.files}
    which = data.draw(st.sampled_from(sorted(texts)))
    text = texts[which]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    middle = data.draw(
        st.text(max_size=6)
        | st.sampled_from(["", "{", "]", '"', "'", "\\", ": ", "- ", "&a ", "*a", "--", "=", "0x", "$("])
    )
    texts[which] = text[:start] + middle + text[end:]
    answered(name, texts.pop(""), texts)


HOSTILE = {
    "long": "a" * 300_000,
    "long words": "--a b " * 40_000,
    "brackets": "[" * 100_000,
    "braces": "{" * 100_000,
    "JSON": '{"a":' * 50_000,
    "parentheses": "f(" * 50_000,
    "minus": "-" * 100_000 + "1",
    "sum": "f(x=" + "1+" * 50_000 + "1)",
    "attributes": "a" + ".a" * 50_000,
    "dashes": "- " * 50_000,
    "indented": "\n".join(" " * level + f"k{level}:" for level in range(300)),
    "quotes": "'" * 99_999,
    "backslashes": "\\" * 100_000,
    "spaces": " " * 200_000 + "x",
    "lines": "\n" * 200_000 + "x",
    "lines behind": "x" + "\n" * 200_000,
    "options of a container": "docker run " + "-e A=1 " * 30_000 + "x/y",
    "containers in containers": "docker run a " * 15_000 + "vllm serve m",
    "instructions": "FROM a\n" + "ENV A=1\n" * 25_000 + "CMD vllm serve m",
    "stages": "FROM a\nCMD x\n" * 15_000,
    "exported": "export A=$B\n" * 20_000 + "vllm serve m",
    "joined": "cd a && " * 30_000 + "vllm serve m",
    "variables": "vllm serve m " + "$A " * 70_000,
    "substitutions": "vllm serve m " + "$(" * 100_000,
    "documents": "image: a\n---\n" * 20_000,
    "services": "services:\n" + "".join(f"  s{n}: {{image: a}}\n" for n in range(3_000)),
    "prefixes": "taskset 0 mpirun -x A=1 " * 10_000 + "vllm serve m",
    "comments": "# x\n" * 50_000 + "x" + "\n# x" * 10_000,
    "aliases": "a0: &a0 [x, x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)),
    "cycle": "a: &a\n  b: *a\n",
    "digits": "f(x=" + "9" * 50_000 + ")",
    "YAML digits": "max_batch_size: " + "9" * 50_000,
    "sexagesimal": "max_batch_size: " + "9:" * 20_000 + "59",
    "null": "a\x00b",
    "surrogate": "a\ud800b",
    "many keys": "".join(f"k{n}: {n}\n" for n in range(30_000)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_are_answered(engine: str, kind: str) -> None:
    answered(engine, HOSTILE[kind])


FROM_ONE = BatchRange(low=1, high=4, depth=3)


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation(method="eagle3", schedule=(FROM_ONE, BatchRange(low=4, high=None, depth=1))),
        Speculation(method="eagle3", schedule=(BatchRange(low=2, high=None, depth=3),)),
        Speculation(method="eagle3", schedule=(FROM_ONE,)),
        Speculation(method="eagle3", depth=3, tree=Tree(depth=3, branching=2, num_nodes=6)),
    ],
)
def test_contradictions_are_refused_by_name(engine: str, speculation: Speculation) -> None:
    with pytest.raises(DraftproofError) as caught:
        dialect(engine).render(Deployment(engine=engine, speculation=speculation))
    assert (caught.value.code, caught.value.field.partition(".")[0]) == ("DP104", "speculation")


@pytest.mark.parametrize("depth", [0, 1 << 40])
@pytest.mark.parametrize("method", ["draft_model", "eagle3", "ngram", "mtp"])
def test_a_depth_that_the_engine_refuses_is_impossible(engine: str, depth: int, method: Method) -> None:
    """Nothing is written that its own dialect does not read again."""
    found = dialect(engine)
    drafter = None if method in ("ngram", "mtp") else ModelRef(name="head")
    said_depth = Speculation(method=method, drafter=drafter, depth=depth)
    described = Deployment(engine="elsewhere", target=ModelRef(name="m"), speculation=said_depth)
    rendered = found.render(described)
    said_of = {note.setting: note.kind for note in rendered.notes}
    if NoteKind.IMPOSSIBLE not in said_of.values():
        again = parsed_again(found, rendered).speculation
        assert again.levels == (None if said_of["speculation.depth"] is NoteKind.DROPPED else depth)
