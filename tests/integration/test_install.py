"""The wheel: it builds, carries its data, and the installed program runs outside the source tree."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str], cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], folder)
    [wheel] = folder.glob("draftproof-*.whl")
    return wheel


def test_the_wheel_carries_data_sources_and_licence_and_nothing_that_was_built(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith("METADATA")]
        requirements = [
            line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist:")
        ]
    for name in ("edit", "chat", "passage"):
        assert f"draftproof/measure/data/{name}.toml" in names
    for name in ("data/pairs.toml", "providers/table.toml"):
        assert f"draftproof/configs/{name}" in names
    assert "draftproof/py.typed" in names
    assert any(name.startswith("draftproof/models/native/kernels/") for name in names)
    assert not [name for name in names if name.endswith((".so", ".pyc", ".gguf", ".safetensors"))]
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    # The base install stays small: everything else belongs to an extra.
    assert [line for line in requirements if "extra ==" not in line] == [
        "Requires-Dist: click>=8.1",
        "Requires-Dist: httpx>=0.28",
        "Requires-Dist: numpy>=1.26",
        "Requires-Dist: packaging>=24",
        "Requires-Dist: pyyaml>=6.0",
    ]


def test_the_installed_program_runs(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], tmp_path)
    bin_folder = tmp_path / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={bin_folder / 'python'}"]
    run([*pip, "install", "--quiet", "--no-deps", str(wheel)], tmp_path)
    # The new environment sees this one's packages (and not this source tree).
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    here = [entry for entry in sys.path if entry.endswith("site-packages")]
    (site / "below.pth").write_text("\n".join(here) + "\n")
    program = str(bin_folder / "draftproof")
    assert "draftproof demo --quick" in run([program, "--help"], tmp_path)
    document = json.loads(run([program, "version", "--json"], tmp_path))
    assert document["draftproof"]
    assert document["packages"]["torch"]
    code = "import draftproof; from draftproof.measure.workloads import load_all\n"
    code += "print(draftproof.__file__, len(load_all()))"
    location, count = run([str(bin_folder / "python"), "-c", code], tmp_path).split()
    assert Path(location).is_relative_to(tmp_path)
    assert count == "3"
