"""`draftproof breakeven`: thresholds, speed-ups, files of three kinds, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof.planning.breakeven import emitted_per_round
from draftproof.planning.measured import read_document
from support.checkpoints import write_checkpoint

TIMES = ("--decode-ms", "10", "--draft-ms", "0.8", "--verify-ms", "1:10,5:11.5")
RATES = ("--acceptance", "0.8,0.6,0.45,0.3")


def write(path: Path, document: dict[str, Any]) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def cell(concurrency: int, verify_s: float, **changes: Any) -> dict[str, Any]:
    """One cell of prove's report: plain decoding takes 10 ms per token."""
    breakeven = {
        "draft_s": 0.002, "verify_s": verify_s, "coordination_s": 0.0005, "emitted_per_round": 3.15,
        "baseline_s_per_token": 0.010, "pays": True,
    }  # fmt: skip
    return {
        "workload": "builtin:edit", "candidate": "a", "load": {"concurrency": concurrency}, "context": 512,
        "breakeven": breakeven, "acceptance": {"rate": 0.54, "length": 3.15, "per_position": [0.8, 0.6, 0.45, 0.3]},
    } | changes  # fmt: skip


def report(*cells: dict[str, Any]) -> dict[str, Any]:
    arms = [{"name": "a", "engine": "vllm", "intent": {"method": "draft_model", "num_speculative_tokens": 4}}]
    return {"schema_version": 1, "arms": arms, "cells": list(cells)}


def test_assumed_numbers_give_thresholds_and_claim_nothing(invoke) -> None:
    text = invoke("breakeven", *TIMES, *RATES).stdout
    assert text.startswith("not measured: thresholds alone")
    assert "needed per round" in text
    assert "speed-up\n" not in text
    document = invoke("breakeven", *TIMES, *RATES, "--json").document
    assert document["measured"] is False
    assert "speedup" not in json.dumps(document["sweeps"])


def test_measured_numbers_give_the_best_depth_and_what_would_move_it(invoke) -> None:
    document = invoke("breakeven", "--measured", *TIMES, *RATES, "--json").document
    [point] = document["sweeps"][0]["points"]
    assert point["best_depth"] == 4
    depth = point["depths"][3]
    assert depth["round_s"] == pytest.approx(0.0147)
    assert depth["emitted_per_round"] == pytest.approx(1 + 0.8 + 0.6 + 0.45 + 0.3)
    assert depth["speedup"] == pytest.approx(3.15 * 10 / 14.7)
    assert len(point["sensitivity"]) == 8
    assert (
        "best depth: 4, 2.143 times plain decoding; deeper was not measured"
        in invoke("breakeven", "--measured", *TIMES, *RATES).stdout
    )


def test_both_kinds_of_acceptance_say_the_same(invoke) -> None:
    marginal = invoke("breakeven", "--measured", *TIMES, "--acceptance", "0.5,0.25,0.125", "--json").document
    equal = invoke(
        "breakeven", "--measured", *TIMES, "--acceptance", "0.5", "--acceptance-kind", "conditional", "--json",
        "--max-depth", "3",
    ).document  # fmt: skip
    assert marginal["sweeps"] == equal["sweeps"]


def test_a_report_becomes_a_schedule_in_an_engines_words(invoke, tmp_path: Path) -> None:
    source = write(tmp_path / "report.json", report(cell(64, 0.090), cell(1, 0.011), cell(8, 0.014)))
    document = invoke(
        "breakeven",
        "--from",
        source,
        "--engine",
        "vllm",
        "--model",
        "draft",
        "--json",
    ).document
    [sweep] = document["sweeps"]
    assert document["measured"] is True
    assert [point["batch"] for point in sweep["points"]] == [1, 8, 64]
    assert sweep["schedule"] == [[1, 8, 4], [9, None, 0]]
    assert "[[1, 8, 4], [9, " in sweep["written"]["artifacts"][0]["text"]
    first = sweep["points"][0]["depths"][3]
    assert first["round_s"] == pytest.approx(0.0135), "at the measured depth the measured time"
    text = invoke("breakeven", "--from", source).stdout
    assert "schedule (batch sizes and depth):" in text
    assert "straight lines" in text


def test_workloads_and_rates_are_kept_apart(invoke, tmp_path: Path) -> None:
    other = cell(1, 0.012, workload="chat")
    open_loop = cell(1, 0.012, load={"rate": 2.0})
    source = write(tmp_path / "report.json", report(cell(1, 0.011), other, open_loop))
    document = invoke("breakeven", "--from", source, "--json").document
    assert [sweep["name"].partition(",")[0] for sweep in document["sweeps"]] == ["builtin:edit", "chat"]


