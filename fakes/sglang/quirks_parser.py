"""The quirks as a parser of the chat route."""

from __future__ import annotations

from sfusion.fakes.sglang.calls import CallPiece, CallStream, Cut, Tools
from sfusion.fakes.sglang.quirks import QuirkDelta, QuirkError, QuirkStream, quirk_stream, sglang_parse

__all__ = ["QuirkParser"]


class QuirkParser:
    """Cuts calls out of a text as sglang's own parser of that format does."""

    def __init__(self, form: str) -> None:
        self._form = form

    def whole(self, text: str, tools: Tools, reason: str) -> Cut | None:
        """Cut a whole text; None where sglang leaves it as it is, also because its parser raised."""
        try:
            parsed = sglang_parse(self._form, text, tools)
        except QuirkError:
            return None
        if parsed.content == text and not parsed.calls:
            return None
        return Cut(parsed.content, [CallPiece(call.index, call.name, call.arguments) for call in parsed.calls])

    def stream(self, tools: Tools) -> CallStream:
        """Begin to cut a text that comes in deltas."""
        return _Stream(quirk_stream(self._form, tools))


class _Stream:
    def __init__(self, stream: QuirkStream) -> None:
        self._stream = stream

    def feed(self, delta: str) -> Cut:
        return _cut(self._stream.feed(delta))

    def finish(self, reason: str) -> Cut:
        return _cut(self._stream.finish())


def _cut(delta: QuirkDelta) -> Cut:
    return Cut(delta.content, [CallPiece(piece.index, piece.name, piece.arguments) for piece in delta.pieces])
