"""``sfusion look``: show how the tool calls of a training run ended.

Outcomes over time, when it got worse, which sandbox. Reads event logs of the tool, the fakes and
the proxy, journals of runs and proxies, rollout dumps, what Sandbox Fusion prints, and access logs
of uvicorn and nginx, also compressed with gzip or wrapped by Docker. The kind of a log is
recognised by its content. As a log, `-` is stdin; for `--html` and `--json` it is stdout.

Example: sfusion look /shared/logs --html friday.html
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import KINDS, Call, spans_of
from sfusion_tools.wording import counted

from ...commandline.declaring import command
from ...commandline.json_answer import is_stdout, text_stream, write_answer, write_json
from ...commandline.options import Html, Json, Logs
from ...core.logs.reading import LogReader, UnreadableLines, with_stdin
from ...core.logs.sides import servers_left_out
from ...errors import BadOption
from ...reports import Reports
from ...reports.html import render_board, render_page
from ...reports.run_report import duration
from ...reports.timeline import Mark, Row, Steps, Timeline, timeline_data
from . import summary
from .axis import TimeBucket
from .digest import Digest
from .lives import LivesDigest
from .overview import FINE, SEVERITY, Overview, Stretch, crowd, overview

_MOST_MARKS = 500
"""Marks that the page's chart has (chosen)."""
_MOST_FILES = 8
"""Names of logs that the page lists (chosen)."""


def render_log(digest: Digest, found: Overview) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    records = digest.samples() if digest.timed else []
    values = _values(found, len(records))
    if not records:
        return render_page("look.html.j2", ("run.css",), board=False, **values)
    data = timeline_data(list(_named(records, found.start)), _timeline(digest, found), _rows)
    data["log"] = True
    if found.unit == "unix":
        data["zero"] = found.start
    return render_board("look.html.j2", data, board=True, **values)


def _values(found: Overview, sampled: int) -> dict[str, Any]:
    worse = min(
        (turn for turn in found.turns if turn.worse),
        key=lambda turn: SEVERITY.index(turn.what),
        default=None,
    )
    share = found.failed / found.calls if found.calls else 0.0
    is_bad = share > 0.05 or summary.attempts_stand_out(found)
    if worse is not None:
        headline = _capital(summary.sentence(found, worse)) + summary.blame(found)
        state = "broken"
    else:
        headline = summary.failing(found) + summary.blame(found)
        state = "unknown" if is_bad else "held"
    most = max((bucket.calls for bucket in found.over_time), default=0)
    files = found.files[:_MOST_FILES]
    if len(found.files) > _MOST_FILES:
        files.append("…")
    return {
        "headline": headline,
        "about": summary.title(found),
        "state": state,
        "notes": summary.notes(found),
        "files": files,
        "facts": _facts(found),
        "bars": [_bar(found, number, row, most) for number, row in enumerate(found.over_time)],
        "most": f"{most:,}",
        "first": found.when(found.start),
        "last": found.when(found.end),
        "outcomes": [
            (kind, f"{count:,}", f"{count / found.calls:.1%}")
            for kind, count in found.outcomes.items()
        ],
        "turns": [
            {"text": _capital(summary.sentence(found, turn)), "worse": turn.worse}
            for turn in found.turns
        ],
        "sandboxes": [summary.sandbox_cells(row) for row in found.sandboxes],
        "suspect": found.suspect,
        "suspicion": summary.suspicion(found),
        "read": found.read,
        "lives": summary.lives_text(found),
        "lives_heads": summary.LIVES,
        "lives_rows": summary.lives_rows(found),
        "lists": [
            ("Faults applied", "faults", found.faults),
            ("Malformed calls", "malformed", found.malformed),
        ],
        "sampled": f"The timeline shows {sampled:,} of {found.calls:,} calls: the first "
        "and last ones, the "
        "slowest, those with most attempts, and some of every kind. The curves count all calls."
        if sampled < found.calls
        else "",
    }


def _facts(found: Overview) -> list[tuple[str, str]]:
    facts = [
        ("calls", f"{found.calls:,}"),
        ("failed", f"{found.failed / found.calls:.1%}" if found.calls else "0"),
        ("attempts", f"{found.attempts:,}"),
    ]
    if found.seconds["p50"] is not None:
        facts += [(name, summary.took(found.seconds[name])) for name in ("p50", "p95")]
    if found.timed:
        crowds = {"most in flight": found.most_in_flight, "longest queue": found.longest_queue}
        facts += [(name, f"{most:,}") for name, most in crowds.items() if most is not None]
        facts.append(("time", duration(max(0.0, found.end - found.start))))
    return facts


