"""Speculation as engines write it, what it means, and what is wrong with it. Neither torch nor transformers."""
