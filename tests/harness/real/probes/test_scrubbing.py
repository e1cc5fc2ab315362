"""Secrets and machine details never reach a recording, however the server echoes them."""

from __future__ import annotations

import base64
import json
import string
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfusion.harness.real.drift.comparing import steady
from sfusion.harness.real.probes.cassette import recording_lines
from sfusion.harness.real.probes.model import Probe, ProbeRequest, bundled_probes
from sfusion.harness.real.probes.raw_http import ProbeAnswer
from sfusion.harness.real.probes.scrubbing import Scrubber, mask
from sfusion.harness.real.probes.sending import scrubber_for

QUIET = settings(max_examples=25)

WORDS = st.text(string.ascii_lowercase, min_size=5, max_size=12).map(lambda word: f"zq{word}")
"""Words that no answer contains by chance."""
SIGNS = st.characters(
    codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\\/@:?#&=%+ "
)
SECRETS = st.text(SIGNS, min_size=6, max_size=30).map(lambda text: f"zq{text}Z")
AROUND = st.sampled_from(
    [
        "",
        " ",
        "'",
        '"',
        "\n",
        ": ",
        "=",
        "(",
        "File ",
        "error: ",
        "Traceback:\n  File ",
        "x = ",
        "héllo ",
        "\t",
        "{",
        "[",
    ]
)
PLACES = st.sampled_from(
    ["stdout", "stderr", "message", "detail", "header", "key", "inner key", "file", "html", "input"]
)


def echo_answer(place: str, text: str) -> ProbeAnswer:
    """An answer that echoes a text in some place."""
    result = {
        "status": "Finished",
        "execution_time": 0.1,
        "return_code": 0,
        "stdout": "",
        "stderr": "",
    }
    body: dict[str, Any] = {"status": "Success", "message": "", "run_result": result, "files": {}}
    headers = [("server", "uvicorn"), ("content-type", "application/json")]
    match place:
        case "stdout" | "stderr":
            result[place] = text
        case "message":
            body["message"] = text
        case "detail":
            body = {"detail": text}
        case "input":
            body = {"detail": [{"type": "missing", "input": {"a": [text]}}]}
        case "key":
            body["files"] = {text: "eA=="}
        case "inner key":
            body = {"detail": {"seen": [{text: 1}]}}
        case "file":
            body["files"] = {"out.txt": base64.b64encode(text.encode()).decode()}
        case "header":
            headers.append(("x-echo", text.replace("\n", " ")))
        case "html":
            return ProbeAnswer(200, tuple(headers), f"<html>{text}</html>".encode())
    return ProbeAnswer(200, tuple(headers), json.dumps(body, ensure_ascii=False).encode())


def written(answer: ProbeAnswer, scrubber: Scrubber, *, target: str = "http://target") -> bytes:
    """The bytes of a recording with this answer, plus the decoded files in it."""
    probe = Probe(id="a/b", about="Any question will do.", request=ProbeRequest())
    lines = recording_lines([probe], [answer], target=target, recorded_at="now", scrubber=scrubber)
    files = json.loads(lines[1])["response"].get("json", {})
    opened = (
        [base64.b64decode(one) for one in (files.get("files") or {}).values()]
        if isinstance(files, dict)
        else []
    )
    return "".join(lines).encode() + b"\n".join(opened)


@QUIET
@given(
    secret=SECRETS,
    before=AROUND,
    after=AROUND,
    place=PLACES,
    way=st.sampled_from(["url", "query", "header", "environ"]),
)
def test_secrets_never_reach_a_recording(
    secret: str, before: str, after: str, place: str, way: str
) -> None:
    scrubber = {
        "url": lambda: Scrubber.of(url=f"http://team:{quote(secret)}@sandbox.test:8080"),
        "query": lambda: Scrubber.of(url=f"http://sandbox.test/?key={quote(secret)}"),
        "header": lambda: Scrubber.of(headers={"X-Api": secret}),
        "environ": lambda: Scrubber.of(environ={"OUR_API_TOKEN": secret}),
    }[way]()
    content = written(echo_answer(place, before + secret + after), scrubber)
    assert secret.encode() not in content
    assert json.dumps(secret)[1:-1].encode() not in content


@QUIET
@given(secret=SECRETS, place=PLACES)
def test_encoded_secrets_never_reach_a_recording(secret: str, place: str) -> None:
    token = base64.b64encode(f"team:{secret}".encode()).decode()
    scrubber = Scrubber.of(
        url=f"http://team:{quote(secret)}@sandbox.test",
        headers={"authorization": f"Bearer {secret}"},
    )
    echoes = [
        token,
        quote(secret, safe=""),
        repr(secret),
        json.dumps(secret),
        f"Bearer {secret}",
        f"Basic {token}",
    ]
    content = written(echo_answer(place, " ".join(echoes)), scrubber)
    assert secret.encode() not in content
    assert token.encode() not in content
    if quote(secret, safe="") != secret:
        assert quote(secret, safe="").encode() not in content


