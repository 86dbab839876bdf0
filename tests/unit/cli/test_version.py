"""`draftproof version` with and without the engine's packages."""

import subprocess
import sys


def test_says_what_is_installed_and_what_auto_means_here(invoke) -> None:
    document = invoke("version", "--json").document
    assert set(document) == {
        "schema_version", "draftproof", "python", "platform", "packages", "hardware", "kernels", "dtype_auto",
    }  # fmt: skip
    assert document["kernels"]["auto"] in ("native", "python")
    assert document["kernels"]["reason"]
    assert document["dtype_auto"]["dtype"] in ("float32", "bfloat16")
    text = invoke("version").stdout
    for word in ("draftproof", "torch", "processor", "kernels", "dtype auto"):
        assert word in text


def test_works_without_pytorch_and_names_what_is_missing() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from draftproof.cli.main import run\n"
        "sys.exit(run(['version']) or run(['generate', 'm', '--prompt', 'x']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'draftproof[engine]'" in done.stdout
    assert "DP602" in done.stderr
    assert done.returncode == 2
