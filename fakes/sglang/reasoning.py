"""Separates a model's thinking from its answer, whole or streamed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sfusion_tools.errors import near
from sfusion_tools.formats.text_reader import Markers, Scan, TextReader, markers_of

Switch = Literal["always", "on", "off"]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a model family marks its thinking.

    ``tool_start`` ends the thinking even if it was not closed. ``switch`` is whether a text begins
    inside the thinking: ``always``, ``on`` (unless ``parameter`` of the chat template is false) or
    ``off`` (only if it is true).
    """

    start: str
    end: str
    tool_start: str | None = None
    switch: Switch = "always"
    parameter: str = "enable_thinking"

    def begins_inside(self, template_kwargs: Mapping[str, Any] | None) -> bool:
        """Return whether the text begins inside the thinking."""
        if self.switch == "always":
            return True
        given = (template_kwargs or {}).get(self.parameter)
        if self.switch == "on":
            return given is not False
        return given is True

    def whole(self, text: str, inside: bool) -> tuple[str, str]:
        """Return the thinking and the rest of a whole text."""
        if not inside and self.start not in text:
            return "", text
        while text.startswith(self.start):
            text = text[len(self.start) :]

        thought, end, rest = text.partition(self.end)
        if end:
            return thought, rest
        if self.tool_start is not None and self.tool_start in text:
            at = text.index(self.tool_start)
            return text[:at], text[at:]
        return text, ""

    def stream(self, inside: bool, at_once: bool = True) -> ReasoningStream:
        return ReasoningStream(self, inside, at_once)


class ThoughtStream(ABC):
    """Separates thinking and answer of one text that arrives in deltas.

    What may be the beginning of a marker is held back.
    """

    def __init__(self) -> None:
        self._reader = TextReader()
        self._thought: list[str] = []
        self._rest: list[str] = []
        self._held_back = False
        """The thinking is not returned yet."""
        self._run = self._parts()
        next(self._run)

    def feed(self, delta: str) -> tuple[str, str]:
        """Return what the delta adds to the thinking and to the rest."""
        self._reader.feed(delta)
        next(self._run)
        return self._collect()

    def finish(self) -> tuple[str, str]:
        """Return what was held back, at the end of the text."""
        self._reader.close()
        list(self._run)
        self._held_back = False
        return self._collect()

    @abstractmethod
    def _parts(self) -> Scan[None]:
        """Read the text; the first step waits for it."""

    def _collect(self) -> tuple[str, str]:
        """Return what was read and not returned yet, as far as it is not held back."""
        thought = ""
        if not self._held_back:
            thought = "".join(self._thought)
            self._thought.clear()
        rest = "".join(self._rest)
        self._rest.clear()
        return thought, rest


class ReasoningStream(ThoughtStream):
    """Reads thinking up to its end.

    Unless it is wanted ``at_once``, it is returned when it has ended.
    """

    def __init__(self, reasoning: Reasoning, inside: bool, at_once: bool) -> None:
        self._marks = reasoning
        self._inside = inside
        super().__init__()
        self._held_back = not at_once

    def _parts(self) -> Scan[None]:
        yield
        reader = self._reader
        thinks = self._inside
        if not thinks:
            begin = markers_of(self._marks.start)
            thinks = bool((yield from reader.until(begin, self._rest.append)))
        if thinks:
            yield from self._thinking()
            self._held_back = False
        while True:
            self._rest.append(reader.take(reader.left))
            if reader.closed:
                return
            yield

    def _thinking(self) -> Scan[None]:
        """Read the thinking and the marker that ends it; a tool's marker belongs to the rest."""
        marks = self._marks
        ends = [marks.end]
        if marks.tool_start is not None:
            ends.append(marks.tool_start)

        # A text that begins inside the thinking may still begin with its marker.
        markers = [*ends, marks.start] if self._inside else ends
        found = yield from self._reader.until(markers_of(*markers), self._thought.append)
        if found == marks.start:
            found = yield from self._reader.until(markers_of(*ends), self._thought.append)
        if found is not None and found == marks.tool_start:
            self._rest.append(found)


_ANALYSIS = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>(.*?)(?:<\|end\|>|\Z)", re.DOTALL
)
_FINAL = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|return\|>")
_HARMONY_BEGIN = Markers(("<|start|>", "<|channel|>"))
_HARMONY_END = Markers(("<|end|>", "<|call|>", "<|return|>"))


class Harmony:
    """The channels of gpt-oss: analysis is the thinking, final is the answer.

    Calls stay as they are.
    """

    def begins_inside(self, template_kwargs: Mapping[str, Any] | None) -> bool:
        return False

    def whole(self, text: str, inside: bool) -> tuple[str, str]:
        """Return the thinking and the rest of a whole text, or of one message."""
        thought = "".join(_ANALYSIS.findall(text))
        return thought, _FINAL.sub("", _ANALYSIS.sub("", text))

    def stream(self, inside: bool, at_once: bool = True) -> HarmonyStream:
        return HarmonyStream()


class HarmonyStream(ThoughtStream):
    """Reads one message at a time, when it is complete or at the end of the text."""

    def _parts(self) -> Scan[None]:
        yield
        # Plain text before any mark is the answer.
        while mark := (yield from self._reader.until(_HARMONY_BEGIN, self._rest.append)):
            message = [mark]
            end = yield from self._reader.until(_HARMONY_END, message.append)
            message.append(end or "")
            thought, rest = Harmony().whole("".join(message), inside=False)
            self._thought.append(thought)
            self._rest.append(rest)


_THINK = ("<think>", "</think>")
_QWEN_TOOL = "<tool_call>"
PARSERS: Mapping[str, Reasoning | Harmony] = {
    "deepseek-r1": Reasoning(*_THINK),
    "deepseek-v3": Reasoning(*_THINK, switch="off", parameter="thinking"),
    "glm45": Reasoning(*_THINK, tool_start=_QWEN_TOOL, switch="on"),
    "gpt-oss": Harmony(),
    "kimi": Reasoning("◁think▷", "◁/think▷", switch="off"),
    "kimi_k2": Reasoning(
        *_THINK, tool_start="<|tool_calls_section_begin|>", switch="on", parameter="thinking"
    ),
    "qwen3": Reasoning(*_THINK, tool_start=_QWEN_TOOL, switch="on"),
    "qwen3-thinking": Reasoning(*_THINK, tool_start=_QWEN_TOOL),
}
"""Reasoning parsers by the names that sglang gives them."""


def reasoning_parser(name: str | None) -> Reasoning | Harmony | None:
    """Return the reasoning parser of a name; without one, thinking stays in the text."""
    if name is None:
        return None
    if name not in PARSERS:
        raise ValueError(f"There is no reasoning parser {name!r}: {near(name, PARSERS)}")
    return PARSERS[name]
