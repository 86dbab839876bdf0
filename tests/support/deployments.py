"""Deployments drawn at random, and texts that engines document: what the contract of the dialects is tested on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import get_args

from hypothesis import strategies as st

from draftproof.configs.registry import DIALECTS
from draftproof.configs.speculation import BatchRange, Deployment, LookUp, Method, ModelRef, Speculation, Tree

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

SMALL = st.integers(1, 64)
NAMES = st.sampled_from(
    ["Qwen/Qwen2.5-7B-Instruct", "./draft", "a model's name", "-x", "$HOME", "no", "1e3"]
) | st.text(TEXT, min_size=1, max_size=12)
DTYPES = st.sampled_from(["auto", "float16", "bfloat16", "float32", "fp8", "fp8_e4m3", "f16", "q8_0", "int4"])
FRACTIONS = st.sampled_from([0.0, 0.05, 0.5, 0.7, 0.9, 1.0])


def _optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


def models() -> st.SearchStrategy[ModelRef]:
    return st.builds(
        ModelRef,
        name=NAMES,
        revision=_optional(st.sampled_from(["main", "v1"])),
        quantization=_optional(st.sampled_from(["fp8", "awq", "int4", "something"])),
    )


@st.composite
def schedules(draw: st.DrawFn) -> tuple[BatchRange, ...]:
    """Sound ones: from 1 on, without gaps, the last one open."""
    bounds = sorted(draw(st.sets(st.integers(1, 128), max_size=3)))
    lows = [1, *(bound + 1 for bound in bounds)]
    depths = [draw(st.integers(0, 8)) for _ in lows]
    return tuple(
        BatchRange(low=low, high=high, depth=depth)
        for low, high, depth in zip(lows, [*bounds, None], depths, strict=True)
    )


EXTRAS = st.dictionaries(
    st.builds(
        "{}.{}".format, st.sampled_from([*DIALECTS, "elsewhere"]), st.sampled_from(["some-key", "use_x"])
    ),
    st.sampled_from([1, 0.5, True, "text", ("a", "b")]),
    max_size=2,
)


def speculations() -> st.SearchStrategy[Speculation]:
    """Mostly sound ones; contradictions are among them, because a dialect must answer those, too."""
    methods = st.sampled_from(get_args(Method))
    likely = st.sampled_from(["draft_model", "eagle3", "eagle", "mtp", "ngram", "none"])
    trees = st.builds(Tree, depth=_optional(SMALL), branching=_optional(SMALL), num_nodes=_optional(SMALL))
    shape = st.one_of(
        st.just({}),
        st.fixed_dictionaries({"depth": SMALL}),
        st.fixed_dictionaries({"tree": trees}),
        st.fixed_dictionaries({"depth": SMALL, "tree": st.just(Tree(depth=2, branching=2, num_nodes=4))}),
    )
    lookups = st.builds(
        LookUp,
        min_ngram=_optional(SMALL),
        max_ngram=_optional(SMALL),
        min_hits=_optional(SMALL),
        max_tree_depth=_optional(SMALL),
        max_cached_requests=_optional(SMALL),
        max_spec_factor=_optional(FRACTIONS),
        min_token_prob=_optional(FRACTIONS),
    )
    rest = {
        "method": likely | methods,
        "drafter": _optional(models()),
        "min_depth": _optional(SMALL),
        "lookup": _optional(lookups),
        "schedule": st.just(()) | schedules(),
        "adaptive": _optional(st.booleans()),
        "verification": _optional(st.sampled_from(["standard", "block", "coupled", "exact_match", "lossy"])),
        "draft_sampling": _optional(st.sampled_from(["greedy", "probabilistic"])),
        "min_confidence": _optional(FRACTIONS),
        "different_vocabulary": _optional(st.booleans()),
        "draft_tensor_parallel": _optional(SMALL),
        "draft_max_model_len": _optional(SMALL),
        "draft_kv_dtype": _optional(DTYPES),
        "draft_weights": _optional(st.sampled_from(["int8", "int4"])),
        "parts": st.just(()) | st.just((Speculation(method="ngram", depth=3), Speculation(method="suffix"))),
        "extras": EXTRAS,
    }
    return st.builds(
        lambda given, shape: Speculation(**{**given, **shape}), _sparse(rest, keep=("method",)), shape
    )


def _sparse(
    keys: dict[str, st.SearchStrategy[object]], keep: tuple[str, ...]
) -> st.SearchStrategy[dict[str, object]]:
    """A few of the keys: a description that says everything at once is refused for one reason or another."""
    optional = {name: strategy for name, strategy in keys.items() if name not in keep}
    return st.sets(st.sampled_from(sorted(optional)), max_size=5).flatmap(
        lambda chosen: st.fixed_dictionaries({name: keys[name] for name in [*keep, *sorted(chosen)]})
    )


def deployments(engine: str | None = None) -> st.SearchStrategy[Deployment]:
    """Of `engine`, or of any."""
    numbers = (
        "max_model_len", "max_num_seqs", "max_num_batched_tokens", "memory_bytes", "tensor_parallel",
        "pipeline_parallel", "data_parallel", "block_size", "graph_max_batch",
    )  # fmt: skip
    keys: dict[str, st.SearchStrategy[object]] = {
        "engine": st.just(engine) if engine else st.sampled_from([*DIALECTS, "elsewhere"]),
        "target": _optional(models()),
        "speculation": speculations(),
        "dtype": DTYPES,
        "kv_dtype": DTYPES,
        "memory_fraction": FRACTIONS,
        "enforce_eager": st.booleans(),
        "prefix_caching": st.booleans(),
        "lora": st.booleans(),
        "extras": EXTRAS,
        "rest": st.just(("--host", "0.0.0.0")),
        **dict.fromkeys(numbers, SMALL),
    }
    known = {item.name for item in fields(Deployment)} - {"version"}
    assert set(keys) == known, "a field of Deployment that is not drawn"
    return _sparse(keys, keep=("engine", "target", "speculation")).map(lambda given: Deployment(**given))


@dataclass(frozen=True, slots=True)
class Golden:
    """A text as an engine documents it; `remarks` are the effects that parsing must name, no more and no fewer."""

    engine: str
    text: str
    files: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


GOLDEN: dict[str, Golden] = {
    "draftproof object": Golden(
        "draftproof", '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}'
    ),
    "vLLM draft model": Golden(
        "vllm",
        "vllm serve Qwen/Qwen3-4B-Thinking-2507 --host 0.0.0.0 --port 8000 --seed 42 -tp 1 --max_model_len 2048 \\\n"
        '    --gpu_memory_utilization 0.8 --speculative-config \'{"model": "Qwen/Qwen3-0.6B", '
        '"num_speculative_tokens": 5, "method": "draft_model"}\'',
    ),
    "vLLM MTP": Golden(
        "vllm",
        "vllm serve XiaomiMiMo/MiMo-7B-Base --tensor-parallel-size 1 "
        '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\'',
    ),
    "SGLang STANDALONE": Golden(
        "sglang",
        "python3 -m sglang.launch_server --model Qwen/Qwen2.5-7B-Instruct --speculative-algorithm STANDALONE \\\n"
        "    --speculative-draft-model-path Qwen/Qwen2.5-1.5B-Instruct --speculative-num-steps 4 \\\n"
        "    --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --mem-fraction-static 0.7 \\\n"
        "    --cuda-graph-max-bs-decode 8 --log-level warning\n",
    ),
    "SGLang adaptive EAGLE3": Golden(
        "sglang",
        "sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-adaptive "
        "--speculative-adaptive-config slots.json",
        {
            "slots.json": '{"1": {"candidate_steps": [1, 3, 5], "up_hysteresis": 0.1}, "16": {"candidate_steps": [0]}}'
        },
    ),
    "SGLang NGRAM": Golden(
        "sglang",
        "SGLANG_NGRAM_FORCE_GREEDY_VERIFY=1 python -m sglang.launch_server --model-path Qwen/Qwen3-8B "
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 16 --speculative-ngram-max-trie-depth 12",
    ),
    "llama.cpp draft model": Golden(
        "llamacpp",
        "llama-server -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-0.6B-Q8_0.gguf --spec-type draft-simple -c 16384 -np 4 \\\n"
        "  -ngl 99 -ngld 99 -fa on --spec-draft-n-max 16 --spec-draft-n-min 5 --draft-p-min 0.9 -ctkd q8_0 -ctvd q8_0",
    ),
    "llama.cpp EAGLE-3": Golden(
        "llamacpp",
        "llama-server -hf ggml-org/Qwen3-4B-GGUF:Q8_0 -md ./Qwen3-4B-eagle3.gguf --spec-type draft-eagle3",
    ),
    "llama.cpp types together": Golden(
        "llamacpp",
        "./build/bin/llama-server -m m.gguf --spec-type ngram-mod,draft-mtp --spec-ngram-mod-n-match 24 "
        "--spec-ngram-mod-n-min 48 --spec-ngram-mod-n-max 64 --spec_draft_n_max 2 -ctk q8_0 -kvu -c 8192 -np 2",
    ),
    "vLLM image": Golden(
        "vllm",
        "docker run --runtime nvidia --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:v0.33.0 \\\n"
        "    --model meta-llama/Llama-3.1-8B-Instruct --spec-method ngram --spec-tokens 3",
    ),
    "TensorRT-LLM Eagle3": Golden(
        "trtllm",
        "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --host localhost --port 8000 --config eagle3.yaml\n",
        {
            "eagle3.yaml": "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 4\n"
            "  speculative_model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B\n"
        },
    ),
    "TensorRT-LLM NGram": Golden(
        "trtllm",
        "disable_overlap_scheduler: true\nspeculative_config:\n  decoding_type: NGram\n  max_draft_len: 4\n"
        "  max_matching_ngram_size: 4\n  is_public_pool: true\n",
    ),
    "TensorRT-LLM MTP with a schedule": Golden(
        "trtllm",
        "max_batch_size: 64\nkv_cache_config: {free_gpu_memory_fraction: 0.8, max_tokens: 8192}\n"
        "cuda_graph_config: {enable_padding: true, max_batch_size: 64}\nspeculative_config:\n  decoding_type: MTP\n"
        "  max_draft_len: 3\n  draft_len_schedule: {4: 3, 16: 1}\n  use_relaxed_acceptance_for_thinking: true\n"
        "  relaxed_topk: 10\n",
    ),
    "TensorRT-LLM draft and target": Golden(
        "trtllm",
        "speculative_config:\n  decoding_type: Draft_Target\n  max_draft_len: 3\n  max_concurrency: 8\n"
        "  speculative_model: meta-llama/Llama-3.2-1B-Instruct\n",
    ),
    "Transformers assistant": Golden(
        "transformers",
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM-1.7B")\n'
        'model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM-1.7B", dtype="auto")\n'
        'assistant_model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM-135M")\n'
        "assistant_model.generation_config.num_assistant_tokens = 6\n"
        'inputs = tokenizer("Hugging Face is an open-source company", return_tensors="pt")\n'
        "outputs = model.generate(**inputs, assistant_model=assistant_model, do_sample=False, max_new_tokens=20)\n",
    ),
    "Transformers prompt look-up": Golden(
        "transformers", "assistant_outputs = model.generate(**inputs, prompt_lookup_num_tokens=5)\n"
    ),
    "Transformers arguments as JSON": Golden(
        "transformers", '{"assistant_model": "double7/vicuna-68m", "do_sample": true, "temperature": 0.5}'
    ),
    "OpenVINO draft model": Golden(
        "openvino",
        "import openvino_genai\n\nscheduler_config = openvino_genai.SchedulerConfig()\n"
        "scheduler_config.cache_size = 2\n"
        'draft = openvino_genai.draft_model("draft-int8", "CPU")\n'
        'pipe = openvino_genai.LLMPipeline("main", "CPU", scheduler_config=scheduler_config, draft_model=draft)\n'
        "config = openvino_genai.GenerationConfig()\nconfig.max_new_tokens = 100\n"
        "config.num_assistant_tokens = 5\nresult = pipe.generate(prompt, config)\n",
    ),
    "OpenVINO prompt look-up": Golden(
        "openvino",
        'pipe = openvino_genai.LLMPipeline("main", "CPU", prompt_lookup=True)\n'
        "pipe.generate(prompt, num_assistant_tokens=5, max_ngram_size=3)\n",
    ),
    "OpenVINO EAGLE-3 as JSON": Golden(
        "openvino",
        '{"models_path": "main", "device": "GPU", "draft_model": "eagle3", "num_assistant_tokens": 7, '
        '"branching_factor": 4, "tree_depth": 3}',
    ),
    "Fireworks draft model": Golden(
        "fireworks",
        "firectl deployment create accounts/fireworks/models/llama-v3p3-70b-instruct "
        "--draft-model accounts/fireworks/models/llama-v3p2-1b-instruct --draft-token-count 4 --min-replica-count 1",
    ),
    "Fireworks look-up": Golden(
        "fireworks",
        '{"baseModel": "accounts/fireworks/models/qwen3-8b", "ngramSpeculationLength": 3, "draftTokenCount": 4, '
        '"deploymentShape": "default", "precision": "FP8"}',
    ),
}
"""Documented texts by name; a new dialect adds its own."""