@QUIET
@given(name=WORDS, before=AROUND, after=AROUND, place=PLACES, port=st.integers(1, 65535))
def test_the_host_of_the_target_never_reaches_a_recording(
    name: str, before: str, after: str, place: str, port: int
) -> None:
    host = f"{name}.example.org"
    scrubber = Scrubber.of(url=f"https://{host}:{port}/base-{name}")
    for echo in (
        host,
        host.upper(),
        f"{host}:{port}",
        f"https://{host}:{port}/base-{name}/run_code",
        f"root@{host}",
    ):
        content = written(
            echo_answer(place, before + echo + after), scrubber, target=f"https://{host}:{port}"
        )
        assert name.encode() not in content.lower()


@QUIET
@given(
    address=st.ip_addresses().filter(lambda one: one.version == 4 or ":" in str(one).strip(":")),
    before=AROUND,
    after=st.sampled_from(["", " ", "'", "\n", '"', ")", ", "]),
    port=st.integers(1, 65535),
)
def test_addresses_never_reach_a_recording(
    address: Any, before: str, after: str, port: int
) -> None:
    if address.version == 6 and len([part for part in str(address).split(":") if part]) < 2:
        return  # `::` and `::b` are names in C++ as well
    bracketed = f"[{address}]" if address.version == 6 else str(address)
    for echo in (str(address), f"http://{bracketed}:{port}/run_code", f"{bracketed}:{port}"):
        assert str(address) not in mask(before + echo + after)


@QUIET
@given(
    root=st.sampled_from(
        ["/home", "/root", "/srv", "/data", "/opt", "/Users", "/tmp", "/mnt", "/var", "/work", "~"]
    ),
    steps=st.lists(WORDS, min_size=1, max_size=4),
    before=AROUND,
    after=st.sampled_from(["", " ", "'", '"', "\n", ":12: error", ", line 3", ")", "/"]),
    place=PLACES,
)
def test_paths_of_a_machine_never_reach_a_recording(
    root: str, steps: list[str], before: str, after: str, place: str
) -> None:
    text = before + "/".join([root, *steps]) + after
    assert b"zq" not in written(echo_answer(place, text), Scrubber.of())


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/tmp/sfusion-x1/run-2/tmpab12cd34/tmpzz99yy88.py", "<TMP>/<TMPFILE>.py"),
        ('File "/tmp/tmpab12cd34/tmpzz99yy88.py", line 2', 'File "<TMP>/<TMPFILE>.py", line 2'),
        (
            "/home/ann/miniconda3/envs/x/lib/python3.10/site-packages/starlette/a.py",
            "<PY>/starlette/a.py",
        ),
        ("<built-in method at 0x7f12ab34cd56>", "<built-in method at 0x<ADDR>>"),
        ("x.sh: line 1:   4711 Segmentation fault", "x.sh: line 1: <PID> Segmentation fault"),
        ("worker pid=4711 died", "worker pid=<PID> died"),
        ("OPENAI_API_KEY=abc123 HOME=x", "OPENAI_API_KEY=<SECRET> HOME=x"),
        ("{'password': 'hunter2'}", "{'password': '<SECRET>'}"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer <SECRET>"),
        ("key sk-abcdefghijklmnopqrstuv in use", "key <SECRET> in use"),
        ("ghp_abcdefghijklmnopqrstuvwxyz012345", "<SECRET>"),
        ("AKIAIOSFODNN7EXAMPLE", "<SECRET>"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "<SECRET>"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "<SECRET>"),
        ("http://alice:pw@db.test:5432/x", "http://<HOST><PATH>"),
        ("alice@build-7.corp.test", "<USER>@<HOST>"),
        ("connect to 10.1.2.3:8080", "connect to <HOST>"),
        ("worker-7.prod.svc.cluster.local:80", "<HOST>"),
    ],
)
def test_machine_details_are_masked(text: str, clean: str) -> None:
    assert mask(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "/bin/bash: line 1: go: command not found",
        "No such device or address: '/dev/stdin'",
        "https://errors.pydantic.dev/2.6/v/missing",
        "a.py::test_p[2] std::cout ::1::2 10:20:30",
        "1/2 a/b </b> 3.10.12 1.2.3 v2.3.4",
        "> coderunner@1.0.0 test",
        "print(x[1:2], y[::2])",
        "no eval class found for dataset x",
        "SyntaxError: invalid syntax near unexpected token `fi'",
    ],
)
def test_harmless_text_is_kept(text: str) -> None:
    assert mask(text) == text


