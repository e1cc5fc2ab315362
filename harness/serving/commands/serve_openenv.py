"""``sfusion serve openenv``: serve a fake OpenEnv server: environments live and die.

It answers /ws, /health, /metadata, /schema, /state and /reset.

Example: sfusion serve openenv --model '{live: 8}' --executor scripted
"""

from __future__ import annotations

from dataclasses import dataclass

from ....fakes.openenv import FakeOpenEnv
from ...commandline.declaring import command
from ..server_options import Port
from ..service_options import ServiceOptions, serve_service


@dataclass(frozen=True, kw_only=True)
class OpenEnvOptions(ServiceOptions):
    """The options of the command."""

    port: Port = 8082


@command
def serve_openenv(options: OpenEnvOptions) -> None:
    serve_service(FakeOpenEnv, "OpenEnv server", options)
