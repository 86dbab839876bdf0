"""The product's own version, for every layer. Nothing else."""

__version__ = "0.1.0.dev0"
