"""Flags of `llama-server` that this product does not judge, by how many values they take. Data.

Called by this dialect's reading. Listed by `llama-server --help` of build 11434.
"""

from __future__ import annotations

_SWITCHES = """
--agent --backend-sampling --cache-idle-slots --cache-list --check-tensors --completion-bash --cont-batching
--context-shift --cors-credentials --cpu-moe --embd-gemma-default --embedding --embeddings --escape
--fim-qwen-1.5b-default --fim-qwen-14b-spec --fim-qwen-30b-default --fim-qwen-3b-default --fim-qwen-7b-default
--fim-qwen-7b-spec --gpt-oss-120b-default --gpt-oss-20b-default --help --ignore-eos --jinja --kv-offload
--list-devices --log-disable --log-jsonl --log-prefix --log-timestamps --log-verbose --lora-init-without-apply
--metrics --mmproj-auto --mmproj-offload --models-autoload --no-agent --no-cache-idle-slots --no-cont-batching
--no-context-shift --no-cors-credentials --no-escape --no-host --no-jinja --no-kv-offload --no-log-jsonl
--no-log-prefix --no-log-timestamps --no-mmproj --no-mmproj-auto --no-mmproj-offload --no-models-autoload
--no-op-offload --no-perf --no-prefill-assistant --no-reasoning-preserve --no-repack --no-skip-chat-parsing
--no-slots --no-ui --no-ui-mcp-proxy --no-warmup --no-webui --no-webui-mcp-proxy --offline --op-offload --perf
--prefill-assistant --props --reasoning-preserve --repack --rerank --reranking --reuse-port --skip-chat-parsing
--slots --special --spm-infill --swa-full --ui --ui-mcp-proxy --usage --verbose --version
--vision-gemma-12b-default --vision-gemma-4b-default --warmup --webui --webui-mcp-proxy -ag -bs -cb -cl -cmoe -e
-h -kvo -nkvo -no-ag -nocb -nr -sp -v
"""

_VALUES = """
--adaptive-decay --adaptive-target --alias --api-key --api-key-file --api-prefix --batch-size --cache-ram
--cache-reuse --chat-template --chat-template-file --chat-template-kwargs --checkpoint-min-step --control-vector
--control-vector-scaled --cors-headers --cors-methods --cors-origins --cpu-mask --cpu-mask-batch --cpu-range
--cpu-range-batch --cpu-strict --cpu-strict-batch --ctx-checkpoints --defrag-thold --device --docker-repo
--dry-allowed-length --dry-base --dry-multiplier --dry-penalty-last-n --dry-sequence-breaker --dynatemp-exp
--dynatemp-range --embd-normalize --fit --fit-ctx --fit-target --flash-attn --frequency-penalty --gpu-layers
--grammar --grammar-file --hf-file --hf-token --host --image-max-tokens --image-min-tokens --json-schema
--json-schema-file --keep --kv-unified-per-slot --lazy-mode --load-mode --log-colors --log-file
--log-prompts-dir --log-verbosity --logit-bias --lora --lora-scaled --main-gpu --mcp-servers-config
--mcp-servers-json --media-path --min-p --mirostat --mirostat-ent --mirostat-lr --mmproj --mmproj-device
--mmproj-url --model-url --models-dir --models-max --models-preset --mtmd-batch-max-tokens --n-cpu-ffn
--n-cpu-moe --n-gpu-layers --n-predict --numa --override-kv --override-tensor --path --poll --poll-batch
--pooling --port --predict --presence-penalty --prio --prio-batch --reasoning --reasoning-budget
--reasoning-budget-message --reasoning-effort --reasoning-format --repeat-last-n --repeat-penalty
--reverse-prompt --rope-freq-base --rope-freq-scale --rope-scale --rope-scaling --rpc --sampler-seq --samplers
--sampling-seq --seed --sleep-idle-seconds --slot-prompt-similarity --slot-save-path --split-mode
--sse-ping-interval --ssl-cert-file --ssl-key-file --swa-checkpoints --tags --temp --temperature --tensor-split
--threads --threads-batch --threads-http --timeout --tools --tools-runtime --top-k --top-n-sigma --top-nsigma
--top-p --typical --typical-p --ubatch-size --ui-config --ui-config-file --verbosity --video-ffmpeg-dir
--video-fps --video-timestamp-interval --webui-config --webui-config-file --xtc-probability --xtc-threshold
--yarn-attn-factor --yarn-beta-fast --yarn-beta-slow --yarn-ext-factor --yarn-orig-ctx -C -Cb -Cr -Crb -a -b
-cms -cram -ctxcp -dev -dr -dt -fa -fit -fitc -fitt -hff -hft -j -jf -l -lm -lv -lzm -mg -mm -mmdev -mmu -mu -n
-ncffn -ncmoe -ngl -ot -r -rea -s -sm -sps -t -tb -to -ts -ub
"""

SWITCHES = frozenset(_SWITCHES.split())
VALUES = frozenset(_VALUES.split())
PAIRS = frozenset(("--control-vector-layer-range",))
"""Two values."""
