"""What users ran into, each as a small deployment that `draftproof check` is run on: the mapping of faults to rules.

A row is one kind of fault that was reported in public trackers. Its scenes show it in files, headers, a command or
requests; `unseen` says what is needed where none of them can tell, or what they cannot tell beside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.rules.building import QWEN, TOKENS, Checkpoint
from support.rules.eagle import D2T, H, V, eagle, eagle3, nested
from support.rules.econ import BIG, MIXTURE, SMALL
from support.tiny_views import write_view


@dataclass(frozen=True)
class Scene:
    """`arguments` of check, with {target}, {draft} and {requests} for the paths; `codes` that must be found. Warnings
    and errors beside them are a false alarm."""

    codes: tuple[str, ...]
    arguments: tuple[str, ...]
    target: Checkpoint = field(default_factory=lambda: TARGET)
    draft: Checkpoint | None = None
    requests: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> list[str]:
        """Writes the deployment; returns the arguments."""
        paths = {"folder": str(folder)}
        for name, checkpoint in (("target", self.target), ("draft", self.draft)):
            if checkpoint is not None:
                paths[name] = str(
                    write_view(
                        folder / name,
                        checkpoint.config,
                        tensors=checkpoint.tensors,
                        values=checkpoint.values,
                        tokens=checkpoint.tokens,
                        special=checkpoint.special,
                        documents=checkpoint.documents,
                    )
                )
        for name, text in self.files.items():
            (folder / name).write_text(_filled(text, paths), encoding="utf-8")
        if self.requests:
            lines = [
                json.dumps({"messages": [{"role": "user", "content": "a"}], **request})
                for request in self.requests
            ]
            (folder / "requests.jsonl").write_text("\n".join(lines), encoding="utf-8")
            paths["requests"] = str(folder / "requests.jsonl")
        return [_filled(argument, paths) for argument in self.arguments]


def _filled(text: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        text = text.replace("{" + name + "}", path)
    return text


@dataclass(frozen=True)
class Row:
    fault: str
    scenes: tuple[Scene, ...] = ()
    unseen: str = ""

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(code for scene in self.scenes for code in scene.codes)


def _tensors(layers: int, rows: int = V, hidden: int = H, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"model.embed_tokens.weight": (rows, hidden), "lm_head.weight": (rows, hidden)}
    for layer in range(layers):
        found[f"model.layers.{layer}.self_attn.q_proj.weight"] = (hidden, hidden)
    return {**found, **more}


def _model(config: Mapping[str, Any], **fields: Any) -> Checkpoint:
    layers, rows, hidden = (config[key] for key in ("num_hidden_layers", "vocab_size", "hidden_size"))
    return Checkpoint(config, tensors=_tensors(layers, rows, hidden, **fields.pop("more", {})), **fields)


TARGET = _model({**QWEN, "num_hidden_layers": 8})
LAYERS = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
"""Those of the default, so that nothing else is said of them."""


def head(**changes: Any) -> Checkpoint:
    return eagle3(**{**LAYERS, "speculators_config": {"verifier": {"name_or_path": "target"}}, **changes})


def vllm(config: str, before: str = "", after: str = "", version: str = "0.33.0") -> tuple[str, ...]:
    command = f"{before}vllm serve {{target}} --speculative-config '{config}' {after}"
    return ("--command", command, "--engine", f"vllm=={version}")


def sglang(flags: str) -> tuple[str, ...]:
    command = f"python3 -m sglang.launch_server --model-path {{target}} --max-running-requests 32 {flags}"
    return ("--command", command, "--engine", "sglang==0.5.23")


def trtllm(text: str, version: str = "1.3.0") -> dict[str, Any]:
    return {
        "arguments": ("{target}", "--config", "{folder}/speculative.yaml", "--engine", f"trtllm=={version}"),
        "files": {
            "speculative.yaml": "speculative_config:\n" + "".join(f"  {line}\n" for line in text.split("; "))
        },
    }


EAGLE3 = '{"method": "eagle3", "model": "{draft}", "num_speculative_tokens": 3}'
MTP = '{"method": "mtp", "num_speculative_tokens": 1}'
NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
PAIR = '{"method": "draft_model", "model": "{draft}", "num_speculative_tokens": 2}'
SCHEDULED = PAIR.replace(
    '"method"', '"num_speculative_tokens_per_batch_size": [[1, 2, 2], [3, 16, 0]], "method"'
)
STEPS = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
WITH_HEAD = f"--speculative-draft-model-path {{draft}} {STEPS}"
ONE_MTP = _model(
    {**QWEN, "num_hidden_layers": 8, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1},
    more={"mtp.layers.0.mlp.gate_proj.weight": (128, H), "mtp.fc.weight": (H, 2 * H)},
)
WITHOUT_MTP = _model(
    {**QWEN, "num_hidden_layers": 8, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1}
)
QUANTISED = Checkpoint(
    {
        **QWEN, "num_hidden_layers": 8, "model_type": "deepseek_v3", "num_nextn_predict_layers": 1,
        "quantization_config": {"quant_method": "gptq", "bits": 4},
    },
    tensors={
        **{f"model.layers.{layer}.mlp.gate_proj.qweight": ("I32", (8, H)) for layer in range(8)},
        "model.layers.8.mlp.gate_proj.weight": (128, H), "model.layers.8.eh_proj.weight": (H, 2 * H),
        "model.layers.8.enorm.weight": (H,),
    },
)  # fmt: skip
SMALLER = _model({**QWEN, "num_hidden_layers": 1})
PADDED = _model({**QWEN, "num_hidden_layers": 1, "vocab_size": 20})
OTHER_IDS = _model({**QWEN, "num_hidden_layers": 1}, tokens=(*TOKENS[:6], TOKENS[7], TOKENS[6], *TOKENS[8:]))
OTHER_END = _model({**QWEN, "num_hidden_layers": 1, "eos_token_id": 5})
OTHER_TOKENS = _model(
    {**QWEN, "num_hidden_layers": 1},
    tokens=(*TOKENS[:8], *(f"Ġother{number}" for number in range(8))),
    documents={"tokenizer_config.json": {"eos_token": "<|end|>"}},
)


def _asking(parameter: str, scene: dict[str, Any]) -> dict[str, Any]:
    return {**scene, "arguments": (*scene["arguments"], "--require", parameter)}


ON_SGLANG = sglang(f"--speculative-algorithm EAGLE3 {WITH_HEAD}")
SGLANG_NGRAM = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4"
OLD_MTP, NEW_MTP = (trtllm("decoding_type: MTP; max_draft_len: 1", version) for version in ("1.2.0", "1.3.0"))
SPLIT = EAGLE3.replace('"method"', '"draft_tensor_parallel_size": 2, "method"')
SHORT = NGRAM.replace("max", "min").replace("4", "2")
PROBABILISTIC = PAIR.replace('"method"', '"draft_sample_method": "probabilistic", "method"')
PARTIAL = _model({**QWEN, "num_hidden_layers": 8, "partial_rotary_factor": 0.5})
LARGE, LARGE_DRAFT = (_model({**config, "vocab_size": 150_000}) for config in (BIG, QWEN))


def _templated(checkpoint: Checkpoint, text: str) -> Checkpoint:
    return Checkpoint(
        checkpoint.config,
        tensors=checkpoint.tensors,
        documents={"tokenizer_config.json": {"chat_template": text}},
    )


ROWS = (
    Row("vocab_size differs by padding alone", (
        Scene(("VOCAB-01", "VOCAB-02"), vllm(PAIR), draft=PADDED),
    )),
    Row("an EAGLE-3 head under SGLang's EAGLE: accept length of exactly 1.00", (
        Scene(("EAGLE-01",), sglang(f"--speculative-algorithm EAGLE {WITH_HEAD}"), draft=head()),
        Scene(("EAGLE-05",), ON_SGLANG, draft=head(width=3 * 96)),
    )),
    Row("captured layers off by one in the engine's code", (
        Scene(("EAGLE-12",), vllm(EAGLE3), draft=head(eagle_aux_hidden_state_layer_ids=None)),
        Scene(("EAGLE-15",), vllm(EAGLE3), draft=head(eagle_aux_hidden_state_layer_ids=None, **nested(1, 3, 5))),
    ), "the head's list is right, the code is wrong: acceptance of the first token against the card shows it"),
    Row("each head generation needs other captured layers and norms", (
        Scene(("EAGLE-11",), vllm(EAGLE3), draft=head(eagle_aux_hidden_state_layer_ids=[2, 16, 29])),
        Scene(("EAGLE-12",), vllm(EAGLE3), draft=head(eagle_aux_hidden_state_layer_ids=None)),
        Scene(("EAGLE-13",), vllm(EAGLE3), draft=head(extra={"input_norm.weight": (3 * H,)})),
        Scene(("EAGLE-15",), ON_SGLANG,
              draft=head(eagle_aux_hidden_state_layer_ids=[2, 4, 6])),
        Scene(("EAGLE-16",), ON_SGLANG, draft=head(norm_before_residual=True)),
    )),
    Row("a dictionary override of rope does not reach the drafter", (
        Scene(("CONTEXT-02",), vllm(
            MTP, after="""--hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}'"""), ONE_MTP),
    )),
    Row("a head with 2048 positions under longer prompts", (
        Scene(("CONTEXT-01",), (*vllm(EAGLE3, after="--max-model-len 4096"), "--traffic", "{requests}"),
              draft=head(max_position_embeddings=2048),
              requests=({"messages": [{"role": "user", "content": "word " * 2400}]}, {})),
    )),
    Row("MTP weights in 16 bits under the target's quantisation", (
        Scene(("MTP-03",), vllm(MTP), QUANTISED),
    )),
    Row("MTP tensors dropped by merging or quantising", (
        Scene(("MTP-01",), vllm(MTP), WITHOUT_MTP),
        Scene(("MTP-02",), vllm(MTP)),
    )),
    Row("no reason why a pair is rejected; first differing token", (
        Scene(("VOCAB-03",), ("{target}", "--draft", "{draft}", "--command",
              "llama-server -m t.gguf -md d.gguf --spec-type draft-simple"), draft=OTHER_IDS),
        Scene(("VOCAB-05",), vllm(PAIR), draft=OTHER_END),
        Scene(("COMBO-05",), ("--engine", "llamacpp==7000", "--command",
              "llama-server -m m.gguf --mmproj p.gguf --spec-type ngram-simple")),
    )),
    Row("MTP written for EAGLE; Eagle3 served as Eagle", (
        Scene(("EAGLE-02",), draft=eagle(),
              **trtllm("decoding_type: Eagle3; max_draft_len: 3; speculative_model: {draft}")),
        Scene(("EAGLE-03",), sglang(f"--speculative-algorithm NEXTN {WITH_HEAD}"), draft=head()),
    )),
    Row("a schedule that the scheduler alone reads", (
        Scene(("FLAG-09",), vllm(SCHEDULED), draft=SMALLER),
    )),
    Row("different vocabularies: acceptance falls with the overlap; no unknown token", (
        Scene(("VOCAB-04", "VOCAB-08"), vllm(PAIR.replace('"method"', '"use_heterogeneous_vocab": true, "method"')),
              draft=OTHER_TOKENS),
    )),
    Row("greedy text differs in the last bits of logits", unseen="numerics of kernels: an audit with the target's gap"),
    Row("caches that cannot be trimmed", (
        Scene(("CACHE-01",), ("{target}", "--command", "model.generate(**inputs, prompt_lookup_num_tokens=3)",
                              "--engine", "transformers"), ONE_MTP),
        Scene(("CACHE-02",), ("{target}", "--command", "llama-server -m m.gguf --spec-type ngram-simple"),
              _model({**QWEN, "num_hidden_layers": 8, "sliding_window": 1024})),
    )),
    Row("min_p and logit_bias answered with 400", (
        Scene(("REQUEST-01",), (*vllm(NGRAM), "--traffic", "{requests}"),
              requests=({"min_p": 0.1}, {"logit_bias": {"1": 2}})),
    )),
    Row("penalties ignored", (
        Scene(("REQUEST-02",), **_asking("repetition_penalty", OLD_MTP), target=ONE_MTP),
        Scene(("REQUEST-01",), **_asking("repetition_penalty", NEW_MTP), target=ONE_MTP),
        Scene(("REQUEST-03",), (*vllm(EAGLE3), "--require", "frequency_penalty"), draft=head()),
    )),
    Row("temperature ignored", (
        Scene(("REQUEST-02",), **_asking("temperature", OLD_MTP), target=ONE_MTP),
    )),
    Row("seeds ignored", (Scene(("REQUEST-03",), (*vllm(NGRAM), "--require", "seed")),)),
    Row("stop strings inside an accepted run", (Scene(("REQUEST-03",), (*vllm(NGRAM), "--require", "stop")),)),
    Row("usage counts more tokens than were sent", unseen="a running server: invariants of usage in an audit"),
    Row("structured output breaks when thinking ends inside a draft", (
        Scene(("REQUEST-03",), (*vllm(NGRAM), "--require", "json_schema")),
    )),
    Row("streaming parsers lose tool arguments", (Scene(("REQUEST-03",), (*vllm(NGRAM), "--require", "tools")),)),
    Row("logprobs crash or cover the first token of a run", (
        Scene(("REQUEST-01",), **_asking("logprobs", NEW_MTP), target=ONE_MTP),
        Scene(("REQUEST-03",), (*sglang(SGLANG_NGRAM),
                                "--require", "logprobs")),
    )),
    Row("degenerate text: quantised cache, short look-ups with tools", (
        Scene(("CACHE-03",), vllm(NGRAM, after="--kv-cache-dtype turboquant")),
        Scene(("REQUEST-05", "REQUEST-03"), (*vllm(SHORT), "--require", "tools")),
    )),
    Row("positions of the cache after a rejection", unseen="a fault in the engine's code: compare with plain decoding"),
    Row("speculation loses at large batches", (
        Scene(("ECON-04",), vllm(NGRAM, after="--max-num-seqs 600")),
    )),
    Row("a drafter as large as the active parameters; experts per verification", (
        Scene(("ECON-01",), vllm(PAIR), _model(SMALL), _model(BIG)),
        Scene(("ECON-02", "ECON-03"), vllm(PAIR), Checkpoint(MIXTURE), _model(BIG)),
    )),
    Row("slower than plainly at batch 32", (
        Scene(("ECON-04",), vllm(NGRAM, after="--max-num-seqs 128")),
        Scene(("CONFIG-04",), vllm(SPLIT, after="-tp 4"), draft=head()),
    )),
    Row("acceptance falls and verification rises with context", (
        Scene(("CONTEXT-01",), vllm(EAGLE3, after="--max-model-len 4096"), draft=head(max_position_embeddings=2048)),
    ), "time over context has to be measured"),
    Row("a fixed cost per step of the backend", unseen="time: draft, verify and coordination have to be measured"),
    Row("fewer hits in the cache of prefixes", (Scene(("CACHE-04",), vllm(MTP), ONE_MTP),)),
    Row("drift over hours, regressions between releases", (
        Scene(("VERSION-01",), vllm(NGRAM, version="0.34.0")),
    ), "a stored baseline shows it"),
    Row("memory at launch: drafter not budgeted", (
        Scene(("MEMORY-04",), ("--command", "python3 -m sglang.launch_server --model-path {target} "
              "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "--engine", "sglang==0.5.23")),
    ), "bytes against a device are `plan`'s"),
    Row("fewer cache blocks beside a drafter", unseen="bytes against a device: `plan` tells the lost requests"),
    Row("misleading failures when the draft cache does not fit", unseen="bytes against a device: `plan`"),
    Row("buffers of a method", (
        Scene(("MEMORY-01", "ECON-04"), vllm(PROBABILISTIC, after="--max-num-seqs 2048 --max-num-batched-tokens 16384"),
              LARGE, LARGE_DRAFT),
        Scene(("MEMORY-03",), vllm(NGRAM, after="--max-num-seqs 32 --max-num-batched-tokens 64")),
    ), "the rest are bytes against a device: `plan`"),
    Row("measured on random tokens, graphs off above batch 2, overload", (
        Scene(("MEMORY-02",), sglang(f"{SGLANG_NGRAM} --cuda-graph-max-bs-decode 2")),
    ), "a workload has to be run"),
    Row("tokens counted that were cut", unseen="a running server: emitted tokens from usage"),
    Row("trained for one template or thinking mode", (
        Scene(("VOCAB-07",), vllm(PAIR),
              _templated(TARGET, "{{ messages }}"), _templated(SMALLER, "<think>{{ messages }}")),
    )),
    Row("events of a stream counted as tokens", unseen="a fault of the measurement"),
    Row("a paper's figure not reached: other depth, host-bound", unseen="time has to be measured"),
    Row("noise between prompts taken for an effect", unseen="statistics of a measurement"),
    Row("validation good, serving at 1.0: partial rotary ignored", (
        Scene(("CONTEXT-03",), vllm(EAGLE3), PARTIAL, head()),
    ), "parity is the gate"),
    Row("a smaller draft vocabulary without its maps", (
        Scene(("EAGLE-07",), vllm(EAGLE3), draft=head(d2t=None, t2d=None)),
        Scene(("EAGLE-08",), vllm(EAGLE3), draft=head(d2t=D2T[:-1], t2d=None)),
        Scene(("EAGLE-09",), vllm(EAGLE3), draft=head(rows=9)),
    )),
)  # fmt: skip
"""In the order in which they were collected."""
