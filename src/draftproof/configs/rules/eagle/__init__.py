"""EAGLE: the generation of a head, its shapes and its tables, against method, engine and target.

A wrong generation starts, answers, and accepts nothing: engines skip what does not fit. So shapes are judged here,
before anything runs.
"""

from __future__ import annotations

from draftproof.configs.rules.eagle import generation, reading, tensors

RULES = tuple(sorted((*generation.RULES, *reading.RULES, *tensors.RULES), key=lambda rule: rule.code))