def _bar(found: Overview, number: int, row: Stretch, most: int) -> dict[str, Any]:
    """Failures at the bottom, where their height can be compared."""
    parts = []
    top = 100.0
    for kind in sorted(row.outcomes, key=lambda kind: (kind not in FAILURES, KINDS.index(kind))):
        height = 100.0 * row.outcomes[kind] / max(most, 1)
        top -= height
        parts.append((kind, round(top, 3), round(height, 3)))
    counts = ", ".join(f"{kind} {count:,}" for kind, count in row.outcomes.items())
    return {
        "x": number,
        "parts": parts,
        "title": f"{found.when(row.start)}: {counts or 'no calls'}",
    }


def _timeline(digest: Digest, found: Overview) -> Timeline:
    fine = digest.axis.merged(FINE)
    zero = found.start
    marks = [Mark(max(0.0, turn.at - zero), "turn", summary.brief(turn)) for turn in found.turns]
    marks += list(_fault_marks(fine, zero))[:_MOST_MARKS]
    steps = [_steps(fine, what, zero) for what in ("in_flight", "waiting")]
    return Timeline(
        start=0.0,
        end=max(0.0, found.end - zero),
        in_flight=steps[0],
        at_server=Steps(),
        waiting=steps[1],
        limit=Steps(),
        marks=tuple(marks),
    )


def _steps(fine: Sequence[tuple[float, float, TimeBucket]], what: str, zero: float) -> Steps:
    values = crowd(fine, what)
    if not any(values):
        return Steps()
    return Steps(tuple(max(0.0, start - zero) for start, _, _ in fine), tuple(values))


def _fault_marks(fine: Iterable[tuple[float, float, TimeBucket]], zero: float) -> Iterator[Mark]:
    for start, end, bucket in fine:
        for rule, count in bucket.faults.items():
            yield Mark(
                max(0.0, start - zero),
                "strike",
                f"{rule}: {counted(count, 'time')}",
                until=end - zero,
            )


def _named(records: Iterable[Call], zero: float) -> Iterator[Call]:
    """Yield calls with names that differ, and with times since the beginning of the log."""
    seen: Counter[str] = Counter()
    for record in records:
        name = record.call or "request"
        seen[name] += 1
        call = name if seen[name] == 1 and record.call else f"{name} #{seen[name]}"
        yield replace(record, call=call, began=record.began - zero)


def _rows(call: Call) -> Iterator[Row]:
    """Tell what a call consisted of, and how it ended."""
    for span in spans_of(call):
        facts: dict[str, Any] = {"seconds": span.end - span.start}
        if span.kind == "attempt":
            one = call.attempts[span.attempt - 1]
            facts |= {
                "outcome": span.outcome,
                "status": span.status,
                "rule": one.fault,
                "sandbox": one.endpoint,
            }
            facts |= {"sent": one.sent or None, "received": one.received or None}
            facts |= {"retry_after": one.retry_after, "run_seconds": one.execution_time}
        known = {key: value for key, value in facts.items() if value is not None and value != ""}
        yield span.start, call.source, span.kind, span.attempt, known
    facts = {"outcome": call.kind, "problem": call.problem, "refused": call.refused}
    yield call.ended, call.source, "ended", 0, {key: value for key, value in facts.items() if value}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@command
def look(logs: Logs, html: Html = None, json_file: Json = None) -> None:
    to_stdout = is_stdout(html)
    if to_stdout and is_stdout(json_file):
        raise BadOption("--html and --json cannot both go to stdout")
    Reports(html=None if to_stdout else html, json=json_file).check()
    problems = UnreadableLines()
    logs_given = " ".join(shlex.quote(str(log)) for log in logs)
    with ExitStack() as stack:
        files = stack.enter_context(with_stdin(logs))
        reader = LogReader(files, problems, lambda so_far: reporter.read(so_far))
        clients, servers = Digest(), Digest()
        lives = LivesDigest()
        reader.on_sandbox = lives.add
        reader.on_broken_off = reader.left_out.append
        stream = text_stream(html if to_stdout else json_file)
        reporter = stack.enter_context(summary.LookReporter(stream, reader.total_bytes))
        for record in reader:
            (clients if record.source in ("client", "dump") else servers).add(record)
        # Where both sides of the same traffic are logged, the client's side says more.
        digest = clients if clients.calls else servers
        left_out = list(reader.left_out)
        if digest is clients and servers.calls:
            left_out.append(f"Note: {servers_left_out(servers.calls)}.")
        found = replace(
            overview(digest),
            files=[str(file) for file in reader.files],
            lines=reader.lines,
            skipped=reader.skipped,
            problems=problems.count,
            left_out=left_out,
            lives=lives.found(summary.ROWS),
        )
        # Files first: a summary that is piped into `head` ends there.
        if html is not None:
            write_answer(html, render_log(digest, found))
        write_json(json_file, found.as_data())
        following = (
            f"sfusion learn {logs_given} --to learned.yaml  # names the cause, and "
            "writes a scenario that reproduces it"
        )
        reporter.tell(found, overview(digest, stretches=summary.ROWS).over_time, following)
        for problem in problems.first:
            reporter.print(problem, "dim")
