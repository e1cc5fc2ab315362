"""Get and compare the answers of two servers: what differs, how badly, what is not comparable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ....fakes.sandbox import FakeSandbox, Profile
from ..probes.cassette import Recording, probe_request_record
from ..probes.model import Probe
from ..probes.raw_http import ProbeAnswer, Server
from ..probes.sending import PATIENCE, OnAnswer, Sender, scrubber_for
from .comparing import Difference, Kind, compare

Grade = Literal["breaking", "visible", "cosmetic", "variable"]
GRADES: tuple[Grade, ...] = get_args(Grade)

_HEADER: tuple[Kind, ...] = ("header-missing", "header-extra", "header-value")
_CONTENT: tuple[Kind, ...] = ("text", "blanks", "value", "length", "type", "number-form")


@dataclass(frozen=True)
class GradingRule:
    """Grades differences of some kinds in some places."""

    name: str
    grade: Grade
    because: str
    """One sentence for the report."""
    kinds: tuple[Kind, ...]
    places: str = r".*"
    """A regular expression that the whole place must match."""
    one_empty: bool = False
    """Matches only if exactly one of the two values is empty."""
    same_media: bool = False
    """Matches only if both content types are the same apart from parameters."""

    def matches(self, difference: Difference) -> bool:
        if difference.kind not in self.kinds or re.fullmatch(self.places, difference.place) is None:
            return False
        if self.one_empty and bool(difference.left) == bool(difference.right):
            return False
        return not self.same_media or _media(difference.left) == _media(difference.right)


def _media(value: object) -> str:
    return str(value).partition(";")[0].strip().lower()


RULES: tuple[GradingRule, ...] = (
    GradingRule(
        "no answer", "breaking", "One server answers and the other does not.", ("no-answer",)
    ),
    GradingRule(
        "http status",
        "breaking",
        "Clients decide by the HTTP status what to do next.",
        ("http-status",),
    ),
    GradingRule(
        name="content type",
        grade="cosmetic",
        because="The media type is the same; only its parameters differ.",
        kinds=("header-value",),
        places=r"header\.content-type",
        same_media=True,
    ),
    GradingRule(
        name="steering header",
        grade="breaking",
        because="Clients read content-type, location and retry-after, and act on them.",
        kinds=_HEADER,
        places=r"header\.(content-type|location|retry-after)",
    ),
    GradingRule(
        name="allowed methods",
        grade="visible",
        because="The methods that a 405 lists are read by people only.",
        kinds=_HEADER,
        places=r"header\.allow",
    ),
    GradingRule(
        "other header",
        "cosmetic",
        "No client of a sandbox reads this header, its casing or its position.",
        (*_HEADER, "header-order", "header-case"),
    ),
    GradingRule(
        "not json",
        "breaking",
        "A client that reads one of the bodies cannot read the other.",
        ("not-json",),
    ),
    GradingRule(
        name="server's own log",
        grade="visible",
        because="The output of the notebook driver is a log that no program reads.",
        kinds=("text", "blanks"),
        places=r"body\.driver\.(stdout|stderr)",
    ),
    GradingRule(
        name="pod name",
        grade="cosmetic",
        because="Clients ignore the name of the machine behind a gateway.",
        kinds=("type", "text", "blanks"),
        places=r"body\.executor_pod_name",
    ),
    GradingRule(
        name="echo of a refusal",
        grade="visible",
        because="The rejected input is repeated for people to read.",
        kinds=_CONTENT,
        places=r"body\.detail\[\d+\]\.(input|ctx)\b.*",
    ),
    GradingRule(
        "missing key",
        "breaking",
        "A client that reads this key fails on one of the two.",
        ("key-missing", "key-extra"),
    ),
    GradingRule(
        "renamed key",
        "breaking",
        "A client that reads this key fails on one of the two.",
        ("key-renamed",),
    ),
    GradingRule(
        "other type",
        "breaking",
        "A client that expects one JSON type cannot read the other.",
        ("type",),
    ),
    GradingRule(
        name="outcome",
        grade="breaking",
        because="The status or exit code decides whether a call counts as solved.",
        kinds=("text", "value"),
        places=r"body(\..*)?\.(status|return_code)",
    ),
    GradingRule(
        name="whitespace in output",
        grade="visible",
        because="The program's output differs only in whitespace.",
        kinds=("blanks",),
        places=r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        name="output",
        grade="breaking",
        because="The program's output is what the model sees and the reward compares.",
        kinds=("text",),
        places=r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        name="fetched file",
        grade="breaking",
        because="A fetched file is the program's result.",
        kinds=("text", "blanks"),
        places=r"body\.files\..*",
    ),
    GradingRule(
        name="kind of error",
        grade="breaking",
        because="Clients distinguish errors by these codes.",
        kinds=("text", "blanks"),
        places=r"body\.detail\[\d+\]\.(type|loc\b.*)|body\..*\.ename",
    ),
    GradingRule(
        "empty or not",
        "breaking",
        "One server sends a text where the other sends none.",
        ("text", "blanks"),
        one_empty=True,
    ),
    GradingRule("list length", "breaking", "The lists have different lengths.", ("length",)),
    GradingRule(
        "number", "breaking", "A number or boolean that a client reads differs.", ("value",)
    ),
    GradingRule(
        name="help page",
        grade="cosmetic",
        because="The link to a page about the error differs.",
        kinds=("text",),
        places=r"body\.detail\[\d+\]\.url",
    ),
    GradingRule(
        "wording",
        "visible",
        "The text for people or the model differs, but not its meaning.",
        ("text",),
    ),
    GradingRule("whitespace", "cosmetic", "The text differs only in whitespace.", ("blanks",)),
    GradingRule(
        "order of keys",
        "cosmetic",
        "The order of keys in a JSON object has no meaning.",
        ("key-order",),
    ),
    GradingRule(
        "formatting",
        "cosmetic",
        "The same JSON, formatted differently.",
        ("number-form", "body-form"),
    ),
)


RACE = GradingRule(
    name="race",
    grade="variable",
    because=(
        "One and the same server answers this probe now one way, now the other: "
        "compare several runs."
    ),
    kinds=("text", "blanks", "value", "length", "type"),
    places=r"body\..*",
)


def rule_for(difference: Difference, *, racy: bool = False) -> GradingRule:
    """Return the first rule that matches; every kind has one without conditions."""
    if racy and RACE.matches(difference):
        return RACE
    return next(rule for rule in RULES if rule.matches(difference))


@dataclass(frozen=True)
class ServerAnswers:
    name: str
    answers: Mapping[str, ProbeAnswer]
    """By probe id."""
    not_comparable: Mapping[str, str] = field(default_factory=dict)
    """By probe id, why its answer cannot be compared."""


@dataclass(frozen=True)
class DriftFinding:
    """A difference, and the rule that grades it."""

    difference: Difference
    rule: GradingRule

    @property
    def grade(self) -> Grade:
        return self.rule.grade


@dataclass(frozen=True)
class DriftReport:
    left: str
    right: str
    compared: int
    findings: tuple[DriftFinding, ...] = ()
    not_comparable: tuple[tuple[str, str], ...] = ()
    """Probe ids with the reason."""
    notes: tuple[str, ...] = ()

    @property
    def ranked(self) -> list[DriftFinding]:
        """The differences, the worst first, otherwise in the order of the probes."""
        return sorted(self.findings, key=lambda finding: GRADES.index(finding.grade))

    def count(self, grade: Grade) -> int:
        return sum(finding.grade == grade for finding in self.findings)

    @property
    def breaking(self) -> bool:
        """Would a difference make a client behave differently?"""
        return self.count("breaking") > 0


def compare_answers(
    probes: Sequence[Probe], left: ServerAnswers, right: ServerAnswers, notes: Sequence[str] = ()
) -> DriftReport:
    findings: list[DriftFinding] = []
    not_comparable: list[tuple[str, str]] = []
    compared = 0
    for probe in probes:
        if why := _why_not_comparable(probe, left, right):
            not_comparable.append((probe.id, why))
            continue
        compared += 1
        for difference in compare(probe, left.answers[probe.id], right.answers[probe.id]):
            findings.append(DriftFinding(difference, rule_for(difference, racy=probe.racy)))
    return DriftReport(
        left=left.name,
        right=right.name,
        compared=compared,
        findings=tuple(findings),
        not_comparable=tuple(not_comparable),
        notes=tuple(notes),
    )


def _why_not_comparable(probe: Probe, left: ServerAnswers, right: ServerAnswers) -> str:
    for side in (left, right):
        if probe.id in side.not_comparable:
            return side.not_comparable[probe.id]
        if probe.id not in side.answers:
            return f"{side.name} was not asked"
    for side, other in ((left, right), (right, left)):
        answer = side.answers[probe.id]
        others = other.answers[probe.id]
        if _refuses_pages(answer) and not _refuses_pages(others):
            return (
                f"{side.name} is sfusion's fake, which refuses requests of web pages "
                "and of other host names"
            )
        if (lack := lacking(probe, answer)) and not lacking(probe, others):
            return f"{side.name} has no {lack}"
    return ""


def _refuses_pages(answer: ProbeAnswer) -> bool:
    """True for the 403 of `fakes/wire/access.py`, a deliberate difference from the real server."""
    return answer.status == 403 and b'"sfusion: ' in answer.body


def lacking(probe: Probe, answer: ProbeAnswer) -> str:
    """Return the command or module that the probe needs and that is missing according to the
    answer."""
    if not probe.needs or answer.failure:
        return ""
    texts = "\n".join(_texts(answer.json()))
    for need in probe.needs:
        name = re.escape(need)
        if re.search(
            rf"(?m)(?:^|[\s:/]){name}: (?:command )?not found|No module named ['\"]{name}", texts
        ):
            return need
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


REVEALS_PROFILE = "memory/over-limit"
"""The probe that identifies the published image of June 2025, which ignores the limit."""
_HOST = re.compile(r"^host:[ \t]*([^\s:]+)", re.IGNORECASE | re.MULTILINE)
RAW = "raw bytes cannot carry the header, prefix or key of a gateway"


async def live_answers(
    url: str,
    probes: Sequence[Probe],
    *,
    name: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    on_answer: OnAnswer = lambda _: None,
) -> ServerAnswers:
    """Ask a server and scrub its answers; raises Unreachable."""
    server = Server.at(url, headers)
    sent = [probe for probe in probes if server.can_send(probe)]
    raw = await Sender(server, name, timeout).ask(sent, on_answer)
    scrubber = scrubber_for(url, headers, probes)
    answers = {probe.id: scrubber.answer(answer) for probe, answer in zip(sent, raw, strict=True)}
    return ServerAnswers(
        name, answers, {probe.id: RAW for probe in probes if not server.can_send(probe)}
    )


async def fake_answers(
    probes: Sequence[Probe],
    *,
    executor: str = "python",
    profile: Profile = "2026-07",
    timeout: float = PATIENCE,
    on_answer: OnAnswer = lambda _: None,
) -> ServerAnswers:
    """Ask a fake that is started in this process."""
    # The fake refuses foreign names and web pages, which the real server serves: allow those that
    # the probes imitate.
    hosts = set[str]()
    origins = set[str]()
    for probe in probes:
        hosts.update(_HOST.findall(probe.raw or ""))
        if probe.request is None:
            continue
        for name, value in probe.request.sent_headers.items():
            if name.lower() == "origin":
                origins.add(value)
    async with FakeSandbox(
        executor=executor, profile=profile, allow_hosts=hosts, allow_origins=origins
    ) as sandbox:
        fake = await live_answers(
            sandbox.url, probes, name=f"fake {profile}", timeout=timeout, on_answer=on_answer
        )
        runs_code = sandbox.executor.runs_code
    if runs_code:
        return fake
    why = f"the fake runs no code with executor {executor}"
    ran = {probe.id: why for probe in probes if probe.runs and fake.answers[probe.id].status == 200}
    return ServerAnswers(fake.name, fake.answers, ran)


def recorded_answers(recording: Recording, probes: Sequence[Probe], *, name: str) -> ServerAnswers:
    answers: dict[str, ProbeAnswer] = {}
    not_comparable: dict[str, str] = {}
    for probe in probes:
        request, answer = recording.get(probe.id, ({}, None))
        if answer is None:
            not_comparable[probe.id] = f"not in {name}"
        elif _sent(request) != _sent(probe_request_record(probe)):
            not_comparable[probe.id] = f"{name} has the answer to a different request"
        else:
            answers[probe.id] = answer
    return ServerAnswers(name, answers, not_comparable)


def profile_of(answers: Mapping[str, ProbeAnswer]) -> Profile | None:
    """Return the profile that these answers show, or None if they do not show it."""
    answer = answers.get(REVEALS_PROFILE)
    body = answer.json() if answer is not None else None
    if not isinstance(body, dict):
        return None
    match body.get("status"):
        case "Success":
            return "2025-06"
        case "Failed":
            return "2026-07"
    return None


def _sent(request: Mapping[str, Any]) -> Any:
    """Normalise a request so that equal ones compare equal."""
    headers = {str(name).lower(): value for name, value in (request.get("headers") or {}).items()}
    return {**request, "headers": headers} if "path" in request else dict(request)
