"""The admin doors of a fake, under ``/__sfusion/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sfusion.fakes.wire.app import Request
from sfusion.fakes.wire.message import Answer

PREFIX = "/__sfusion/"

Door = Callable[[Request], Answer]


class Doors:
    """Finds the door that a request means; mistakes are told in one sentence."""

    def __init__(self, doors: Mapping[tuple[str, str], Door]) -> None:
        """Doors by method and name."""
        self._doors = doors

    def answer(self, request: Request) -> Answer:
        """Route and answer."""
        name = request.path.removeprefix(PREFIX)
        door = self._doors.get((request.method, name))
        if door is not None:
            return door(request)
        methods = sorted(method for method, door_name in self._doors if door_name == name)
        if methods:
            return Answer.json({"detail": "Method Not Allowed"}, 405, (("allow", ", ".join(methods)),))
        known = ", ".join(sorted({door_name for _, door_name in self._doors}))
        return Answer.json({"detail": f"there is no {request.path}; under {PREFIX} there are: {known}"}, 404)
