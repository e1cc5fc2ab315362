"""Who may use a server that runs code: this machine, or clients with the token."""

from __future__ import annotations

import secrets

from sfusion.fakes.errors import UnsafeBindError
from sfusion_tools.hosts import is_loopback


def token_for(host: str, token: str | None, *, runs_code: bool, allow_remote: bool) -> str | None:
    """The token that requests to this address must carry, None for none; raise UnsafeBindError when it is unsafe."""
    local = is_loopback(host)
    if not local and runs_code and not (allow_remote and token):
        raise UnsafeBindError(
            f"listening on {host} would run code for anyone who can reach this machine; "
            "give both allow_remote (--allow-remote) and a token (--token), or listen on 127.0.0.1"
        )
    return token if token or local else secrets.token_urlsafe(16)
