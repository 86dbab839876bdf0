"""The demo's order, pairing and verdicts, on an engine whose costs are known."""

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations
from statistics import geometric_mean

import pytest

from draftproof.core.intent import Cascade, NoSpeculation, Predicted
from draftproof.measure import demo_report
from draftproof.measure.demo import MIN_TOKENS, QUICK, Demo, DemoResult, DemoSettings, candidate_for
from draftproof.measure.workloads import load, load_all
from support.fake_engine import FakeEngine

SETTINGS = DemoSettings(budget_s=1e6)


def answer(prompt: str, drafted: bool) -> str:
    """Answers of different lengths, the same in both arms."""
    return prompt[-40 - len(prompt) % 30 :]


def run(engine: FakeEngine, settings: DemoSettings = SETTINGS) -> DemoResult:
    return Demo(engine, load_all(), settings, clock=lambda: engine.now).run()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(answer=answer)


def test_every_workload_is_measured_at_every_load_with_every_prompt(engine: FakeEngine) -> None:
    result = run(engine)
    assert [(cell.workload, cell.concurrency) for cell in result.cells] == [
        (name, load) for name in ("edit", "chat", "passage") for load in (1, 4)
    ]
    for cell in result.cells:
        assert [record.prompt for record in cell.plain] == [record.prompt for record in cell.speculative]
        times = 1 if cell.concurrency == 1 else 2  # each time with other neighbours
        assert Counter(record.prompt for record in cell.plain) == Counter(
            {prompt.name: times for prompt in load(cell.workload).prompts[:8]}
        )
        assert cell.num_identical == 8 * times


def test_a_prompt_meets_other_neighbours_in_its_second_block(engine: FakeEngine) -> None:
    cell = next(cell for cell in run(engine).cells if cell.concurrency == 4)
    names = [record.prompt for record in cell.plain]
    blocks = [frozenset(names[first : first + 4]) for first in range(0, len(names), 4)]
    assert len(set(blocks)) == len(blocks) == len(cell.blocks["plain"]) == 4
    assert max(len(one & other) for one, other in combinations(blocks, 2)) == 2


def test_requests_that_run_together_are_one_observation(engine: FakeEngine) -> None:
    for cell in run(engine).cells:
        assert cell.speedup is not None
        assert cell.speedup.num_pairs == (8 if cell.concurrency == 1 else 4)
        plain, spec = cell.totals["plain"], cell.totals["speculative"]
        overall = (plain.wall_s / plain.emitted) / (spec.wall_s / spec.emitted)
        assert cell.speedup.ratio == pytest.approx(overall, rel=0.05)


def test_arms_alternate_which_goes_first(engine: FakeEngine) -> None:
    cells = {(cell.workload, cell.concurrency): cell for cell in run(engine).cells}
    alone = cells["chat", 1]
    assert [plain.order < spec.order for plain, spec in alone.pairs] == [True, False] * 4
    together = cells["chat", 4]
    assert [plain.order < spec.order for plain, spec in together.pairs] == ([True] * 4 + [False] * 4) * 2


def test_no_two_requests_share_a_scope_and_only_the_speculative_arm_drafts(engine: FakeEngine) -> None:
    run(engine)
    scopes = [request.scope for request in engine.requests]
    assert len(set(scopes)) == len(scopes)
    for request in engine.requests:
        assert request.params.is_greedy
        if isinstance(request.intent, NoSpeculation):
            assert request.prediction == ()
        else:
            assert isinstance(request.intent, Cascade)
            assert bool(request.prediction) == isinstance(request.intent.proposers[0], Predicted)


def test_the_expected_text_is_drafted_where_there_is_one() -> None:
    assert [part.method for part in candidate_for(load("edit").prompts[0]).proposers] == [
        "predicted",
        "suffix",
        "ngram",
    ]
    assert [part.method for part in candidate_for(load("chat").prompts[0]).proposers] == ["suffix", "ngram"]


def test_four_tokens_for_the_price_of_one_and_a_fifth_pay(engine: FakeEngine) -> None:
    for cell in run(engine).cells:
        assert cell.speedup is not None
        assert cell.speedup.ratio == pytest.approx(4 / 1.2, rel=0.12)  # last rounds are not full
        assert cell.verdict == "pays"
        assert cell.breakeven is not None
        assert cell.breakeven.pays
        assert cell.acceptance_rate == pytest.approx(0.75, abs=0.05)


def test_drafts_that_cost_more_than_they_bring_do_not_pay(engine: FakeEngine) -> None:
    engine.draft_s, engine.tokens_per_round = 0.030, 2
    result = run(engine)
    assert {cell.verdict for cell in result.cells} == {"does_not_pay"}
    text = demo_report.as_text(result, engine.describe())
    assert "does not pay" in text
    assert "A round costs as much as 4.00 plain tokens and emits 1.9" in text


def test_a_difference_in_one_answer_is_counted_and_said(engine: FakeEngine) -> None:
    engine.answer = lambda prompt, drafted: answer(prompt, drafted)[
        : 35 if drafted and "sky is blue" in prompt else None
    ]
    result = run(engine)
    assert not result.all_identical
    assert [cell.num_identical for cell in result.cells] == [8, 16, 7, 14, 8, 16]
    assert "this is a fault of ours" in demo_report.as_text(result, engine.describe())
    withdrawn = replace(engine, promise=False)
    assert "not promised on this machine" in demo_report.as_text(result, withdrawn.describe())