def test_our_engines_own_results_are_read(invoke, tmp_path: Path) -> None:
    """What the engine emitted follows from its shares, and its times are those of the break-even."""
    model = str(write_checkpoint(tmp_path / "model"))
    common = (model, "--raw", "--prompt", "def add(", "--max-tokens", "40", "--kernels", "python", "--json")
    config = '{"method": "self", "num_speculative_tokens": 3, "adaptive": false}'
    plain = invoke("generate", *common).document
    drafting = invoke("generate", *common, "--speculative-config", config).document
    baseline, source = write(tmp_path / "plain.json", plain), write(tmp_path / "self.json", drafting)
    found = invoke("breakeven", "--from", source, "--baseline", baseline, "--json").document
    [point] = found["sweeps"][0]["points"]
    counted = drafting["speculation"]
    decode_s = plain["timing"]["decode_s"] / (plain["usage"]["completion_tokens"] - 1)
    assert point["decode_s"] == pytest.approx(decode_s)
    [measured] = read_document(drafting, source, decode_s)
    shares = measured.points[0].marginals
    assert counted["rounds"] * emitted_per_round(shares, len(shares)) == pytest.approx(
        counted["emitted"], abs=1
    )
    deepest = point["depths"][-1]
    for part in ("draft_s", "coordination_s"):
        assert deepest[part] == pytest.approx(counted[part] / counted["rounds"])
    assert deepest["verify_s"] == pytest.approx(max(decode_s, counted["verify_s"] / counted["rounds"]))
    alone = invoke("breakeven", "--from", source)
    assert (alone.status, alone.code) == (2, "DP103")
    assert invoke("breakeven", "--from", source, "--baseline", source).code == "DP103"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "DP001"),
        (("--decode-ms", "10", "--draft-ms", "x", "--verify-ms", "11"), "DP001"),
        (("--decode-ms", "-1", "--draft-ms", "1", "--verify-ms", "11"), "DP001"),
        ((*TIMES, "--acceptance", "high"), "DP001"),
        ((*TIMES, "--acceptance", "1.5"), "DP103"),
        ((*TIMES, "--acceptance", "0.5,0.6"), "DP103"),
        (("--from", "no/such/file"), "DP002"),
        (("--from", "/dev/zero"), "DP002"),
        (("--from", "/dev/null", "--acceptance", "0.8"), "DP001"),
        (("--from", "/dev/null", "--decode-ms", "nan"), "DP001"),
        (("--from", "/dev/null", "--baseline", "/dev/null", "--decode-ms", "10"), "DP001"),
        ((*TIMES, "--baseline", "/dev/null"), "DP001"),
        ((*TIMES, "--measured", "--engine", "vllm"), "DP001"),
        ((*TIMES, "--coordination-ms", "-1"), "DP001"),
        (("--decode-ms", "1e-320", "--draft-ms", "1", "--verify-ms", "11"), "DP001"),
        (("--decode-ms", "10", "--draft-ms", "0", "--verify-ms", "0"), "DP103"),
        (("--decode-ms", "10", "--draft-ms", "0", "--verify-ms", "1e-300,1e-300"), "DP103"),
        (("--decode-ms", "10", "--draft-ms", "1", "--verify-ms", "1:10,1:12"), "DP001"),
        (("--decode-ms", "10", "--draft-ms", "1", "--verify-ms", "1:10,01:12"), "DP103"),
        (("--decode-ms", "10", "--draft-ms", "1", "--verify-ms", "0:10"), "DP103"),
        (("--decode-ms", "10", "--draft-ms", "1", "--verify-ms", "0:9,5:11"), "DP103"),
        (("--decode-ms", "10", "--draft-ms", f"{'9' * 5000}:1", "--verify-ms", "11"), "DP103"),
    ],
)
def test_bad_input_has_its_code(invoke, arguments: tuple[str, ...], code: str) -> None:
    result = invoke("breakeven", *arguments)
    assert (result.status, result.code) == (2, code)


@pytest.mark.parametrize(
    "document",
    [
        {}, {"cells": []}, {"cells": [1]}, {"cells": [{"candidate": "a"}]},
        {"cells": [cell(1, 0.011, breakeven={})]}, {"cells": [cell(0, 0.011)]}, {"cells": [cell(1, -1.0)]},
        {"cells": [cell(1, 0.011, acceptance={"per_position": [0.5, 0.9]})]},
        {"cells": [cell(1, 0.011, acceptance={"per_position": []})]},
        {"cells": [cell(1, 0.011, breakeven={**cell(1, 0.011)["breakeven"], "baseline_s_per_token": 0})]},
        {"sweep": [{"batch": 1, "decode_ms": 0, "draft_ms": 0, "verify_ms": 1, "acceptance": [0.5]}]},
        {"sweep": [{"batch": 1, "decode_ms": 1, "draft_ms": 0, "verify_ms": {"1": 1, "01": 2}, "acceptance": [0.5]}]},
        {"sweep": [{"batch": 1}]}, {"speculation": {}, "timing": {}},
        {"sweep": [{"batch": 1, "decode_ms": 1, "draft_ms": "1", "verify_ms": 1, "acceptance": [0.5]}]},
    ],
)  # fmt: skip
def test_documents_that_lack_something_are_refused(invoke, document: dict[str, Any], tmp_path: Path) -> None:
    result = invoke("breakeven", "--from", write(tmp_path / "found.json", document))
    assert (result.status, result.code) == (2, "DP103")


