"""Recordings: answers to probes as JSON lines, in the format that the fake's recorded executor
serves.

The first line describes the origin; each further line is one probe with its request and its answer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfusion_tools._version import __version__
from sfusion_tools.bounded_input import parse_json, read_lines
from sfusion_tools.errors import InputError

from ....fakes.wire.message import dump_json, json_line
from ...errors import BadProbes
from .model import SUITE_VERSION, Probe
from .raw_http import ProbeAnswer
from .scrubbing import Scrubber

FORMAT = 1
"""Version of the file."""


Recording = dict[str, tuple[Mapping[str, Any], ProbeAnswer]]
"""By probe id, the request as ``probe_request_record`` writes it, and its answer."""


def recording_lines(
    probes: Sequence[Probe],
    answers: Sequence[ProbeAnswer],
    *,
    target: str,
    recorded_at: str,
    scrubber: Scrubber,
) -> list[str]:
    servers = {answer.header("server") for answer in answers} - {None}
    meta = {
        "format": FORMAT,
        "sfusion": __version__,
        "suite": SUITE_VERSION,
        "recorded_at": recorded_at,
        "target": scrubber.text(target),
        "server": scrubber.text(", ".join(sorted(str(server) for server in servers))),
        "probes": len(probes),
    }
    records = [
        {
            "id": probe.id.partition("/")[2],
            "group": probe.group,
            "request": scrubber.request(probe_request_record(probe)),
            "response": response_record(scrubber.answer(answer)),
            "elapsed_s": round(answer.seconds, 3),
        }
        for probe, answer in zip(probes, answers, strict=True)
    ]
    return [json_line(record) for record in ({"cassette": meta}, *records)]


def probe_request_record(probe: Probe) -> dict[str, Any]:
    if probe.request is None:
        return {"raw": probe.raw}
    request = probe.request
    record: dict[str, Any] = {
        "method": request.method,
        "path": request.path,
        "headers": request.sent_headers,
    }
    if "body" in request.model_fields_set:
        record["json"] = request.body
    elif request.text is not None:
        record["raw_body"] = request.text
    elif request.base64 is not None:
        record["raw_body_b64"] = request.base64
    if request.spaces:
        record["spaces"] = request.spaces
    return record


def response_record(answer: ProbeAnswer) -> dict[str, Any]:
    """``text`` is kept beside ``json`` if the bytes cannot be rebuilt from the JSON value."""
    if answer.failure:
        return {"failure": answer.failure}
    record: dict[str, Any] = {
        "status": answer.status,
        "headers": [list(pair) for pair in answer.headers],
    }
    try:
        text = answer.body.decode()
    except UnicodeDecodeError:
        return record | {"base64": base64.b64encode(answer.body).decode()}
    try:
        value = parse_json(text, "answer")
        same = dump_json(value) == answer.body
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return record | {"text": text}
    return record | ({"json": value} if same else {"json": value, "text": text})


def read_response(record: Mapping[str, Any]) -> ProbeAnswer:
    """The inverse of ``response_record``."""
    if "failure" in record:
        return ProbeAnswer(failure=str(record["failure"]))
    if "base64" in record:
        body = base64.b64decode(record["base64"])
    elif "text" in record:
        body = str(record["text"]).encode()
    else:
        body = dump_json(record["json"])
    headers = tuple((str(name), str(value)) for name, value in record["headers"])
    return ProbeAnswer(int(record["status"]), headers, body)


def read_recording(path: Path) -> Recording:
    """Read a recording; raises BadProbes with file and line."""
    recording: Recording = {}
    try:
        lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    except InputError as error:
        raise BadProbes([str(error)]) from None
    for number, line in lines:
        try:
            record = parse_json(line, "this line")
            if "cassette" in record:
                continue
            request = record["request"]
            recording[f"{record['group']}/{record['id']}"] = (
                request,
                read_response(record["response"]),
            )
            if not isinstance(request.get("headers") or {}, dict):
                raise TypeError("the headers of a request are not a mapping")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise BadProbes(
                [
                    f"{path}:{number}: expected an object with group, id, request and response, as "
                    f"'sfusion drift --record' writes them ({type(error).__name__}: {error})"
                ]
            ) from None
    if not recording:
        raise BadProbes([f"{path}:1: the recording holds no answers"])
    return recording
