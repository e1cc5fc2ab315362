"""What the texts that a model read from its tool say about how the calls ended.

A text counts as a lost call only if it *begins* as a client is known to begin. A program may print
the same words further on, and its output stays output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.sandbox import text as wording

from .sample import turn_texts

MOST_CALLS = 10_000
"""Calls of one trajectory that are read (chosen: more than any context holds)."""
_LONGEST = 4_000
"""Characters of a text that is compared with the known ones (chosen: a proxy's page is shorter)."""

_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_INTERPRETER = re.compile(r"<interpreter>\n?(.*?)\n?</interpreter>", re.DOTALL)
"""What ReTool's prompt calls it, also in slime's examples/retool."""
_TOOL_TURN = re.compile(r"^(?:<\|im_start\|>)?tool$", re.MULTILINE)
_FAILED = re.compile(rf"{re.escape(wording.FAILED)}(\w+)")


@dataclass(frozen=True, slots=True)
class KnownText:
    """How a text begins, how its call ended, and who writes it."""

    pattern: re.Pattern[str]
    outcome: Outcome | None
    """None if the text stands for any failure, or for none."""
    source: str


def _begins(*texts: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)))


_PREFIX = (
    r"\s*(?:(?:Error|Exception|Failed|Sandbox Error|Tool error|API Request Exception"
    r"|(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout))\b[^\w\n<]{0,3}\s*)*"
)
"""What wrappers put before the text of an exception: its class, or a word for failure."""


def _client(pattern: str, outcome: Outcome | None, source: str) -> KnownText:
    """A text of an HTTP client, also behind the class of its exception."""
    return KnownText(re.compile(_PREFIX + f"(?:{pattern})"), outcome, source)


_POOL = r"HTTPS?ConnectionPool\(host=[^)]*\): "

LOST_TEXTS = (
    KnownText(
        re.compile(r"Error when executing tool|Error executing tool"),
        Outcome.SANDBOX_ERROR,
        "verl, agent loop",
    ),
    KnownText(
        re.compile(r"(?s:\[Python Interpreter Error\].* on endpoint )"),
        Outcome.SANDBOX_ERROR,
        "Alibaba-NLP/DeepResearch",
    ),
    KnownText(
        re.compile(r"\W*(?:Error\W+)?UnknownError\W*$"), Outcome.SANDBOX_ERROR, "GAIR-NLP/ToRL"
    ),
    KnownText(
        re.compile(r"(?:Error: )?Sandbox [Ee]rror[:,] "), Outcome.SANDBOX_ERROR, "rLLM, code tools"
    ),
    KnownText(
        re.compile(r".{0,80}Gateway Timeout \(504\) on attempt \d+/\d+"),
        Outcome.SANDBOX_ERROR,
        "verl, reward_score/sandbox_fusion",
    ),
    _client(_POOL + r"Read timed out", Outcome.TRANSPORT_TIMEOUT, "requests"),
    _client(
        _POOL + r"Max retries exceeded with url: \S+ \(Caused by (?:Connect|Read)TimeoutError",
        Outcome.TRANSPORT_TIMEOUT,
        "requests",
    ),
    _client(rf"(?:{_POOL})?Max retries exceeded with url: ", Outcome.UNREACHABLE, "requests"),
    _client(
        r"\('Connection aborted\.', |Connection broken: ", Outcome.UNREACHABLE, "requests, urllib3"
    ),
    _client(r"429 Client Error: .* for url: ", Outcome.THROTTLED, "requests, raise_for_status"),
    _client(
        r"5\d\d Server Error: .* for url: ",
        Outcome.SANDBOX_ERROR,
        "requests, raise_for_status",
    ),
    _client(r"Client error '429 [^']*' for url ", Outcome.THROTTLED, "httpx, raise_for_status"),
    _client(r"Server error '5\d\d [^']*' for url ", Outcome.SANDBOX_ERROR, "httpx"),
    _client(
        r"All connection attempts failed\s*$|Server disconnected(?: without sending a response\.?)?"
        r"\s*$",
        Outcome.UNREACHABLE,
        "httpx, aiohttp",
    ),
    _client(r"429, message='[^']*', url=", Outcome.THROTTLED, "aiohttp, raise_for_status"),
    _client(r"5\d\d, message='[^']*', url=", Outcome.SANDBOX_ERROR, "aiohttp, raise_for_status"),
    _client(r"Cannot connect to host \S+ ssl:", Outcome.UNREACHABLE, "aiohttp"),
    _client(r"Connection timeout to host ", Outcome.TRANSPORT_TIMEOUT, "aiohttp"),
    _client(r"Timeout on reading data from socket\s*$", Outcome.TRANSPORT_TIMEOUT, "aiohttp"),
    _client(
        r"\[Errno (?:104|111|113|-2|-3)\] [A-Z][\w ]+\s*$", Outcome.UNREACHABLE, "OSError of Linux"
    ),
    _client(r"Connection refused\s*$|Connection reset by peer\s*$", Outcome.UNREACHABLE, "OSError"),
    KnownText(
        re.compile(r"\s*<html>\s*<head>\s*<title>429 "), Outcome.THROTTLED, "nginx, error page"
    ),
    KnownText(
        re.compile(r"\s*<html>\s*<head>\s*<title>5\d\d "),
        Outcome.SANDBOX_ERROR,
        "nginx, error page",
    ),
    _client(
        r"(?:HTTP(?: status)?(?: code)?:? ?)?429[: ]+Too Many Requests\W*$|Too Many Requests\W*$"
        r"|Rate limit exceeded\W*$",
        Outcome.THROTTLED,
        "reason phrase of HTTP",
    ),
    _client(
        r"(?:HTTP(?: status)?(?: code)?:? ?)?(?:50[0234][: ]+)?"
        r"(?:Internal Server Error|Bad Gateway|Service (?:Temporarily )?Unavailable"
        r"|Gateway Time-?[Oo]ut)\W*$",
        Outcome.SANDBOX_ERROR,
        "reason phrase of HTTP",
    ),
    KnownText(
        re.compile(
            r"upstream connect error or disconnect/reset before headers|no healthy upstream"
        ),
        Outcome.SANDBOX_ERROR,
        "Envoy",
    ),
    KnownText(re.compile(r"upstream request timeout"), Outcome.TRANSPORT_TIMEOUT, "Envoy"),
    KnownText(
        re.compile(r"\W*请求(?:处理)?超时"), Outcome.TRANSPORT_TIMEOUT, "usual wording in Chinese"
    ),
    KnownText(
        re.compile(r"\W*(?:请求过于频繁|请求太频繁|触发限流)"),
        Outcome.THROTTLED,
        "usual wording in Chinese",
    ),
    KnownText(
        re.compile(r"\W*(?:沙箱)?(?:服务器?(?:暂时|暂)?不可用|服务器?异常|服务器?繁忙|系统繁忙)"),
        Outcome.SANDBOX_ERROR,
        "usual wording in Chinese",
    ),
    KnownText(
        re.compile(r"\W*(?:沙箱|服务器?)?连接(?:失败|被拒绝|超时|被重置)"),
        Outcome.UNREACHABLE,
        "usual wording in Chinese",
    ),
)
"""Texts of lost calls. What the clients of docs/clients.md answer was seen; what HTTP libraries
write is the text of their exceptions, which tools usually pass on."""

