"""One deployment in every form in which people keep it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Deployed:
    """`program` and `arguments` as the image's own start has them; `variables` of the process."""

    engine: str
    version: str
    image: str
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        return [*self.program, *self.arguments]

    @property
    def line(self) -> str:
        return shlex.join(self.command)

    @property
    def assignments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.variables.items()]


DEPLOYED: Mapping[str, Deployed] = {
    item.engine: item
    for item in (
        Deployed(
            "vllm", "0.33.0", "vllm/vllm-openai:v0.33.0", ("vllm", "serve"),
            ("Qwen/Qwen3-8B", "--speculative-config", json.dumps({
                "method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4,
                "rejection_sample_method": "block",
            }), "--pipeline-parallel-size", "2"),
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
        ),
        Deployed(
            "sglang", "0.5.23", "lmsysorg/sglang:v0.5.23-cu129", ("python3", "-m", "sglang.launch_server"),
            ("--model-path", "Qwen/Qwen3-8B", "--speculative-algorithm", "EAGLE3",
             "--speculative-draft-model-path", "AngelSlim/Qwen3-8B_eagle3", "--speculative-num-draft-tokens", "4"),
            {"SGLANG_ENABLE_SPEC_V2": "1"},
        ),
        Deployed(
            "llamacpp", "11434", "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434", ("llama-server",),
            ("-m", "/models/large.gguf", "-md", "/models/small.gguf", "--draft-max", "16"), {"GGML_X": "a b"},
        ),
        Deployed(
            "trtllm", "1.3.0rc1", "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc1", ("trtllm-serve",),
            ("Qwen/Qwen3-8B", "--config", "missing.yaml", "--tp_size", "2"), {"TLLM_X": "1"},
        ),
    )
}  # fmt: skip
"""Engine → a deployment in which something is wrong."""


def _docker(item: Deployed, *options: str) -> str:
    variables = [word for pair in item.assignments for word in ("-e", pair)]
    return shlex.join(["docker", "run", "--gpus", "all", *variables, *options, item.image, *item.command])


def _container(item: Deployed) -> dict[str, object]:
    return {
        "name": "engine",
        "image": item.image,
        "command": [*item.program],
        "args": [*item.arguments],
        "env": [{"name": name, "value": value} for name, value in item.variables.items()],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }


def _deployment(item: Deployed) -> dict[str, object]:
    sidecar = {"name": "metrics", "image": "prom/exporter:v1", "args": ["--port", "1"]}
    spec = {"containers": [sidecar, _container(item)], "initContainers": [sidecar]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": spec}}}


def _service(item: Deployed, command: object, environment: object) -> str:
    service = {"image": item.image, "entrypoint": [], "command": command, "environment": environment}
    proxy = {"image": "nginx:1.27", "command": "nginx -g 'daemon off;'"}
    return yaml.safe_dump({"services": {"proxy": proxy, "engine": {**service, "ports": ["8000:8000"]}}})


def _unit(item: Deployed, line: str) -> str:
    said = "".join(f'Environment="{pair}"\n' for pair in item.assignments)
    return f"[Unit]\nAfter=x\n\n[Service]\n{said}ExecStart={line}\nRestart=always\n"


def _broken(item: Deployed, end: str) -> str:
    return f" \\{end}    ".join([*map(shlex.quote, item.command)])


def _dockerfile(item: Deployed, start: str) -> str:
    said = "".join(
        f"ENV {shlex.quote(pair)}\n" if " " not in pair else _old(pair) for pair in item.assignments
    )
    return (
        f"# syntax=docker/dockerfile:1\nFROM python:3.12 AS build\nFROM {item.image}\nRUN ls\n{said}{start}\n"
    )


def _old(pair: str) -> str:
    return "ENV {} {}\n".format(*pair.split("=", 1))


FORMS: Mapping[str, Callable[[Deployed], str]] = {
    "command": lambda item: f"{shlex.join(['env', *item.assignments])} {item.line}",
    "prefixes": lambda item: (
        f"{shlex.join(['sudo', 'env', *item.assignments])} timeout -k 5 3600 numactl --cpunodebind 0 taskset -c 0-7 "
        f"uv run --no-sync {item.line}"
    ),
    "mpirun": lambda item: (
        f"mpirun -n 2 --allow-run-as-root {' '.join('-x ' + shlex.quote(pair) for pair in item.assignments)} "
        f"trtllm-llmapi-launch {item.line}"
    ),
    "script": lambda item: (
        "#!/bin/bash\nset -euo pipefail\n"
        + "".join(f"export {shlex.quote(pair)}\n" for pair in item.assignments)
        + f"cd /srv && mkdir -p log\nexec {item.line} > log 2>&1\n"
    ),
    "docker run": _docker,
    "docker run with a shell": lambda item: shlex.join(
        ["sudo", "podman", "run", "-itd", "--rm", *(f"--env={pair}" for pair in item.assignments), item.image, "bash",
         "-c", item.line]
    ),
    "container": lambda item: yaml.safe_dump(_container(item), sort_keys=False),
    "container as an item": lambda item: yaml.safe_dump([_container(item)], sort_keys=False),
    "Deployment": lambda item: yaml.safe_dump(_deployment(item), sort_keys=False),
    "Deployment and Service": lambda item: (
        f"kind: Service\nspec:\n  ports: [{{port: 80}}]\n---\n{yaml.safe_dump(_deployment(item))}"
    ),
    "Compose": lambda item: _service(item, item.command, dict(item.variables)),
    "Compose with texts": lambda item: _service(item, item.line, item.assignments),
    "unit": lambda item: _unit(item, item.line),
    "unit with CRLF": lambda item: _unit(item, _broken(item, "\n")).replace("\n", "\r\n"),
    "Dockerfile": lambda item: _dockerfile(
        item, f"ENTRYPOINT {json.dumps(item.program)}\nCMD {json.dumps(item.arguments)}"
    ),
    "Dockerfile with a shell": lambda item: _dockerfile(item, f"CMD {item.line}"),
}  # fmt: skip
WITH_IMAGE = frozenset(
    name for name in FORMS if name.startswith(("docker", "container", "Deploy", "Compose", "Dockerfile"))
)
"""Forms that tell the version."""
