"""The expressions of -k."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.harness.commandline.keyword import read_keyword
from sfusion.harness.errors import BadOption

NAMES = ["rotten-hang", "oversize-model", "single-node", "multi-node[nodes=2,rate_limit=4]"]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", NAMES),
        ("rotten", NAMES[:1]),
        ("ROTTEN", NAMES[:1]),
        ("rate_limit=4", NAMES[3:]),
        ("not (rotten or oversize)", NAMES[2:]),
        ("not rotten and not oversize", NAMES[2:]),
        ("not not rotten", NAMES[:1]),
        ("node and (multi or rotten)", NAMES[3:]),
        ("rotten or oversize and model", NAMES[:2]),
        ("(rotten or oversize) and hang", NAMES[:1]),
        ("rotten\nor Node[NODES=2,", [NAMES[0], NAMES[3]]),
        ("android or notes or orbit or node", NAMES[2:]),
    ],
)
def test_expressions_mean_what_they_mean_to_pytest(text: str, chosen: list[str]) -> None:
    assert list(filter(read_keyword(text), NAMES)) == chosen


@pytest.mark.parametrize(
    "text", ["not", "(rotten", "rotten)", "rotten hang", "or rotten", "()", "node(rotten)"]
)
def test_an_expression_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadOption) as error:
        read_keyword(text)
    assert (
        str(error.value)
        == f"-k {text!r}: expected words, joined by `and`, `or`, `not` and parentheses"
    )


expressions = st.recursive(
    st.sampled_from(["rotten", "node", "o", "zzz"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not {one}"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=25)
@given(expressions)
def test_expressions_have_pythons_precedence(text: str) -> None:
    for name in NAMES:
        words = {word: word in name for word in ("rotten", "node", "o", "zzz")}
        assert read_keyword(text)(name) == eval(text, {}, words)
