"""The pytest plugin: fixtures for the fakes. It does nothing until a test asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fakes.sandbox import FakeSandbox
    from fakes.sglang import FakeSGLangServer


@pytest.fixture(scope="session")
def make_fake_sandbox() -> Iterator[Callable[..., FakeSandbox]]:
    """Start fake sandboxes with any options; all are stopped at the end of the session."""
    from contextlib import ExitStack

    from fakes.sandbox import FakeSandbox

    with ExitStack() as running:
        yield lambda **options: running.enter_context(FakeSandbox(**options))


@pytest.fixture
def fake_sandbox(request: pytest.FixtureRequest) -> Iterator[FakeSandbox]:
    """A fake Sandbox Fusion of the test's own, answering at ``fake_sandbox.url``.

    Options come by indirect parametrisation: ``@pytest.mark.parametrize("fake_sandbox", [{"model": {"quota": 8}}],
    indirect=True)``; faults can also be set in the test with ``fake_sandbox.set_faults([...])``.
    """
    from fakes.sandbox import FakeSandbox

    options: dict[str, Any] = getattr(request, "param", {})
    with FakeSandbox(**options) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def make_fake_sglang() -> Iterator[Callable[..., FakeSGLangServer]]:
    """Start fake sglang servers with any policy and options; all are stopped at the end of the session."""
    from contextlib import ExitStack

    from fakes.sglang import FakeSGLangServer

    with ExitStack() as running:
        yield lambda *policy, **options: running.enter_context(FakeSGLangServer(*policy, **options))


@pytest.fixture
def fake_sglang(request: pytest.FixtureRequest) -> Iterator[FakeSGLangServer]:
    """A fake sglang of the test's own, answering at ``fake_sglang.url``; it solves word problems unless told otherwise.

    Options come by indirect parametrisation: ``@pytest.mark.parametrize("fake_sglang", [{"policy": Script(["Hi"])}],
    indirect=True)``.
    """
    from fakes.sglang import FakeSGLangServer

    options: dict[str, Any] = getattr(request, "param", {})
    with FakeSGLangServer(**options) as server:
        yield server
