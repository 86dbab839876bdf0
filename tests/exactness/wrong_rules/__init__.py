"""The catalogue of classic wrong rules: `test_wrong_rules.py` shows that enumeration catches each one."""

from . import block_and_noise, chains, drafts, trees
from .catalogue import CASES, CATALOGUE, Build

__all__ = ["CASES", "CATALOGUE", "Build", "block_and_noise", "chains", "drafts", "trees"]
