"""The fake OpenEnv server."""

from __future__ import annotations

from ..hosting.service import SandboxService
from .routes import OpenEnvApp


class FakeOpenEnv(SandboxService):
    """A fake OpenEnv server, for openenv's own clients: give them its ``url``.

    A connection is an environment: it is created when the socket opens, and deleted when it closes.
    ``model={"live": 2}`` is the capacity.
    """

    face = "openenv"

    def _make_app(self) -> OpenEnvApp:
        return OpenEnvApp(self.host)

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENENV_BASE_URL": self.url}
