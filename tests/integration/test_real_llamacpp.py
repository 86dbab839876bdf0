"""The real llama-server judges what is written for it: DRAFTPROOF_LLAMA_SERVER=/path/to/llama-server (build 11434).

Its parser reads every flag before it comes to --version and then ends without loading a model.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

from draftproof.configs.engines.llamacpp import arguments, words
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, Method, ModelRef, Speculation
from draftproof.core.errors import DraftproofError
from support.deployments import GOLDEN, deployments

SERVER = os.environ.get("DRAFTPROOF_LLAMA_SERVER")
pytestmark = pytest.mark.skipif(
    SERVER is None, reason="no llama-server: name one in DRAFTPROOF_LLAMA_SERVER to let it judge"
)
LLAMA = dialect("llamacpp")


def judged(flags: list[str]) -> tuple[bool, str]:
    """Whether its parser takes the flags, and what it says."""
    assert SERVER is not None
    done = subprocess.run(
        [SERVER, *flags, "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        errors="replace",
    )
    return done.returncode == 0, done.stdout[-300:] + done.stderr[-600:]


def accepted(deployment: Deployment) -> None:
    try:
        rendered = LLAMA.render(deployment)
    except DraftproofError as error:
        if error.code != "DP104":
            raise
        return
    if rendered.artifacts:
        line = shlex.split(rendered.artifacts[0].text.replace("\\\n", " "))
        program = next(place for place, word in enumerate(line) if word.endswith("llama-server"))
        flags = line[program + 1 :]
        taken, message = judged(flags)
        assert taken, (flags, message)


@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_that_is_written_is_taken(method: Method) -> None:
    speculation = Speculation(
        method=method,
        drafter=ModelRef(name="d.gguf"),
        depth=4,
        min_depth=1,
        min_confidence=0.5,
        draft_sampling="probabilistic",
        draft_kv_dtype="q8_0",
        lookup=LookUp(min_ngram=3, max_ngram=5, min_hits=2),
    )
    accepted(
        Deployment(
            engine="elsewhere",
            target=ModelRef(name="owner/model"),
            speculation=speculation,
            max_model_len=4096,
            max_num_seqs=4,
            kv_dtype="bfloat16",
            prefix_caching=False,
        )
    )


@pytest.mark.parametrize("kind", words.PRIORITY)
def test_every_type_with_all_its_flags_is_taken(kind: str) -> None:
    values = {"int": "2", "float": "0.5", "str": "probabilistic"}
    flags = [word for flag in words.FLAGS[kind] for word in (flag.name, values[flag.kind])]
    drafter = ["-md", "d.gguf"] if kind in words.DRAFT_TYPES else []
    text = shlex.join(["llama-server", "-m", "m.gguf", "--spec-type", kind, *drafter, *flags])
    assert judged(shlex.split(text)[1:])[0]
    accepted(LLAMA.parse(text).deployment)


@pytest.mark.parametrize("name", GOLDEN)
def test_documented_configurations_of_all_engines_are_taken(name: str) -> None:
    golden = GOLDEN[name]
    accepted(dialect(golden.engine).parse(golden.text, read=golden.files.__getitem__).deployment)


@given(deployment=deployments())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_written_is_taken(deployment: Deployment) -> None:
    accepted(deployment)


@pytest.mark.parametrize("flag", words.REMOVED)
def test_removed_flags_are_refused(flag: str) -> None:
    taken, message = judged([flag, "3"])
    assert not taken
    assert "removed" in message


@pytest.mark.parametrize(
    "flags",
    [
        ["--spec-draft-n-max=3"],
        ["--no-such-flag"],
        ["stray"],
        ["--spec-type", "draft-simpel"],
        ["--spec-draft-n-max", "-1"],
        ["--spec-ngram-simple-size-n", "0"],
        ["--spec-ngram-simple-size-m", "1025"],
        ["--spec-ngram-mod-n-match", "0"],
        ["--spec-draft-sampling", "warm"],
        ["--parallel", "0"],
        ["--cache-type-k", "fp8"],
    ],
)
def test_what_is_refused_here_is_refused_there(flags: list[str]) -> None:
    assert not judged(flags)[0]


def test_the_lists_of_flags_are_its_own() -> None:
    assert SERVER is not None
    done = subprocess.run([SERVER, "--help"], capture_output=True, text=True, check=True, timeout=60)
    listed = set(re.split(r"[\s,]+", done.stdout))
    own = {spelling for option in words.OWN for spelling in (option.name, *option.aliases)}
    assert (arguments.SWITCHES | arguments.VALUES | arguments.PAIRS | own) <= listed
