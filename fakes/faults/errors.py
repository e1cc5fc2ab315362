"""What can be wrong with a fault description.

FaultError (ValueError)
└── every mistake in a rule: the message says which rule, what was found and what was meant
"""

from __future__ import annotations


class FaultError(ValueError):
    """A fault rule cannot be used as written."""