VAGUE_TEXTS = (
    KnownText(re.compile(r"no stdout here\s*$"), None, "verl 0.7, NovaSky-AI/SkyRL"),
    KnownText(re.compile(r"Finished execution\.\s*$"), None, "Alibaba-NLP/DeepResearch"),
)
"""Texts that stand for any failure and for a program that printed nothing."""

PROGRAM_TEXTS = (
    KnownText(_begins(wording.TIMED_OUT, wording.STOPPED), Outcome.PROGRAM_TIMEOUT, "our tool"),
    KnownText(_begins(wording.NOT_COMPILED), Outcome.COMPILE_ERROR, "our tool"),
    KnownText(_begins(wording.EXITED, wording.SIGNALLED), Outcome.PROGRAM_ERROR, "our tool"),
    KnownText(
        re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE),
        Outcome.PROGRAM_ERROR,
        "Python",
    ),
    KnownText(
        re.compile(
            r"\A\s*(?:File \"[^\"]*\", line \d|(?:Syntax|Indentation|Name|Type|Value|Index|Key"
            r"|Attribute|ZeroDivision|Module ?NotFound|Import|Assertion|Recursion|Overflow"
            r"|UnboundLocal|Memory)Error\b)"
        ),
        Outcome.PROGRAM_ERROR,
        "Python",
    ),
)
"""Texts of the program's own failures."""


_ANY_TEXT = re.compile(
    "|".join(f"(?:{known.pattern.pattern})" for known in (*LOST_TEXTS, *VAGUE_TEXTS))
)
"""All of them at once: nearly every text is none of them, and one search says so."""


def outcome_of_text(text: str) -> Outcome | None:
    """Return how a call ended whose text the model read; None if the text does not tell."""
    if (found := _FAILED.search(text)) is not None:
        return OUTCOMES.get(found[1])
    if wording.REFUSED in text:
        return Outcome.BAD_ARGUMENTS
    beginning = text[:_LONGEST]
    if _ANY_TEXT.match(beginning):
        for known in (*LOST_TEXTS, *VAGUE_TEXTS):
            if known.pattern.match(beginning):
                return known.outcome
    for known in PROGRAM_TEXTS:
        if known.pattern.search(text):
            return known.outcome
    return Outcome.OK


def tool_texts(output: str) -> list[str]:
    """Return what the tools answered in a trajectory that is one text, in order."""
    if "<tool_response>" in output:
        return _RESPONSE.findall(output)[:MOST_CALLS]
    if "<interpreter>" in output:
        return _INTERPRETER.findall(output)[:MOST_CALLS]
    if not _TOOL_TURN.search(output):
        return []
    return [body for role, body in turn_texts(output) if role == "tool"][:MOST_CALLS]
