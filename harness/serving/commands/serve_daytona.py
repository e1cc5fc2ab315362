"""``sfusion serve daytona``: serve a fake Daytona for its own SDK: sandboxes live and die.

It answers the API (/api) and the toolbox of each sandbox, on one address.

Example: sfusion serve daytona --model '{boot: 2s, live: 16}' --faults lost.yaml
"""

from __future__ import annotations

from dataclasses import dataclass

from ....fakes.daytona import FakeDaytona
from ...commandline.declaring import command
from ..server_options import Port
from ..service_options import ServiceOptions, serve_service


@dataclass(frozen=True, kw_only=True)
class DaytonaOptions(ServiceOptions):
    """The options of the command."""

    port: Port = 8081


@command
def serve_daytona(options: DaytonaOptions) -> None:
    serve_service(FakeDaytona, "Daytona", options)
