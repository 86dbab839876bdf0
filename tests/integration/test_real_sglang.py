"""The real SGLang judges what is written for it: DRAFTPROOF_SGLANG_PYTHON=/path/to/venv/bin/python (0.5.23).

One process of that Python reads all command lines with SGLang's own argument parser and, where a test asks for it,
lets it resolve them for a GPU (`ServerArgs.resolve_once`), with configurations of models in place of weights. No
engine starts and no GPU is needed. SGLang itself is real; packages of kernels and pictures that are not installed are
empty stand-ins in that process (`STAND_INS`), and the device is said to be CUDA. So what SGLang checks when it loads
weights, captures graphs or looks at the GPU is not judged.
"""

from __future__ import annotations

import os
import random
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.engines.base import Parsed, Rendered
from draftproof.configs.engines.sglang import flags
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import BatchRange, Deployment, LookUp, ModelRef, Speculation, Tree
from draftproof.core.errors import DraftproofError
from support.deployments import GOLDEN
from support.judges import models, verdicts

PYTHON = os.environ.get("DRAFTPROOF_SGLANG_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None, reason="no SGLang: name its Python in DRAFTPROOF_SGLANG_PYTHON to let it judge"
    ),
]
SGLANG = dialect("sglang")

STAND_INS = "torchvision sgl_kernel flashinfer deep_gemm cuda llguidance outlines tilelang quack"
JUDGE = """
import argparse, importlib.abc, importlib.machinery, importlib.util, json, logging, sys, types
from transformers.utils import import_utils
import_utils.is_torchvision_available()

class Nothing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name, (), {})
    def __call__(cls, *given, **named):
        return given[0] if len(given) == 1 and callable(given[0]) and not named else Nothing(cls.__name__, (), {})

class StandIn(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name, (), {})

class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return StandIn(spec.name)
    def exec_module(self, module):
        pass

names, resolving, lines = json.load(sys.stdin)
names = {name for name in names if importlib.util.find_spec(name) is None}
sys.meta_path.append(StandIns())
from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.arg_groups.overrides import resolution_result
from sglang.cli.serve import _normalize_positional_model_path
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
usual = vars(parser.parse_args(["--model-path", "x"]))
found = []
for words in lines:
    try:
        if words[:2] == ["sglang", "serve"]:
            words = _normalize_positional_model_path(words[2:])[0]
        elif words[1:3] == ["-m", "sglang.launch_server"]:
            words = words[3:]
        arguments = prepare_server_args(words)
        logging.getLogger().setLevel(logging.ERROR)
        if resolving:
            arguments.resolve_once()
            take = lambda name: resolution_result(arguments, name)
        else:
            take = lambda name: getattr(arguments, name, None)
        values = {name: take(name) for name in usual if hasattr(arguments, name)}
        found.append({name: value for name, value in values.items() if resolving or value != usual[name]})
    except SystemExit:
        found.append({"error": "its parser refuses the line"})
    except Exception as error:
        found.append({"error": f"{type(error).__name__}: {error}"[:600]})
print("VERDICTS" + json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelRef]:
    return models(tmp_path_factory.mktemp("models"), torch_dtype="bfloat16")


def judged(lines: Sequence[Sequence[str]], place: Path, resolving: bool = True) -> list[dict[str, Any]]:
    """What SGLang holds; without `resolving`, what differs from its parser's defaults. Files are in `place`."""
    assert PYTHON is not None
    found = verdicts(PYTHON, JUDGE, [STAND_INS.split(), resolving, lines], place)
    assert len(found) == len(lines)
    return found


def words_of(rendered: Rendered) -> list[str]:
    command = next(item.text for item in rendered.artifacts if item.name == "command")
    words = shlex.split(command.replace("\\\n", " "))
    while re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        del words[0]
    return words


SCHEDULE = (BatchRange(low=1, high=8, depth=3), BatchRange(low=9, high=None, depth=0))
TREE = Tree(depth=5, branching=4, num_nodes=7)
Wanted = tuple[Speculation, tuple[str | None, int | None, int | None, int | None]]


