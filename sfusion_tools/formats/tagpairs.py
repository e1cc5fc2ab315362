"""Calls written as tags in which the key and the value have tags of their own."""

from __future__ import annotations

from .jsontext import CUT_HEAD, Flaw
from .rawvalue import NAME, misspelt, read_tag_value
from .tags import GAP, RawCall, RawTextParser
from .text_reader import Scan


class PairParser(RawTextParser):
    """Reads a name, and keys and values with tags of their own; types come from the schema."""

    def opened(self, marker: str) -> Scan[None]:
        tags = self.tags
        start = self.reader.offset - len(marker)
        head, edge = yield from self.reader.text_before(tags.heads)
        raw = [marker, head]
        if edge is None:
            self.refuse(CUT_HEAD, position=start, raw=marker + head)
            return

        bare = head.replace(tags.call, "\n", 1) if tags.call else head
        # Some models write a line break as a backslash and an n.
        lines = [line for line in bare.replace("\\n", "\n").split("\n") if line.strip()]
        name = lines[0].strip() if lines else ""
        flaw = self._name_flaw(name, bare, edge)
        if flaw:
            yield from self.give_up(flaw, start, raw, name if NAME.fullmatch(name) else None)
            return

        call = RawCall(name, start, raw)
        if len(lines) > 1:
            message = f"there is text after its name ({lines[1].strip()[:40]!r})"
            call.repaired.append(Flaw("stray_text", message))
        yield from self._arguments(call)

    def _name_flaw(self, name: str, head: str, edge: str) -> Flaw | None:
        """Return what is wrong with the name of a call."""
        tags = self.tags
        if not name:
            if edge == tags.close:
                return Flaw("empty_call", f"there is nothing between {tags.open} and {tags.close}")
            return Flaw("missing_name", f"there is no name after {tags.open}")
        if not NAME.fullmatch(name):
            return Flaw("missing_name", f"{name[:40]!r} is not a tool name")
        if edge == tags.close and not tags.empty and "\n" not in head and "\\n" not in head:
            return Flaw("bad_layout", "a call without arguments needs a line break after its name")
        return None

    def _arguments(self, call: RawCall) -> Scan[None]:
        """Read pairs up to the end of the call and report it."""
        reader = self.reader
        tags = self.tags
        while True:
            gap, edge = yield from reader.text_before(tags.heads)
            call.raw.append(gap)
            stray = GAP.sub("", gap)
            if stray and edge is not None:
                message = f"there is extra text next to its arguments ({stray[:40]!r})"
                call.repaired.append(Flaw("stray_text", message))
            if edge is None:
                call.fail(Flaw("truncated", f"the text ends before {tags.close}"))
                break
            if edge == tags.open:
                call.fail(Flaw("bad_layout", f"its {tags.close} is missing"))
                break
            call.raw.append(reader.take(len(edge)))
            if edge == tags.close:
                break

            if edge == tags.value_open:
                message = f"there is a {edge} without {tags.argument}"
                flaw: Flaw | None = Flaw("bad_layout", message)
            else:
                flaw = yield from self._pair(call)
            if flaw:
                yield from self.give_up(flaw, call.start, call.raw, call.name)
                return
        self.report_raw(call)

    def _pair(self, call: RawCall) -> Scan[Flaw | None]:
        """Read a key and its value; return the flaw if the rest of the call cannot be read."""
        reader = self.reader
        tags = self.tags
        key, edge = yield from reader.text_before(tags.keys)
        call.raw.append(key)
        if edge is None:
            yield from self.skip_rest()
            return Flaw("truncated", f"an {tags.argument} is not followed by {tags.key_close}")
        if edge != tags.key_close:
            return Flaw("bad_layout", f"an {tags.argument} is not followed by {tags.key_close}")
        call.raw.append(reader.take(len(edge)))

        shown = key[:40]
        following = yield from reader.ahead((tags.value_open,), GAP)
        if following == "":
            yield from self.skip_rest()
            return Flaw("truncated", f"its argument {shown} has no {tags.value_open}")
        if following != tags.value_open:
            return Flaw("bad_layout", f"its argument {shown} has no {tags.value_open}")
        yield from reader.run(GAP)
        call.raw.append(reader.take(len(following)))

        value = yield from read_tag_value(reader, tags.pair_value)
        call.raw.append(reader.since_mark())
        if value.fault == "truncated":
            yield from self.skip_rest()
            return Flaw("truncated", f"the text ends inside its argument {shown}")
        if value.fault == "unbalanced":
            return Flaw("bad_layout", f"the tags in its argument {shown} do not balance")
        if value.fault or misspelt(value.text, tags.pair_value):
            message = f"its argument {shown} is not closed by {tags.closing}"
            return Flaw("bad_layout", f"{message} and then {tags.argument} or {tags.close}")
        self.add_argument(call, key.strip(), value.text, what="argument")
        return None
