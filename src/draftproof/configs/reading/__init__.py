"""Reads the texts that configurations are written in, bounded and with positions: shell, JSON, YAML, Python calls."""
