"""The whole demo with the real engine on a small generated checkpoint: reports, identity of all answers."""

import json
import subprocess
import sys
from pathlib import Path

from support.checkpoints import write_checkpoint

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_demo_measures_everything_and_all_answers_are_identical(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny", context=4096)
    command = [sys.executable, "-m", "draftproof", "demo", str(checkpoint), "--quick", "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False, cwd=SOURCE
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["all_identical"] is True
    assert [(cell["workload"], cell["load"]["concurrency"]) for cell in document["cells"]] == [
        (name, load) for name in ("edit", "chat", "passage") for load in (1, 4)
    ]
    for cell in document["cells"]:
        assert cell["identical"] == {"compared": 4, "identical": 4}
        assert cell["verdict"] in ("pays", "does_not_pay", "within_noise", "not_measured")
    provenance = document["provenance"]
    assert provenance["argv"][1] == "demo"
    assert provenance["hardware"]["num_cores"] >= 1
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == document
    assert (tmp_path / "out" / "report.md").read_text().startswith("# Speculative against plain decoding")
