"""The `python` executor: runs programs in many languages, and notebooks, confined and bounded."""

from .command import Confinement
from .executor import PythonExecutor
from .guard.spec import ResourceBounds

__all__ = ["Confinement", "PythonExecutor", "ResourceBounds"]