def speculations(model: Mapping[str, ModelRef]) -> list[Wanted]:
    """What is written, and the algorithm, steps, top-k and draft tokens that SGLang must make of it."""
    small, head = model["small"], model["eagle3-head"]
    trained: list[Wanted] = []
    for method, name, drafter in (
        ("eagle", "EAGLE", small),
        ("eagle3", "EAGLE3", head),
        ("mtp", "EAGLE", None),
    ):
        asked: dict[str, Any] = {"method": method, "drafter": drafter}
        trained += [
            (Speculation(**asked, depth=4), (name, 4, 1, 5)),
            (Speculation(**asked, tree=TREE), (name, 5, 4, 8)),
            (Speculation(**asked, schedule=SCHEDULE), (name, 3, 1, 4)),
            (Speculation(**asked, adaptive=True), (name, 3, 1, 4)),
            (Speculation(**asked, depth=3, adaptive=True), (name, 3, 1, 4)),
            (Speculation(**asked, depth=2, draft_sampling="probabilistic"), (name, 2, 1, 3)),
            (Speculation(**asked, depth=2, verification="block"), (name, 2, 1, 3)),
        ]
    return [
        (Speculation(), (None, None, None, None)),
        (Speculation(method="ngram", depth=7), ("NGRAM", 8, 1, 8)),
        (Speculation(method="ngram"), ("NGRAM", 1, 10, 12)),
        (Speculation(method="ngram", tree=Tree(branching=4, num_nodes=15), lookup=LookUp(max_tree_depth=12)),
         ("NGRAM", 4, 4, 16)),
        (Speculation(method="draft_model", depth=3, drafter=small, draft_kv_dtype="fp8_e4m3"),
         ("STANDALONE", 3, 1, 4)),
        (Speculation(method="draft_model", drafter=small), ("STANDALONE", 3, 1, 4)),
        (Speculation(method="draft_model", drafter=small, tree=TREE), ("STANDALONE", 5, 4, 8)),
        (Speculation(method="dflash", depth=15, drafter=small), ("DFLASH", 1, 1, 16)),
        (Speculation(method="dflash", depth=7, drafter=small, verification="block"), ("DFLASH", 1, 1, 8)),
        (Speculation(method="dspark", depth=5, drafter=small), ("DSPARK", 1, 1, 6)),
        (Speculation(method="dspark", depth=5, drafter=small, verification="block"), ("DSPARK", 1, 1, 6)),
        *trained,
    ]  # fmt: skip


FIELDS = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")


def test_what_is_written_is_taken_and_means_the_same(model: Mapping[str, ModelRef], tmp_path: Path) -> None:
    wanted, lines = speculations(model), []
    for index, (speculation, _) in enumerate(wanted):
        deployment = Deployment(
            engine="elsewhere",
            target=model["target"],
            speculation=speculation,
            dtype="bfloat16",
            max_model_len=2048,
            max_num_seqs=16,
            enforce_eager=bool(index % 2),
            prefix_caching=not index % 3,
        )
        rendered = SGLANG.render(deployment)
        assert rendered.artifacts, (speculation, rendered.notes)
        words = words_of(rendered)
        for artifact in rendered.artifacts[1:]:
            (tmp_path / f"{index}-{artifact.name}").write_text(artifact.text, encoding="utf-8")
            words = [f"{index}-{artifact.name}" if word == artifact.name else word for word in words]
        lines.append([*words, "--device", "cuda"])
    for (_, meaning), line, verdict in zip(wanted, lines, judged(lines, tmp_path), strict=True):
        assert "error" not in verdict, (verdict, line)
        assert tuple(verdict[f"speculative_{name}"] for name in FIELDS) == meaning, line
        assert (verdict["context_length"], verdict["max_running_requests"]) == (2048, 16)


