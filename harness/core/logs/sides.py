"""Where a client and a server logged the same traffic, the client's side says more: it counts."""

from __future__ import annotations


def servers_left_out(records: int) -> str:
    """Say how many records of servers do not count."""
    return f"{records:,} records of servers are left out, because there are also those of a client"
