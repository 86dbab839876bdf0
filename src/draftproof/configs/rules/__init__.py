"""The rules that `draftproof check` applies, one module per family of rules."""
