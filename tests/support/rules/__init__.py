"""Positive and negative cases for every rule, one module per family, as `FIXTURES`: code → `Fixtures`."""
