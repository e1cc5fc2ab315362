"""``sfusion serve e2b``: serve a fake E2B for its own SDKs: sandboxes live and die.

It answers the API, envd and the code interpreter, on one address.

Example: sfusion serve e2b --model '{ttl: 5m, dies: 0.02}'
"""

from __future__ import annotations

from dataclasses import dataclass

from ....fakes.e2b import FakeE2B
from ...commandline.declaring import command
from ..server_options import Port
from ..service_options import ServiceOptions, serve_service


@dataclass(frozen=True, kw_only=True)
class E2BOptions(ServiceOptions):
    """The options of the command."""

    port: Port = 8083


@command
def serve_e2b(options: E2BOptions) -> None:
    serve_service(FakeE2B, "E2B", options)
