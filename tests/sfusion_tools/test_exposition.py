"""Our Prometheus page, read by Prometheus' own parser."""

from __future__ import annotations

import math
import string

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sfusion_tools.exposition import by_label, render, single


def parsed(page: str) -> dict[str, tuple[str, str, list[tuple[str, dict[str, str], float]]]]:
    return {
        family.name: (
            family.type,
            family.documentation,
            [(s.name, s.labels, s.value) for s in family.samples],
        )
        for family in text_string_to_metric_families(page)
    }


def test_the_page_looks_as_the_format_says() -> None:
    page = render(
        [
            by_label(
                "sfusion_x_requests_total", "counter", "Requests.", "status", {"200": 3, "none": 1}
            ),
            single("sfusion_x_uptime_seconds", "gauge", "Seconds.", 1.5),
        ],
        {"limiter": "l"},
    )
    assert page == (
        "# HELP sfusion_x_requests_total Requests.\n"
        "# TYPE sfusion_x_requests_total counter\n"
        'sfusion_x_requests_total{limiter="l",status="200"} 3\n'
        'sfusion_x_requests_total{limiter="l",status="none"} 1\n'
        "# HELP sfusion_x_uptime_seconds Seconds.\n"
        "# TYPE sfusion_x_uptime_seconds gauge\n"
        'sfusion_x_uptime_seconds{limiter="l"} 1.5\n'
    )
    assert parsed(page)["sfusion_x_requests"] == (
        "counter",
        "Requests.",
        [
            ("sfusion_x_requests_total", {"limiter": "l", "status": s}, n)
            for s, n in (("200", 3.0), ("none", 1.0))
        ],
    )


ODD = [
    "",
    '"',
    "\\",
    "\\n",
    "\n",
    'a"b\\c\nd',
    "}",
    "{x=1} 7",
    "# TYPE x counter",
    "ünï 🙂",
    " , ",
    "\t",
    "\\\\\\",
    '="',
]


@given(
    st.lists(
        st.one_of(st.sampled_from(ODD), st.text(string.printable + '"\\\n{}ä🙂', max_size=12)),
        unique=True,
    )
)
def test_any_label_value_and_any_help_survive(values: list[str]) -> None:
    help = " ".join("".join(values).split())
    families = parsed(
        render([by_label("rules_total", "counter", help, "rule", dict.fromkeys(values, 2))])
    )
    _, found_help, samples = families["rules"]
    assert found_help == help
    assert [labels["rule"] for _, labels, _ in samples] == values


def test_what_the_format_cannot_say_does_not_break_the_page() -> None:
    page = render([by_label("a_total", "counter", "Half \ud83d", "rule", {"half \ud83d": 1})])
    page.encode()
    assert [value for _, _, value in parsed(page)["a"][2]] == [1]


@example(-math.inf)
@example(1e300)
@given(st.one_of(st.integers(-(10**18), 10**18), st.floats()))
def test_any_number_survives(number: float) -> None:
    ((_, _, value),) = parsed(render([single("n", "gauge", "N.", number)]))["n"][2]
    assert float(value) == float(number) or (math.isnan(value) and math.isnan(number))
