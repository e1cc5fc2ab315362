"""The fake E2B as a server."""

from __future__ import annotations

from ..hosting.service import SandboxService
from .routes import E2BApp


class FakeE2B(SandboxService):
    """A fake E2B: API, envd and code interpreter on one address, for the vendor's own SDKs.

    ``with FakeE2B(model={"ttl": "5m"}) as e2b:`` (or ``async with``), then set
    ``e2b.environment``.
    """

    face = "e2b"

    def _make_app(self) -> E2BApp:
        return E2BApp(self.host)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "E2B_API_URL": self.url,
            "E2B_SANDBOX_URL": self.url,
            "E2B_API_KEY": "e2b_" + "0" * 40,
        }
