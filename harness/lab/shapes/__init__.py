"""Adapters: how a target of ``sfusion judge`` becomes a client that a trial can play."""

from ..client import Shape
from .results import told_of
from .shape import Adapter, shape_of

__all__ = ["Adapter", "Shape", "shape_of", "told_of"]
