"""Flags of `vllm serve` that this product does not judge, by how many values they take. Data.

Called by this dialect's reading, which otherwise could not tell a flag's value from the model's name. Listed by the
argument parser of vLLM 0.32.0 itself, with what the source of 0.33.0 adds (monokernel, reasoning-effort-map,
sleep-mode-backend, watchdog-config); the names as today's command line takes them, with dashes.
"""

from __future__ import annotations

_BOTH_WAYS = """
allow-credentials allow-deprecated-quantization async-scheduling cohere-is-reasoning-model cudagraph-metrics
data-parallel-external-lb data-parallel-hybrid-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager
disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
enable-batch-sharded-sampling enable-chunked-prefill enable-cumem-allocator enable-dbo enable-elastic-ep
enable-ep-weight-filter enable-eplb enable-expert-parallel enable-fault-tolerance enable-flash-late-interaction
enable-flashinfer-autotune enable-force-include-usage enable-hc-sp enable-layerwise-nvtx-tracing
enable-log-deltas enable-log-outputs enable-log-requests enable-logging-iteration-details
enable-mamba-cache-stochastic-rounding enable-mamba-shared-prefix-checkpoint enable-mfu-metrics
enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras enable-nccl-comm-suspend
enable-offline-docs enable-per-request-metrics enable-prompt-embeds enable-prompt-tokens-details
enable-request-id-headers enable-return-routed-experts enable-scale-out enable-server-load-tracking
enable-shm-tensor-arena enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint
enable-tower-connector-lora enable-trace-replay exclude-tools-when-tool-choice-none fail-on-environ-validation
fully-sharded-loras interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill
language-model-only log-error-stack long-prefill-token-threshold-adaptive mm-device-do-normalize mm-encoder-only
monokernel
numa-bind ray-workers-use-nsight return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl
skip-mm-profiling skip-tokenizer-init sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay
tokens-only trust-remote-code trust-request-chat-template trust-request-mm-kwargs use-fp64-gumbel use-replayssm
use-tqdm-on-load
"""
"""Switches that have a `--no-` form; without their dashes."""

_ONE_WAY = """
--aggregate-engine-logging --data-parallel-multi-port-external-lb --disable-log-stats --grpc --headless -dpe
-dph -dpm -ep
"""
"""Switches without one."""

_VALUES = """
--additional-config --all2all-backend --allowed-headers --allowed-local-media-path --allowed-methods
--allowed-origins --anthropic-disabled-thinking-effort --api-server-count --attention-backend --attention-config
--aux-output-config --chat-template --chat-template-content-format --code-revision --cohere-format
--compilation-config --config --config-format --convert --cp-kv-cache-interleave-size
--cpu-distributed-timeout-seconds --cpu-offload-gb --custom-histogram-buckets --data-parallel-address
--data-parallel-backend --data-parallel-rank --data-parallel-rpc-port --data-parallel-size-local
--data-parallel-start-rank --data-parallel-supervisor-port --dbo-decode-token-threshold
--dbo-prefill-token-threshold --dcp-comm-backend --dcp-kv-cache-interleave-size --decode-context-parallel-size
--default-chat-template-kwargs --default-mm-loras --device-ids --diffusion-config
--disable-access-log-for-endpoints --distributed-executor-backend --distributed-timeout-seconds --download-dir
--dp-supervisor-probe-failure-threshold --dp-supervisor-probe-interval-s --dp-supervisor-probe-timeout-s
--dp-sync-interval --ec-manager-config --ec-transfer-config --elastic-ep-max-dp-size --engram-config
--eplb-config --expert-placement-strategy --fault-tolerance-config --fingerprint-mode --fingerprint-value
--gdn-prefill-backend --generation-config --grpc-port --h11-max-header-count --h11-max-incomplete-event-size
--hf-config-path --hf-overrides --hf-token --host --io-processor-plugin --ir-op-priority --jit-monitor-mode
--kda-decode-backend --kda-prefill-backend --kernel-config --kv-cache-memory-bytes --kv-cache-metrics-sample
--kv-events-config --kv-offloading-backend --kv-offloading-size --kv-transfer-config --limit-mm-per-prompt
--linear-backend --load-format --log-config-file --log-level --logging-config --logprobs-mode
--long-prefill-token-threshold --lora-dtype --mamba-backend --mamba-block-size --mamba-cache-dtype
--mamba-cache-mode --mamba-cache-philox-rounds --mamba-ssm-cache-dtype --mamba-ssu-algorithm --master-addr
--master-port --max-cpu-loras --max-cudagraph-capture-size --max-log-len --max-logprobs --max-lora-cls-labels
--max-lora-rank --max-loras --max-num-active-seqs --max-num-queued-reqs --max-num-queued-tokens
--max-num-scheduled-tokens --max-parallel-loading-workers --media-io-kwargs --middleware
--mm-encoder-attn-backend --mm-encoder-attn-dtype --mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-margin
--mm-encoder-fp8-scale-save-path --mm-encoder-tp-mode --mm-hasher-algorithm --mm-ipc-gpu-memory-gb
--mm-processor-cache-gb --mm-processor-cache-type --mm-processor-device --mm-processor-kwargs
--mm-shm-cache-max-object-size-mb --mm-tensor-ipc --model-class-overrides --model-impl
--model-loader-extra-config --moe-backend --nnodes --node-rank --num-gpu-blocks-override --offload-backend
--offload-group-size --offload-num-in-group --offload-prefetch-step --optimization-level --otlp-traces-endpoint
--override-generation-config --per-request-spec-decode-metrics --performance-mode --pooler-config --port
--prefill-context-parallel-size --prefill-schedule-interval --prefix-cache-retention-interval
--reasoning-effort-map --sleep-mode-backend --watchdog-config
--prefix-caching-hash-algo --prefix-match-unit --profiler-config --pt-load-map-location --quantization-config
--reasoning-config --reasoning-parser --reasoning-parser-plugin --renderer-num-workers --replayssm-buffer-len
--response-role --root-path --runner --safetensors-load-strategy --safetensors-prefetch-block-size
--safetensors-prefetch-num-threads --scheduler-cls --scheduling-policy --seed --show-hidden-metrics-for-version
--shutdown-timeout --sparse-indexer-topk-backend --sse-keep-alive-interval --ssl-ca-certs --ssl-cert-reqs
--ssl-certfile --ssl-ciphers --ssl-keyfile --stream-interval --structured-outputs-config --tokenizer
--tokenizer-mode --tokenizer-revision --tool-call-parser --tool-parser-plugin --tool-server --tool-strict-level
--ubatch-size --uds --uvicorn-log-level --video-pruning-method --video-pruning-rate --watermark
--watermark-config --weight-transfer-config --worker-cls --worker-extension-cls -ac -asc -cc -dc -dcp -dpa -dpb
-dpl -dpn -dpp -dpr -n -pcp -r
"""
"""One value."""

_LISTS = """
--allowed-media-domains --api-key --collect-detailed-traces --cpu-offload-params --cudagraph-capture-sizes
--ignore-patterns --kv-cache-dtype-skip-layers --logits-processors --lora-modules --lora-target-modules
--numa-bind-cpus --numa-bind-nodes --offload-params --served-model-name --sleep-preserve-parameter-names
"""
"""One value or more."""


SWITCHES = frozenset(
    (*_ONE_WAY.split(), *(f"--{start}{name}" for name in _BOTH_WAYS.split() for start in ("", "no-")))
)
VALUES = frozenset(_VALUES.split())
LISTS = frozenset(_LISTS.split())
READ = ("0.32.0", "0.33.0")
"""Versions all of whose flags are in these lists."""