def test_documented_configurations_of_all_engines_are_taken_by_its_parser(tmp_path: Path) -> None:
    lines = []
    for golden in GOLDEN.values():
        deployment = dialect(golden.engine).parse(golden.text, read=golden.files.__getitem__).deployment
        rendered = SGLANG.render(deployment)
        if rendered.artifacts:
            line = words_of(rendered)
            lines.append(line if "--model-path" in line else [*line, "--model-path", "x"])
    assert len(lines) > 10
    for line, verdict in zip(lines, judged(lines, tmp_path, resolving=False), strict=True):
        assert "error" not in verdict, line


REFUSED_HERE = (
    "--speculative-num-draft-token-count 4",
    "--speculative-num 3",
    "--speculative-algorithm NGRAM --speculative-num-draft-tokens x",
    "--speculative-algorithm MEDUSA",
    "--speculative-draft-load-format zip",
    "--speculative-attention-mode both",
    "--speculative-moe-a2a-backend mail",
    "--cuda-graph-backend-decode tc_piecewise",
    "--kv-cache-dtype int4",
    "--dtype int8",
    "--speculative-adaptive=true",
    "--context-length 1.5Ki",
    "--context-length 32K",
    "--pp 2",
    "--quant fp8",
    "--tp-size two",
    "--speculative-num-steps",
    "a-model",
)
REMARKED = (
    "--speculative-algorithm NGRAM --cuda-graph-max-bs 8",
    "--speculative-algorithm DFLASH --speculative-dflash-draft-window-size 64",
    "--speculative-algorithm NGRAM --speculative-ngram-branch-length 4",
    "--speculative-algorithm NGRAM --speculative-ngram-min-match-window-size 1",
    "--speculative-algorithm NGRAM --speculative-ngram-max-match-window-size 4",
    "--speculative-algorithm DSPARK --speculative-dspark-confidence-threshold 0.5",
    "--speculative-algorithm DFLASH",
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path small --speculative-eagle-topk 4",
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path small --speculative-num-draft-tokens 4",
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path small --speculative-num-steps 4",
    "--speculative-algorithm DFLASH --speculative-draft-model-path small --speculative-dflash-block-size 8 "
    "--speculative-num-draft-tokens 9",
    "--speculative-algorithm DSPARK --speculative-draft-model-path small --speculative-dspark-block-size 8 "
    "--speculative-num-draft-tokens 8",
    "--speculative-algorithm STANDALONE --speculative-draft-model-path small --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-use-rejection-sampling",
    "--no-such-flag",
    "-tp 2",
)


def test_what_is_refused_here_is_refused_there(model: Mapping[str, ModelRef], tmp_path: Path) -> None:
    paths = {name: reference.name for name, reference in model.items()}
    lines = []
    for text in (*REFUSED_HERE, *REMARKED):
        words = ["--model-path", paths["target"], *(paths.get(word, word) for word in text.split())]
        text_here = shlex.join(words)
        if text in REFUSED_HERE:
            with pytest.raises(DraftproofError, match="DP111"):
                SGLANG.parse(text_here)
        else:
            effects = {remark.effect for remark in SGLANG.parse(text_here).remarks}
            assert effects & {"refused", "removed", "unknown", "stray"}, (text_here, effects)
        lines.append([*words, "--device", "cuda"])
    for line, verdict in zip(lines, judged(lines, tmp_path), strict=True):
        assert "error" in verdict, line


REWRITTEN = {
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 9": (3, 1, 4),
    "--speculative-algorithm NGRAM --speculative-eagle-topk 3 --speculative-ngram-max-bfs-breadth 2": (6, 2, 12),
    "--speculative-algorithm DFLASH --speculative-draft-model-path small --speculative-dflash-block-size 8 "
    "--speculative-num-steps 3 --speculative-eagle-topk 2": (1, 1, 8),
    "--speculative-algorithm DSPARK --speculative-draft-model-path small --speculative-dspark-block-size 8 "
    "--speculative-num-steps 3 --speculative-eagle-topk 2": (1, 1, 9),
}  # fmt: skip


