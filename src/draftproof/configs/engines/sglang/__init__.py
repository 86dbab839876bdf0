"""SGLang's server flags: `sglang serve …`, `python -m sglang.launch_server …`, or the flags alone."""

from draftproof.configs.engines.sglang.dialect import dialect

__all__ = ["dialect"]
