"""The real vLLM judges what is written for it: DRAFTPROOF_VLLM_PYTHON=/path/to/venv/bin/python (0.32.0 or later).

One process of that Python reads all command lines with vLLM's own parser and builds its engine configuration, with tiny
configurations of models in place of weights. No engine starts.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.registry import dialect
from draftproof.configs.speculation import BatchRange, Deployment, LookUp, ModelRef, Speculation
from support.deployments import GOLDEN
from support.judges import VLLM_REFUSES, models, verdicts

PYTHON = os.environ.get("DRAFTPROOF_VLLM_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None, reason="no vLLM: name its Python in DRAFTPROOF_VLLM_PYTHON to let it judge"
    ),
]
VLLM = dialect("vllm")

JUDGE = """
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
found = []
build, lines = json.load(sys.stdin)
for words in lines:
    try:
        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
        arguments.model = getattr(arguments, "model_tag", None) or arguments.model
        if not build:
            found.append({})
            continue
        config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config().speculative_config
        found.append({"method": config and config.method, "depth": config and config.num_speculative_tokens})
    except SystemExit:
        found.append({"error": "its parser refuses the line"})
    except Exception as error:
        found.append({"error": f"{type(error).__name__}: {error}"[:600]})
print("VERDICTS" + json.dumps(found))
"""

NGRAM = Speculation(method="ngram", depth=3)


def speculations(model: dict[str, ModelRef]) -> list[tuple[Speculation, str, int]]:
    """What is written, and the method and K that vLLM must make of it."""
    small = Speculation(method="draft_model", depth=5, drafter=model["small"])
    schedule = (BatchRange(low=1, high=8, depth=3), BatchRange(low=9, high=None, depth=0))
    return [
        (NGRAM, "ngram", 3),
        (Speculation(method="ngram", depth=3, lookup=LookUp(min_ngram=2, max_ngram=4)), "ngram", 3),
        (Speculation(method="ngram", depth=3, schedule=schedule), "ngram", 3),
        (Speculation(method="ngram", depth=3, verification="block"), "ngram", 3),
        (Speculation(method="ngram", depth=3, verification="standard", adaptive=False), "ngram", 3),
        (Speculation(method="suffix"), "suffix", 24),
        (Speculation(method="suffix", depth=7, lookup=LookUp(max_tree_depth=12, max_cached_requests=0,
                     max_spec_factor=2.0, min_token_prob=0.2)), "suffix", 7),
        (small, "draft_model", 5),
        (Speculation(method="draft_model", depth=2, drafter=model["small"], draft_sampling="probabilistic",
                     draft_tensor_parallel=1, draft_max_model_len=256, draft_kv_dtype="auto"), "draft_model", 2),
        (Speculation(method="eagle", depth=2, drafter=model["eagle-head"]), "eagle", 2),
        (Speculation(method="eagle3", depth=4, drafter=model["eagle3-head"], draft_sampling="greedy"), "eagle3", 4),
    ]  # fmt: skip


def judged(lines: list[list[str]], build: bool = True) -> list[dict[str, Any]]:
    """Verdicts; with `build` False of the parser alone."""
    assert PYTHON is not None
    found = verdicts(PYTHON, JUDGE, [build, lines])
    assert len(found) == len(lines)
    return found


def test_what_is_written_is_taken_and_means_the_same(tmp_path: Path) -> None:
    model = models(tmp_path, max_position_embeddings=512)
    wanted = speculations(model)
    lines = []
    for speculation, _, _ in wanted:
        deployment = Deployment(
            engine="elsewhere",
            target=model["target"],
            speculation=speculation,
            dtype="float32",
            max_model_len=256,
            max_num_seqs=16,
            prefix_caching=False,
            enforce_eager=True,
        )
        rendered = VLLM.render(deployment)
        line = shlex.split(rendered.artifacts[0].text.replace("\\\n", " "))
        assert line[:2] == ["vllm", "serve"]
        lines.append([*line[2:], "--skip-tokenizer-init"])
    for (_, method, depth), line, verdict in zip(wanted, lines, judged(lines), strict=True):
        assert verdict == {"method": method, "depth": depth}, line


def test_documented_configurations_of_all_engines_are_taken_by_its_parser() -> None:
    lines = []
    for golden in GOLDEN.values():
        deployment = dialect(golden.engine).parse(golden.text, read=golden.files.__getitem__).deployment
        rendered = VLLM.render(deployment)
        if rendered.artifacts and rendered.artifacts[0].name == "command":
            words = shlex.split(rendered.artifacts[0].text.replace("\\\n", " "))
            if "serve" in words:
                lines.append(words[words.index("serve") + 1 :])
    assert len(lines) > 3
    for line, verdict in zip(lines, judged(lines, build=False), strict=True):
        assert verdict == {}, line


REFUSED_HERE = [
    '{"method": "ngram", "num_speculative_tokens": 0}',
    '{"method": "ngram", "num_spec_tokens": 3}',
    '{"method": "eagle4", "model": "x", "num_speculative_tokens": 3}',
    '{"num_speculative_tokens": 3}',
    '{"method": "eagle3", "num_speculative_tokens": 3}',
    '{"method": "ngram", "num_speculative_tokens": 3, "tensor_parallel_size": 2}',
    '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2}',
    '{"method": "ngram", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true}',
    '{"method": "suffix", "suffix_decoding_min_token_prob": 1.5}',
    '{"method": "ngram", "num_speculative_tokens": 3, "rejection_sample_method": "typical"}',
]
REMOVED = [
    ["--speculative-model", "small", "--num-speculative-tokens", "3"],
    ["--num-speculative-tokens", "3"],
    ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 8}'],
    [
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3, "speculative_token_tree": "[(0,)]"}',
    ],
    [
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3, "rejection_sample_method": "strict"}',
    ],
    ["--spec-tokens", "3", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'],
]
NEEDED = ['{"method": "ngram"}', '{"method": "mtp"}', '{"method": "eagle3", "model": "eagle3-head"}']
"""What this dialect writes only with a depth."""


def test_what_is_refused_here_is_refused_there(tmp_path: Path) -> None:
    model = models(tmp_path, max_position_embeddings=512)
    target, small = model["target"].name, model["small"].name
    usual = {"method": "ngram", "num_speculative_tokens": 3}
    both = [json.dumps(usual | keys | ({"model": small} if "model" in keys else {})) for keys in VLLM_REFUSES]
    configs = [["--speculative-config", text] for text in (*REFUSED_HERE, *NEEDED, *both)]
    lines = [[target, *flags, "--skip-tokenizer-init"] for flags in (*configs, *REMOVED)]
    for line, verdict in zip(lines, judged(lines), strict=True):
        assert "error" in verdict, line


SPELLINGS = [
    ["-sc.method", "ngram", "-sc.num_speculative_tokens", "3"],
    ["--speculative.method", "ngram", "--speculative.num_speculative_tokens=3"],
    ["--speculative", '{"method": "ngram", "num_speculative_tokens": 3}'],
    ["--spec-method", "ngram", "--spec-tokens", "٣"],
]


def test_spellings_that_are_read_here_are_read_there(tmp_path: Path) -> None:
    target = models(tmp_path)["target"].name
    lines = [[target, *flags, "--skip-tokenizer-init"] for flags in SPELLINGS]
    for line, verdict in zip(lines, judged(lines), strict=True):
        assert verdict == {"method": "ngram", "depth": 3}, line
        speculation = VLLM.parse(" ".join(["vllm serve", *map(shlex.quote, line)])).deployment.speculation
        assert (speculation.method, speculation.depth) == ("ngram", 3), line