def test_what_is_said_to_be_rewritten_is_rewritten(model: Mapping[str, ModelRef], tmp_path: Path) -> None:
    paths = {name: reference.name for name, reference in model.items()}
    lines = []
    for text in REWRITTEN:
        words = ["--model-path", paths["target"], *(paths.get(word, word) for word in text.split())]
        assert "rewritten" in {remark.effect for remark in SGLANG.parse(shlex.join(words)).remarks}, text
        lines.append([*words, "--device", "cuda"])
    for line, meaning, verdict in zip(lines, REWRITTEN.values(), judged(lines, tmp_path), strict=True):
        assert tuple(verdict.get(f"speculative_{name}") for name in FIELDS[1:]) == meaning, (line, verdict)


SAME = {
    "target": "model_path", "dtype": "dtype", "kv_dtype": "kv_cache_dtype", "max_model_len": "context_length",
    "max_num_seqs": "max_running_requests", "memory_fraction": "mem_fraction_static", "tensor_parallel": "tp_size",
    "pipeline_parallel": "pp_size", "data_parallel": "dp_size", "block_size": "page_size",
    "graph_max_batch": "cuda_graph_max_bs_decode",
}  # fmt: skip
"""Neutral field → what SGLang's arguments call it."""
VALUES: dict[str, list[str]] = {
    "int": ["1", "7", "-1", "0", "12", " 4", "1_0", "1.0", "x"],
    "float": ["0.5", "1", "-0.5", ".9", "1e-1", "x"],
    "str": ["name", "a/b", "-x", "- y", "-5", "8k", "4Ki", "1.5k", "100"],
    "flag": [],
}


def drawn(rng: random.Random) -> list[str]:
    """A command of flags as people and scripts write them: whole, cut short, joined, repeated, in any order."""
    words = ["--model-path", "target"] if rng.random() < 0.7 else ["sglang", "serve", "target"]
    for _ in range(rng.randrange(1, 5)):
        spelling = rng.choice(sorted(flags.ALL))
        if rng.random() < 0.8:
            spelling = rng.choice(sorted(option.name for option in flags.DIRECT.values()))
        option = flags.ALL[spelling]
        if rng.random() < 0.5:
            spelling = spelling[: rng.randrange(3, len(spelling) + 1)]
        value = rng.choice([*option.choices, *VALUES.get(option.kind, VALUES["str"]), "x"])
        if option.kind == "flag":
            words.append(spelling)
        elif rng.random() < 0.3:
            words.append(f"{spelling}={value}")
        else:
            words += [spelling, value]
    return words


def read_here(line: Sequence[str]) -> Parsed | None:
    """None where it is refused."""
    try:
        return SGLANG.parse(shlex.join(line))
    except DraftproofError:
        return None


def test_values_are_read_as_its_parser_reads_them(tmp_path: Path) -> None:
    """Whatever it accepts is accepted here, with the same values; what it refuses is refused or remarked here."""
    rng = random.Random(20261130)
    lines = [drawn(rng) for _ in range(1500)]
    taken = 0
    for line, verdict in zip(lines, judged(lines, tmp_path, resolving=False), strict=True):
        parsed = read_here(line)
        if parsed is None:
            assert "error" in verdict, (line, verdict)
            continue
        if "error" in verdict:
            told = {remark.effect for remark in parsed.remarks} & {"removed", "unknown"}
            assert told or parsed.deployment.rest, (line, verdict)  # values of the rest are not judged
            continue
        taken += 1
        for path, name in SAME.items():
            value: Any = getattr(parsed.deployment, path)
            value = value.name if isinstance(value, ModelRef) else value
            theirs = verdict.get(name)
            theirs = flags.SAME_DTYPE.get(str(theirs), theirs) if name == "dtype" else theirs
            if theirs is not None:
                assert value == theirs, (line, path)
    assert taken > 200