@pytest.mark.parametrize(
    ("draft", "verify", "told"),
    [
        ("1", "1:5,2:3,3:1", ("over 1 rows takes less", "verifying takes less time for 2 ")),
        ("1", "9", ("over 1 rows takes less",)),
        ("1", "1:10,4:14,8:12", ("verifying takes less time for 8 ",)),
        ("3,2,1", "1:10,5:11", ("drafting takes less time for 2 ",)),
        ("1", "1:9.8,2:10,3:9.9", ()),
        ("0", "10.5,11,12", ()),
    ],
)
def test_times_that_contradict_each_other_are_said(
    invoke, tmp_path: Path, draft: str, verify: str, told: tuple[str, ...]
) -> None:
    times = ("--decode-ms", "10", "--draft-ms", draft, "--verify-ms", verify)
    for given in (times, (*times, "--measured", "--acceptance", "0.8,0.6")):
        text = invoke("breakeven", *given).stdout
        assert text.count("contradict") == len(told)
        assert all(part in text for part in told)
        notes = invoke("breakeven", *given, "--json").document["sweeps"][0]["notes"]
        assert len(notes) == len(told)


def test_the_batch_whose_times_contradict_is_named(invoke, tmp_path: Path) -> None:
    good = {"batch": 1, "decode_ms": 10, "draft_ms": 1, "verify_ms": [11, 12], "acceptance": [0.5, 0.3]}
    sweep = {"sweep": [good, good | {"batch": 8, "verify_ms": [12, 5]}]}
    text = invoke("breakeven", "--from", write(tmp_path / "sweep.json", sweep)).stdout
    assert text.count("contradict each other: batch 8, ") == 2


def test_neither_torch_nor_numpy_is_imported() -> None:
    program = (
        "import sys\nfrom draftproof.cli.main import run\n"
        f"assert run(['breakeven', *{list(TIMES)!r}]) == 0\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("draft_ms", "verify_ms", "deepest"),
    [
        ("0.8,1.6", "1:10,3:11", 2),
        ("0.8", "1:10,5:11.5", 4),
        ("0.8", "10.5,10.8,11", 3),
        ("0.8,1.6,2.4", "1:10,9:12", 3),
        ("0.8", "10.5", 8),
    ],
)
def test_no_speed_up_is_claimed_beyond_what_was_measured(
    invoke, draft_ms: str, verify_ms: str, deepest: int
) -> None:
    result = invoke(
        "breakeven", "--measured", "--decode-ms", "10", "--draft-ms", draft_ms, "--verify-ms", verify_ms,
        "--acceptance", "0.9", "--acceptance-kind", "conditional", "--json",
    )  # fmt: skip
    [sweep] = json.loads(result.stdout)["sweeps"]
    [point] = sweep["points"]
    assert [row["depth"] for row in point["depths"]] == list(range(1, deepest + 1))


def test_a_pass_of_one_row_verifies_nothing(invoke) -> None:
    result = invoke("breakeven", "--decode-ms", "10", "--draft-ms", "1", "--verify-ms", "1:10")
    assert result.status == 2
    assert "two rows or more" in result.stderr


def test_the_demo_s_report_is_refused_for_what_it_is(invoke, tmp_path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"cells": [{"workload": "edit", "candidate": {"method": "cascade"}}]}))
    result = invoke("breakeven", "--from", str(report))
    assert result.status == 2
    assert "the demo's report" in result.stderr


def test_what_a_number_that_is_missing_or_alone_means(invoke, tmp_path: Path) -> None:
    missing = invoke("breakeven", "--decode-ms", "10", "--verify-ms", "11", "--json").document["error"]
    assert missing["field"] == "--draft-ms"
    assert "0 for look-up" in missing["remedy"]
    alone = ("breakeven", *TIMES, "--acceptance", "0.7")
    assert "conditional" in invoke(*alone).stdout
    for more in (("--acceptance-kind", "conditional"), ("--max-depth", "1")):
        assert "note:" not in invoke(*alone, *more).stdout
    points = [
        {
            "batch": 1,
            "decode_ms": 10,
            "draft_ms": 0.8,
            "verify_ms": {"1": 10, "5": 11},
            "acceptance": [0.8, 0.6],
        },
        {
            "batch": 8,
            "decode_ms": 12,
            "draft_ms": 0.8,
            "verify_ms": {"1": 12, "5": 14},
            "acceptance": [0.8, 0.6],
        },
    ]
    sweep = ("breakeven", "--from", write(tmp_path / "sweep.json", {"sweep": points}), "--engine", "vllm")
    assert "--model" in invoke(*sweep).stdout
    assert "--model" not in invoke(*sweep, "--model", "some/drafter").stdout
