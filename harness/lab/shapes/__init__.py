"""Adapters: how a target of ``sfusion judge`` becomes a client that a trial can play."""

from ..client import Shape
from .results import returned_from
from .shape import Adapter, shape_of

__all__ = ["Adapter", "Shape", "returned_from", "shape_of"]
