"""The fake Daytona as a server."""

from __future__ import annotations

from ..hosting.service import SandboxService
from .routes import DaytonaApp


class FakeDaytona(SandboxService):
    """A fake Daytona: API and toolbox on one address, for the vendor's own SDK.

    ``with FakeDaytona(model={"boot": "2s"}) as daytona:`` (or ``async with``), then set
    ``daytona.environment``, or give ``daytona.api_url`` to the SDK.
    """

    face = "daytona"

    def _make_app(self) -> DaytonaApp:
        return DaytonaApp(self.host)

    @property
    def api_url(self) -> str:
        """``http://127.0.0.1:PORT/api``."""
        return f"{self.url}/api"

    @property
    def environment(self) -> dict[str, str]:
        return {"DAYTONA_API_URL": self.api_url, "DAYTONA_API_KEY": "sfusion"}
