"""Replaces attributes of modules and classes, and the handlers of loggers, for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, **made: Any) -> Iterator[None]:
    """Set attributes of an owner, and set them back at the end."""
    before = {name: getattr(owner, name) for name in made}
    try:
        for name, one in made.items():
            setattr(owner, name, one)
        yield
    finally:
        for name, one in before.items():
            setattr(owner, name, one)


@contextmanager
def diverted_logs(handler: logging.Handler, *names: str, level: int | None = None) -> Iterator[None]:
    """Send the log lines of some loggers to a handler and nowhere else."""
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        if level is not None:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, propagate, old in before:
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(old)
