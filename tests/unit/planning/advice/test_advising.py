"""Advice on real shapes: what comes first, what is ruled out and by whom, and that nothing is promised."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.pairs import load_catalogue
from draftproof.configs.registry import DIALECTS
from draftproof.configs.rules.rule import Hit, Rule
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Evidence, Severity, Source
from draftproof.planning.advice import judged
from draftproof.planning.advice.advising import advise
from draftproof.planning.advice.ask import Ask, Workload, parse_requirements
from draftproof.planning.advice.copying import Recorded, replay
from draftproof.planning.advice.step import Advice, Kind, Standing, Step
from support.checkpoints import write_checkpoint
from support.known_pairs import config_of, write_headers, write_model
from support.tensor_layouts import tensors_of

FILE = "".join(f"def function_{index}(value):\n    return value + {index}\n\n" for index in range(30))
CHAT = "The Rhine runs through Cologne. Its water comes from the Alps, and it ends in the sea."


def ask(reference: str, engine: str = "vllm", read: bool = True, **changes: object) -> Ask:
    base = Ask(
        reference=reference,
        view=open_view(reference) if read else None,
        unread=None if read else "not at hand",
        engine=engine,
        version=None,
        engine_assumed=False,
        role="operator",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def of_kind(advice: Advice, kind: Kind) -> list[Step]:
    return [step for step in advice.steps if step.kind == kind]


def workload(prompt: str, answer: str, prediction: str | None = None) -> Workload:
    predicted = None if prediction is None else replay([Recorded(prediction, answer)])
    return Workload(
        name="w.jsonl", num_requests=1, num_answers=1, num_predictions=int(prediction is not None), parameters={},
        copied=replay([Recorded(prompt, answer)]), predicted=predicted,
    )  # fmt: skip


def test_built_in_layers_come_first_where_their_tensors_are(tmp_path: Path) -> None:
    advice = advise(ask(str(write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path))))
    first = advice.first
    assert (first.kind, first.standing) == ("mtp", Standing.TRY)
    assert first.sizes[0].num_bytes == pytest.approx(0.42e9, rel=0.1)
    assert first.pays_if is not None
    assert "Not measured" in first.pays_if
    assert "mtp_layers" in first.evidence[0].text
    assert '"method": "mtp"' in first.commands[0].text
    assert advice.fix_first == ()


def test_layers_that_are_declared_and_missing_are_to_be_fixed_first(tmp_path: Path) -> None:
    config = config_of("XiaomiMiMo/MiMo-7B-Base")
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = tensors_of("mimo", config)
    kept = {name: tensor for name, tensor in tensors.items() if "mtp" not in name}
    write_headers(tmp_path / "model.safetensors", kept)
    advice = advise(ask(str(tmp_path)))
    [step] = of_kind(advice, "mtp")
    assert step.standing is Standing.RULED_OUT
    assert "no tensor of them" in advice.fix_first[0].text
    assert "graft" in advice.fix_first[0].text


def test_a_target_without_layers_is_told_so(tmp_path: Path) -> None:
    [step] = of_kind(advise(ask(str(write_model("Qwen/Qwen3-8B", tmp_path)))), "mtp")
    assert step.standing is Standing.RULED_OUT
    assert step.commands == ()


def test_without_files_the_catalogue_answers_and_what_was_not_read_is_said() -> None:
    advice = advise(ask("Qwen/Qwen3-8B", read=False))
    head = advice.first
    assert (head.kind, head.standing) == ("head", Standing.TRY)
    assert head.speculation is not None
    assert head.speculation.drafter is not None
    assert head.speculation.drafter.name in head.commands[0].text
    assert any("not at hand" in note.text for note in advice.notes)
    assert any("Reported, not measured here" in claim.text for claim in head.evidence)


def test_heads_for_other_engines_are_not_recommended_as_proven() -> None:
    steps = of_kind(advise(ask("moonshotai/Kimi-K2.7-Code", read=False)), "head")
    assert steps
    assert all(step.standing is not Standing.TRY for step in steps)
    assert "sglang" in steps[0].against[0].text


def test_a_fine_tune_that_states_its_parent_gets_its_heads_as_unproven(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "_name_or_path": "Qwen/Qwen3-8B"}))
    steps = of_kind(advise(ask(str(directory))), "head")
    assert steps
    assert all(step.standing is not Standing.TRY for step in steps)


def test_nothing_known_means_do_nothing_first(tmp_path: Path) -> None:
    advice = advise(ask(str(write_checkpoint(tmp_path))))
    assert advice.first.kind == "none"
    assert any("No pair is known" in note.text for note in advice.notes)


@pytest.mark.parametrize(
    ("answer", "standing"), [(FILE, Standing.TRY), (CHAT, Standing.RULED_OUT)], ids=["edit", "chat"]
)
def test_look_up_follows_what_the_workload_copies(tmp_path: Path, answer: str, standing: Standing) -> None:
    target = str(write_checkpoint(tmp_path))
    [step] = of_kind(advise(ask(target, workload=workload(f"Edit this.\n{FILE}", answer))), "look_up")
    assert step.standing is standing
    if standing is Standing.TRY:
        assert "all 1 recorded answers" in step.evidence[0].text
        assert "not tokens" in step.evidence[0].text
        assert step.pays_if is not None
        assert "not measured" in step.pays_if
    unmeasured = of_kind(advise(ask(target)), "look_up")[0]
    assert unmeasured.standing is Standing.POSSIBLE
    assert "not measured" in unmeasured.against[0].text


def test_roles_put_different_things_first(tmp_path: Path) -> None:
    target = str(write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path))
    edits = workload(f"Edit this.\n{FILE}", FILE, prediction=FILE)
    operator = advise(ask(target, engine="vllm", workload=edits))
    assert operator.first.kind == "mtp"
    ours = ask(str(write_checkpoint(tmp_path / "ours")), engine="draftproof", workload=edits)
    assert advise(replace(ours, role="app")).first.kind == "prediction"
    assert advise(ours).first.kind == "look_up"
    app = advise(ask(target, engine="vllm", role="app", workload=edits))
    assert "ask whoever runs" in app.first.commands[0].what
    [refused] = of_kind(app, "prediction")
    assert refused.standing is Standing.RULED_OUT


def test_a_drafter_is_weighed_against_active_parameters() -> None:
    [step, *_] = of_kind(advise(ask("Qwen/Qwen3-8B", read=False)), "draft_model")
    assert "8.2 billion that the target uses per token" in step.evidence[1].text
    mixture = advise(ask("Qwen/Qwen3-30B-A3B", read=False))
    for step in of_kind(mixture, "draft_model"):
        assert step.pays_if is None or "experts" in step.pays_if


def test_a_smaller_model_that_nobody_documents_is_unproven() -> None:
    steps = of_kind(advise(ask("meta-llama/Meta-Llama-3-70B-Instruct", read=False)), "draft_model")
    [step] = steps
    assert step.standing is Standing.POSSIBLE
    assert "token maps" in step.against[0].text


@pytest.mark.parametrize("engine", list(DIALECTS))
def test_every_target_of_the_catalogue_gets_an_answer_on_every_engine(engine: str) -> None:
    """A first try is never for an engine that no source names."""
    catalogue = load_catalogue()
    for target in sorted({pair.target for pair in catalogue.pairs}):
        advice = advise(ask(target, engine=engine, read=False, requirements=("json_schema", "lora")))
        assert [step.kind for step in advice.steps].count("none") == 1
        for step in advice.steps:
            json.dumps(step.as_dict())
            if step.kind in ("mtp", "head", "draft_model") and step.standing is Standing.TRY:
                drafter = step.speculation.drafter if step.speculation else None
                pairs = catalogue.find(target, drafter.name if drafter else None)
                assert any(engine in pair.engines for pair in pairs), (target, step.title)


def test_a_documented_pair_that_the_engine_refuses_is_no_first_try() -> None:
    target = ask("Qwen/Qwen2.5-7B-Instruct", engine="sglang", read=False)
    [step] = of_kind(advise(target), "draft_model")
    assert step.standing is Standing.POSSIBLE
    assert any("0.5.23 refuses it" in claim.text for claim in step.against)
    assert not any("vLLM" in claim.text for claim in (*step.against, *step.risks))


def test_another_architecture_of_as_many_tokens_is_no_drafter(tmp_path: Path) -> None:
    """Qwen2.5-0.5B has as many rows as Qwen3-8B and other tokens."""
    for step in of_kind(advise(ask(str(write_model("Qwen/Qwen3-8B", tmp_path)))), "draft_model"):
        assert step.speculation is not None
        assert step.speculation.drafter is not None
        assert step.speculation.drafter.name.startswith("Qwen/Qwen3-")


GIB = 2**30


def test_memory_is_a_price_and_what_does_not_fit_is_ruled_out(tmp_path: Path) -> None:
    target = str(write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path))
    roomy = advise(ask(target, memory=80 * GIB, context=4096, concurrency=4)).first
    assert roomy.kind == "mtp"
    assert roomy.capacity is not None
    assert 4 <= roomy.capacity.with_step <= roomy.capacity.plain
    short = [
        step
        for memory in range(18 * 64, 24 * 64)
        if (step := of_kind(advise(ask(target, memory=memory * GIB // 64, context=32768)), "mtp")[0]).capacity
        and step.capacity.with_step < step.capacity.plain
    ]
    assert short, "at some size the layers' weights or cache cost a request"
    assert any(step.standing is Standing.RULED_OUT for step in short)


def test_a_target_that_does_not_fit_by_itself_is_the_first_thing_to_fix(tmp_path: Path) -> None:
    advice = advise(ask(str(write_model("Qwen/Qwen3-8B", tmp_path)), memory=12 * GIB, context=4096))
    assert "not one request of 4096 tokens fits" in advice.fix_first[0].text


def test_too_few_requests_are_said_to_be_too_few_with_or_without(tmp_path: Path) -> None:
    target = str(write_model("Qwen/Qwen3-8B", tmp_path))
    advice = advise(ask(target, memory=24 * GIB, context=8192, concurrency=64))
    assert any("with or without speculation" in note.text for note in advice.notes)


def test_a_drafter_that_was_not_read_is_weighed_by_its_published_size(tmp_path: Path) -> None:
    directory = write_model("Qwen/Qwen3-8B", tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "_name_or_path": "Qwen/Qwen3-8B"}))
    advice = advise(ask(str(directory), memory=24 * GIB, context=8192))
    [step, *_] = of_kind(advice, "draft_model")
    assert step.capacity is not None
    assert step.capacity.with_step <= step.capacity.plain
    assert "cache is not counted" in (step.capacity.not_counted or "")
    [look_up] = of_kind(advice, "look_up")
    assert look_up.capacity is not None
    assert look_up.capacity.not_counted is None
    heads = of_kind(advice, "head")
    assert any("memory was not planned" in claim.text for step in heads for claim in step.against)


def test_own_weights_as_drafter_only_where_they_are_larger_than_four_bits(tmp_path: Path) -> None:
    target = ask(str(write_checkpoint(tmp_path)), engine="draftproof")
    [step] = of_kind(advise(target), "self")
    assert step.pays_if is not None
    assert of_kind(advise(replace(target, engine="vllm")), "self") == []


def test_high_load_speaks_for_plain_decoding(tmp_path: Path) -> None:
    target = ask(str(write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path)), concurrency=256)
    [nothing] = of_kind(advise(target), "none")
    assert any("256 requests" in claim.text for claim in nothing.evidence)


def test_hosted_says_what_is_documented_and_nothing_else() -> None:
    base = ask("gpt-4.1", engine="openai", read=False, role="hosted")
    edits = workload(f"Edit this.\n{FILE}", FILE, prediction=FILE)
    [prediction] = of_kind(advise(replace(base, workload=edits)), "prediction")
    assert prediction.standing is Standing.TRY
    assert any("billed" in claim.text for claim in prediction.risks)
    other = advise(replace(base, reference="some-other-model", workload=edits))
    assert of_kind(other, "prediction")[0].standing is Standing.RULED_OUT
    assert other.first.kind == "none"
    azure = replace(base, engine="azure-openai", requirements=("tools",))
    assert all(step.standing is Standing.RULED_OUT for step in of_kind(advise(azure), "prediction"))


def test_every_step_without_a_measurement_promises_nothing(tmp_path: Path) -> None:
    targets = [ask(str(write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path))), ask("Qwen/Qwen3-8B", read=False)]
    for target in targets:
        for step in advise(target).steps:
            text = json.dumps(step.as_dict())
            assert "faster" not in text
            assert "speed-up" not in text


def test_requirements_are_names_of_a_list() -> None:
    assert parse_requirements(" json_schema, lora,json_schema") == ("json_schema", "lora")
    assert parse_requirements(None) == parse_requirements("") == ()
    with pytest.raises(DraftproofError) as caught:
        parse_requirements("json_schema,wings")
    assert caught.value.code == "DP001"


def _rule(code: str, severity: Severity) -> Rule:
    """One that always speaks."""
    hit = Hit(detail="min_p is refused.", evidence=(Evidence(where="requests", found="min_p"),))
    return Rule(
        code=code, title="t", severity=severity, about="a", remedy="Leave it out.",
        source=Source(name="somewhere", read="2026-11"), judge=lambda case: (hit,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "severity", "standing"),
    [
        ("REQUEST-99", Severity.ERROR, Standing.RULED_OUT),
        ("COMBO-99", Severity.WARNING, Standing.POSSIBLE),
        ("VOCAB-99", Severity.WARNING, Standing.TRY),
        ("VOCAB-99", Severity.ERROR, Standing.RULED_OUT),
        ("REQUEST-99", Severity.INFO, Standing.TRY),
        ("VOCAB-99", Severity.INFO, Standing.TRY),
    ],
)
def test_what_a_rule_says_decides_and_is_quoted_with_its_source(
    code: str, severity: Severity, standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "rules_of", lambda: (_rule(code, severity),))
    advice = advise(ask("Qwen/Qwen3-8B", read=False, requirements=("min_p",)))
    head = of_kind(advice, "head")[0]
    assert head.standing is standing
    quoted = [claim for claim in (*head.against, *head.risks) if claim.text.startswith(code)]
    assert bool(quoted) is (severity is not Severity.INFO or not code.startswith("VOCAB"))
    for claim in quoted:
        assert claim.source is not None
        assert "Leave it out." in claim.text
        assert ("a feature that you need" in claim.text) is (not code.startswith("VOCAB"))
    if standing is Standing.RULED_OUT:
        assert head.commands == ()
        assert advice.first.kind == "none"


def test_parallel_drafters_are_written_as_the_engine_writes_them() -> None:
    steps = advise(ask("Qwen/Qwen3-4B", read=False)).steps
    [step] = [step for step in steps if step.speculation and step.speculation.method == "pard"]
    document = json.loads(judged.as_config(step.speculation)) if step.speculation else {}
    assert document["method"] == "draft_model"
    assert document["parallel_drafting"] is True


def test_files_that_are_broken_are_a_mistake_and_no_advice(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path)
    (directory / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(DraftproofError) as caught:
        advise(ask(str(directory)))
    assert caught.value.code == "DP402"
