"""A parser that fails is a defect in every test here, although its user only sees a refused
call."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Reraise(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        raise AssertionError(record.getMessage()) from error


@pytest.fixture(autouse=True)
def a_parser_that_fails_fails_the_test() -> Iterator[None]:
    logger, handler = logging.getLogger("sfusion_tools.formats"), _Reraise(logging.ERROR)
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
