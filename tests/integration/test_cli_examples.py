"""The examples at the end of every --help run as they are written, in a shell.

The program on PATH is ours with a stand-in for the model: no download, no minutes. What it answers is not looked at.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.cli import demo, generate, main, models, translate, version
from support.checkpoints import write_gguf

TESTS = Path(__file__).resolve().parents[1]

STAND_IN = f"""\
#!{sys.executable}
import os, sys
from pathlib import Path
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent / "src")!r}]
from draftproof.cli import demo, generate, main
from draftproof.models import catalogue
def load_engine(*args, **kwargs):
    from support.fake_engine import FakeEngine
    return FakeEngine()
demo.load_engine = generate.load_engine = load_engine
catalogue.resolve = lambda *args, **kwargs: Path(os.environ["STAND_IN_MODEL"])
catalogue.is_available = lambda model: True
main.main()
"""

EXAMPLES = sorted(
    {
        line.strip()
        for command in (
            main.cli, demo.command, generate.command, models.command, models.list_models, models.pull, models.show,
            translate.command, version.command,
        )
        for line in (command.epilog or "").splitlines()
        if "draftproof " in line
    }
)  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_works_as_written(example: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "draftproof"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "STAND_IN_MODEL": str(write_gguf(tmp_path / "model.gguf")),
    }
    done = subprocess.run(
        ["bash", "-c", example], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
