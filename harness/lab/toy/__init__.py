"""A toy that learns: a softmax over a few behaviours and a skill for each, trained by the
advantages of a step. Pure.

``Toy`` trains on samples, ``simulate`` plays them without the stack
(``harness/lab/worlds/training.py`` with it), ``expected`` follows the mean update without noise,
and ``fitted`` takes the rates from what was measured in a training without faults.
"""

from .expectation import ExpectedStep, expected
from .fit import HealthyTraining, fitted, with_learning
from .losses import chance_lost
from .policy import ToyPolicy, uses_tool
from .sample import ToySample
from .thresholds import Threshold, mask_threshold, threshold, turning_share, zero_threshold
from .trainer import Toy, TrainedStep, simulate, simulate_share

__all__ = [
    "ExpectedStep",
    "HealthyTraining",
    "Threshold",
    "Toy",
    "ToyPolicy",
    "ToySample",
    "TrainedStep",
    "chance_lost",
    "expected",
    "fitted",
    "mask_threshold",
    "simulate",
    "simulate_share",
    "threshold",
    "turning_share",
    "uses_tool",
    "with_learning",
    "zero_threshold",
]