def test_a_slow_machine_gets_shorter_answers_and_stays_within_the_budget(engine: FakeEngine) -> None:
    engine.plain_round_s = 0.100
    result = run(engine, DemoSettings(budget_s=400.0))
    assert MIN_TOKENS < result.max_tokens < 96
    assert result.elapsed_s < 400.0
    assert run(engine, DemoSettings(budget_s=1.0)).max_tokens == MIN_TOKENS


def test_a_quick_run_is_smaller(engine: FakeEngine) -> None:
    result = run(engine, QUICK)
    assert result.max_tokens <= 48
    assert all(len(cell.pairs) == 4 for cell in result.cells)


def test_answers_of_one_token_are_not_measured_and_not_an_error(engine: FakeEngine) -> None:
    engine.answer = lambda prompt, drafted: "x"
    result = run(engine, QUICK)
    assert {cell.verdict for cell in result.cells} == {"not_measured"}
    assert "not measured" in demo_report.as_text(result, engine.describe())


def test_progress_ends_at_the_end(engine: FakeEngine) -> None:
    seen: list[tuple[int, int, str]] = []
    Demo(engine, load_all(), QUICK, lambda *step: seen.append(step), clock=lambda: engine.now).run()
    assert seen[0][2] == "warming up"
    assert seen[-1] == (1, 1, "done")
    shares = [done / total for done, total, _ in seen]
    assert shares == sorted(shares)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 17, 20])
def test_an_interrupted_run_reports_what_was_measured_in_both_arms(
    engine: FakeEngine, num_steps: int
) -> None:
    seen = []

    def interrupt(done: int, total: int, what: str) -> None:
        if what not in ("warming up", "interrupted"):
            if len(seen) == num_steps:
                raise KeyboardInterrupt
            seen.append(what)

    demo = Demo(engine, load_all(), QUICK, interrupt, clock=lambda: engine.now)
    if num_steps < 2:  # not one block in both arms
        with pytest.raises(KeyboardInterrupt):
            demo.run()
        return
    result = demo.run()
    assert not result.is_whole
    assert sum(len(cell.blocks[arm]) for cell in result.cells for arm in ("plain", "speculative")) == (
        num_steps // 2 * 2
    )
    assert all(len(cell.plain) == len(cell.speculative) > 0 for cell in result.cells)
    assert "Interrupted" in demo_report.as_text(result, engine.describe())


PROVENANCE = {
    "time": "2026-01-01T00:00:00+00:00",
    "commit": None,
    "versions": {"torch": "2.13.0"},
    "hardware": {"cpu": "Example CPU", "num_cores": 2},
}


def test_markdown_stands_on_its_own(engine: FakeEngine) -> None:
    page = demo_report.as_markdown(run(engine), engine.describe(), PROVENANCE, "draftproof 1.2.3")
    assert page.startswith("# Speculative against plain decoding: fake\n")
    assert "Example CPU, 2 cores · draftproof 1.2.3" in page
    assert "| edit | 1 | 100.0 |" in page
    assert "Identical answers: 72 of 72" in page


def test_the_document_is_json_and_its_numbers_can_be_computed_from_its_records(engine: FakeEngine) -> None:
    result = run(engine)
    document = json.loads(
        json.dumps(demo_report.as_document(result, engine.describe(), PROVENANCE), allow_nan=False)
    )
    assert document["all_identical"] is True
    assert document["loads"] == {"compared": 24, "identical": 24}
    assert len(document["records"]) == 3 * (8 + 16) * 2
    for cell in document["cells"]:
        records = [
            record
            for record in document["records"]
            if (record["workload"], record["concurrency"]) == (cell["workload"], cell["load"]["concurrency"])
        ]
        speculative = [record for record in records if record["arm"] == "speculative"]
        proposed = sum(record["stats"]["proposed"] for record in speculative)
        accepted = sum(record["stats"]["accepted"] for record in speculative)
        assert cell["acceptance"]["rate"] == pytest.approx(accepted / proposed)
        alone = cell["load"]["concurrency"] == 1
        assert len(speculative) == (8 if alone else 16)
        assert cell["speedup"]["num_prompts"] == 8
        assert cell["speedup"]["num_blocks"] == len(cell["blocks"]) == (8 if alone else 4)
        assert cell["speedup"]["metric"] == ("tpot" if alone else "throughput")
        ratios = [
            (block["baseline"]["wall_s"] / block["baseline"]["emitted"])
            / (block["candidate"]["wall_s"] / block["candidate"]["emitted"])
            for block in cell["blocks"]
        ]
        assert cell["speedup"]["ratio"] == pytest.approx(geometric_mean(ratios))
        assert cell["candidate"]["method"] == "cascade"
        assert cell["verdict"] == "pays"
        assert cell["baseline"]["tokens_per_s"] == pytest.approx(
            100.0 * cell["baseline"]["emitted"] / cell["baseline"]["rounds"]
        )


def test_the_terminal_report_fits_a_terminal(engine: FakeEngine) -> None:
    assert max(map(len, demo_report.as_text(run(engine), engine.describe()).splitlines())) <= 110