PARTS = (
    *(
        "/tmp/tmpab12cd34",
        "/tmpzz99yy88.py",
        "/home/x",
        "localhost:80",
        "http://",
        "10.0.0.1",
        "TOKEN=",
        "0x7f00aa11",
    ),
    *(
        "pid 12",
        "@",
        "a.internal",
        "<HOST>",
        ":80",
        "::1",
        "~/a",
        "Bearer abcdefghij",
        "<SECRET>",
        "\n",
        " ",
        "'",
    ),
)
TEXTS = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=6)), max_size=8).map("".join)


@settings(max_examples=25)
@given(TEXTS)
@example("localhost:80" * 8)
def test_scrubbing_is_idempotent(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@settings(max_examples=25)
@given(TEXTS)
@example("localhost:80" * 8)
def test_scrubbed_text_compares_equal_to_the_original(text: str) -> None:
    assert steady(mask(text)) == steady(text)


@pytest.mark.parametrize(
    "secret", ["zqsecret1", "zq/a b+c=é&d", 'zq"quoted"', "zq\\back", "zq\nline"]
)
def test_a_secret_is_masked_inside_words_and_in_any_encoding(secret: str) -> None:
    scrubber = Scrubber.of(headers={"x-key": secret})
    ways = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
    ]
    for way in ways:
        assert scrubber.text(f"x{way}y") == "x<SECRET>y"


def test_short_secrets_are_not_masked() -> None:
    assert Scrubber.of(url="http://u:pw@sandbox.test").text("pw u power") == "pw u power"


def test_an_answer_with_nothing_to_mask_keeps_its_bytes() -> None:
    body = b'{ "detail" : "caf\\u00e9", "n": 1.50 }'
    assert Scrubber.of().answer(ProbeAnswer(200, (), body)).body == body


def test_a_masked_answer_keeps_its_formatting() -> None:
    spaced = Scrubber.of().answer(ProbeAnswer(200, (), b'{"detail": "caf\\u00e9 at /srv/x"}')).body
    assert spaced == b'{"detail": "caf\\u00e9 at <PATH>"}'
    compact = (
        Scrubber.of().answer(ProbeAnswer(200, (), '{"detail":"café at /srv/x"}'.encode())).body
    )
    assert compact == '{"detail":"café at <PATH>"}'.encode()


def test_references_inside_a_document_are_no_paths() -> None:
    """The `$ref`s of /openapi.json."""
    body = b'{"$ref":"#/components/schemas/RunCodeRequest"}'
    assert Scrubber.of().answer(ProbeAnswer(200, (), body)).body == body
    outside = (
        Scrubber.of()
        .answer(ProbeAnswer(200, (), b'{"$ref":"/srv/data/x","a":"#/srv/data/x"}'))
        .body
    )
    assert b"/srv/" not in outside


def test_requests_are_masked_only_for_secrets() -> None:
    request = ProbeRequest(json={"code": "open('/srv/data')  # zq-secret-zq", "language": "python"})
    probe = Probe(id="a/b", about="Any question will do.", request=request)
    scrubber = Scrubber.of(headers={"x-key": "zq-secret-zq"})
    lines = recording_lines(
        [probe], [ProbeAnswer(200, (), b"1")], target="t", recorded_at="now", scrubber=scrubber
    )
    assert json.loads(lines[1])["request"]["json"]["code"] == "open('/srv/data')  # <SECRET>"


def test_secrets_in_a_probes_own_headers_are_masked() -> None:
    request = ProbeRequest(
        headers={"Authorization": "Bearer zqtoken1", "Cookie": "zqcookie", "accept": "text/html"},
        json={"code": "key = 'sk-zqabcdefghijklmnopqrs'", "language": "python"},
    )
    probe = Probe(id="a/b", about="Any question will do.", request=request)
    scrubber = scrubber_for("http://sandbox.test", {}, [probe])
    lines = recording_lines(
        [probe],
        [echo_answer("stdout", "zqtoken1 zqcookie")],
        target="t",
        recorded_at="now",
        scrubber=scrubber,
    )
    assert b"zq" not in "".join(lines).encode()
    assert json.loads(lines[1])["request"]["headers"]["accept"] == "text/html"


def test_no_bundled_request_contains_anything_masked_as_a_secret() -> None:
    asked = [
        (probe.id, json.dumps(probe.request.body))
        for probe in bundled_probes()
        if probe.request is not None
    ]
    assert [name for name, text in asked if "<SECRET>" in mask(text)] == []


@pytest.mark.parametrize(
    "part",
    ["a.", "/a", "a-", "x", "/tmp", "a@", "[:", ":a", "0.", "http://a", "TOKEN", "~/", "eyJ"],
)
def test_scrubbing_a_long_answer_stays_fast(part: str) -> None:
    text = part * (60_000 // len(part))
    assert len(Scrubber.of().text(text)) <= 8 * len(text)
