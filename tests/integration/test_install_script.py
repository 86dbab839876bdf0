"""`scripts/install` with a stand-in for Python: what it refuses, and that an interrupted run is begun again."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install"

STAND_IN = """\
#!/usr/bin/env bash
echo "$*" >> "{log}"
case "$*" in
    *version_info*) exit {too_old} ;;
    --version) echo "Python 3.9.1" ;;
    "-m venv"*) mkdir -p "${{!#}}/bin"; rm -f "${{!#}}/.install-unfinished"; cp "$0" "${{!#}}/bin/python" ;;
    "-m pip install"*) exit "${{PIP_STATUS:-0}}" ;;
esac
"""


class Installer:
    def __init__(self, folder: Path, too_old: bool = False) -> None:
        self.log = folder / "log"
        self.venv = folder / "venv"
        self.python = folder / "python"
        self.python.write_text(STAND_IN.format(log=self.log, too_old=int(too_old)))
        self.python.chmod(0o755)

    def run(self, pip_status: int = 0, python: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHON": python or str(self.python), "PIP_STATUS": str(pip_status)}
        command = [str(SCRIPT), str(self.venv), "engine", "--pre"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def calls(self, start: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith(start)]


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


def test_installs_the_extra_with_the_constraints_and_passes_flags_on(installer: Installer) -> None:
    assert installer.run().returncode == 0
    [install] = installer.calls("-m pip install")
    assert "--constraint constraints.txt --editable .[engine] --pre" in install
    assert not (installer.venv / ".install-unfinished").exists()


def test_a_complete_environment_is_used_again(installer: Installer) -> None:
    installer.run()
    assert installer.run().returncode == 0
    assert len(installer.calls("-m venv")) == 1


def test_after_an_interrupted_installation_the_environment_is_made_anew(installer: Installer) -> None:
    assert installer.run(pip_status=1).returncode != 0
    assert (installer.venv / ".install-unfinished").exists()
    assert installer.run().returncode == 0
    assert len(installer.calls("-m venv --clear")) == 2


def test_a_broken_environment_is_made_anew(installer: Installer) -> None:
    installer.run()
    (installer.venv / "bin" / "python").unlink()
    assert installer.run().returncode == 0
    assert len(installer.calls("-m venv")) == 2


def test_an_old_or_missing_python_is_named_with_the_way_out(tmp_path: Path) -> None:
    old = Installer(tmp_path, too_old=True).run()
    assert old.returncode == 2
    assert "is Python 3.9.1" in old.stderr
    missing = Installer(tmp_path).run(python="python3.99")
    assert missing.returncode == 2
    for done in (old, missing):
        assert "Python 3.11 or newer is needed" in done.stderr
        assert "make PYTHON=" in done.stderr
