"""`ModelConfig` from config.json or from GGUF metadata, every number checked. One row per family: `families.py`.

What this version cannot compute exactly is refused by name: another architecture (DP403), values it does not know
(DP406).
"""

from draftproof.models.config.gguf import config_from_gguf
from draftproof.models.config.huggingface import config_from_hf

__all__ = ["config_from_gguf", "config_from_hf"]
