"""TensorRT-LLM: the YAML of `trtllm-serve MODEL --config FILE`, with or without the command."""

from draftproof.configs.engines.trtllm.dialect import dialect

__all__ = ["dialect"]
