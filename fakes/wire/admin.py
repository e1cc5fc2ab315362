"""The admin door under ``/__sfusion/``: state, faults, ledger, reset."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from typing import Any, Protocol

from sfusion.fakes.faults import Action, FaultError, Rule, parse_rules, read_rules
from sfusion.fakes.wire.app import Request
from sfusion.fakes.wire.doors import Doors
from sfusion.fakes.wire.ledger import Ledger
from sfusion.fakes.wire.message import Answer
from sfusion.fakes.wire.server import WireServer


class Governed(Protocol):
    """What can be asked and told through the door."""

    server: WireServer

    @property
    def ledger(self) -> Ledger:
        """What it counted."""

    def state(self) -> dict[str, Any]:
        """What it is set to and how it is."""

    def forget(self) -> None:
        """Begin to count anew."""


def authorised(headers: Mapping[str, str], token: str) -> bool:
    """Is the token in ``x-sfusion-token``, a bearer token, or the password of the URL?"""
    given = headers.get("X-Sfusion-Token", "")
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given = value.strip()
    elif scheme.lower() == "basic":
        try:
            given = base64.b64decode(value).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def not_authorised() -> Answer:
    """The answer to a request without the token."""
    return Answer.json(
        {"detail": "this server wants its token: header x-sfusion-token, a bearer token, or http://x:TOKEN@host"},
        status=401,
        headers=(("www-authenticate", 'Basic realm="sfusion"'),),
    )


class Admin(Doors):
    """Answers admin requests about one server."""

    def __init__(self, governed: Governed) -> None:
        self._governed = governed
        super().__init__(
            {
                ("GET", "state"): self._state,
                ("GET", "faults"): self._faults,
                ("PUT", "faults"): self._set_faults,
                ("DELETE", "faults"): self._clear_faults,
                ("GET", "ledger"): self._ledger,
                ("POST", "reset"): self._reset,
            }
        )

    def _state(self, request: Request) -> Answer:
        return Answer.json(self._governed.state())

    def _faults(self, request: Request) -> Answer:
        plan = self._governed.server.plan
        rules = [rule_as_data(rule) for rule in plan.rules]
        strikes = {name: tally.struck for name, tally in plan.tallies.items()}
        return Answer.json({"seed": plan.seed, "faults": rules, "strikes": strikes})

    def _set_faults(self, request: Request) -> Answer:
        seed = None
        try:
            try:
                data: Any = json.loads(request.body)
            except ValueError:
                rules = parse_rules(request.body.decode("utf-8", "replace"), where="body")
            else:
                if isinstance(data, dict) and "seed" in data:
                    seed = data.pop("seed")
                    if not isinstance(seed, int) or isinstance(seed, bool):
                        raise FaultError(f"seed must be a whole number, found {seed!r}")
                rules = read_rules(data, where="body")
        except FaultError as error:
            return Answer.json({"detail": str(error)}, 422)
        self._governed.server.set_faults(rules, seed=seed)
        return self._faults(request)

    def _clear_faults(self, request: Request) -> Answer:
        self._governed.server.set_faults([])
        return self._faults(request)

    def _ledger(self, request: Request) -> Answer:
        with_calls = "calls=0" not in request.query.split("&")
        return Answer.json(self._governed.ledger.snapshot(calls=with_calls))

    def _reset(self, request: Request) -> Answer:
        self._governed.forget()
        return Answer.json(self._governed.state())


def rule_as_data(rule: Rule) -> dict[str, Any]:
    """A rule as it could be written in YAML."""
    data: dict[str, Any] = rule.model_dump(mode="json", exclude_defaults=True, exclude={"what"})
    data["what"] = [action_as_data(action) for action in rule.what]
    return data


def action_as_data(action: Action) -> dict[str, Any]:
    """An action as it could be written in YAML."""
    data = action.model_dump(mode="json", exclude_defaults=True)
    if action.kind in type(action).model_fields:
        return {action.kind: getattr(action, action.kind), **data}
    return {action.kind: data or True}
