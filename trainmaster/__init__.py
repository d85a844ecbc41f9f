"""Managed training on machines you own or rent."""

from trainmaster.helper import checkpoint, log

__all__ = ["__version__", "checkpoint", "log"]
__version__ = "0.1.0"
