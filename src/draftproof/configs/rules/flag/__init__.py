"""FLAG: spellings that the engine refuses, warns of, ignores or rewrites, and values that do not do what they say."""

from __future__ import annotations

from draftproof.configs.rules.flag import spellings, values

RULES = tuple(sorted((*spellings.RULES, *values.RULES), key=lambda rule: rule.code))
