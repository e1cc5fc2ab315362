"""Adapters: how a target of ``sfusion judge`` becomes a client that a trial can play."""

from sfusion.harness.trial.shapes.results import told_of
from sfusion.harness.trial.shapes.shape import Adapter, Shape, shape_of

__all__ = ["Adapter", "Shape", "shape_of", "told_of"]
