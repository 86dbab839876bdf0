"""Bytes, break-even, schedules and advice, before anything is started. Neither torch nor transformers."""
