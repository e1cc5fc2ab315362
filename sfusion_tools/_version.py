"""The version of the distribution; it is written nowhere else."""

__version__ = "0.1.0"
