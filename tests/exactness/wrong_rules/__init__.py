"""The catalogue of classic wrong rules: `test_wrong_rules.py` shows that enumeration catches each one."""

from . import chains, drafts, trees, block_and_noise  # noqa: I001  (the order of the page)
from .catalogue import CASES, CATALOGUE, Build

__all__ = ["CASES", "CATALOGUE", "Build", "block_and_noise", "chains", "drafts", "trees"]
