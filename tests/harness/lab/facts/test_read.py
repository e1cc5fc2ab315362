"""A text in any layout and language is right if it holds what happened; anything else is found, by
kind."""

from __future__ import annotations

import html
import json

from sfusion.harness.lab.facts.canary import long_text, token, tokens_in
from sfusion.harness.lab.facts.read import exits, integers, normal_wording, read_text
from sfusion.harness.lab.facts.truth import ProgramTruth

A, B, C, E = (token("test", name) for name in "abce")
OUT = f'  {A}\n\n    é漢字 🙂 {B}  \n\t"{C}" <&>\n'
ERR = f"Warning: {E}"
TRUTH = ProgramTruth(OUT, ERR, 3)
LONG = ProgramTruth(long_text(30_000, "long"))
S = LONG.stdout


def kinds(text: str, truth: ProgramTruth = TRUTH) -> list[str]:
    return [one.kind for one in read_text(text, truth).wrong]


RIGHT = {
    "plain": f"{OUT}{ERR}",
    "end stripped": f"{OUT.rstrip()}\n{ERR}\n[exit 3]",
    "tagged": f"<stdout>{OUT}</stdout><stderr>{ERR}</stderr>",
    "escaped": f"<out>{html.escape(OUT)}</out><err>{ERR}</err>",
    "json": json.dumps({"stdout": OUT, "stderr": ERR, "exit_code": 3}),
    "json of another language": json.dumps({"ausgabe": OUT, "fehler": ERR}, ensure_ascii=False),
    "inside a sentence": f"结果：{json.dumps(OUT)}，错误：{json.dumps(ERR)}",
    "python": repr({"out": OUT, "err": ERR}),
    "labelled, stderr first": f"STDERR:\n{ERR}\nSTDOUT:\n{OUT}",
    "a missing value with its name": f"{OUT}{ERR}\nfiles: None",
    "quoted": "\n".join(f"> {line}" for line in [*OUT.splitlines(), *ERR.splitlines()]),
}


def test_right_texts_are_not_accused() -> None:
    assert {name: found for name, text in RIGHT.items() if (found := kinds(text))} == {}


WRONG = {
    "no stderr": (OUT, ["missing"]),
    "nothing": ("", ["missing", "missing"]),
    "stripped": (f"{OUT.strip()}\n{ERR}\n[exit 3]", ["changed"]),
    "last character": (f"{OUT.rstrip()[:-1]}\n{ERR}", ["changed"]),
    "last of stderr": (f"{OUT}{ERR[:-1]}", ["changed"]),
    "a line less": (f"{OUT.replace(chr(10) * 2, chr(10))}{ERR}", ["changed"]),
    "blanks lost": (f"{OUT.replace('    é', 'é')}{ERR}", ["changed"]),
    "lines sorted": ("\n".join(sorted(OUT.splitlines())) + ERR, ["changed", "scrambled"]),
    "twice": (OUT + OUT + ERR, ["repeated"]),
    "another call's": (f"{OUT}{ERR}\n{token('other')}", ["foreign"]),
    "stderr first": (f"{ERR}\n{OUT}", ["stderr_first"]),
    "upper case": ((OUT + ERR).upper(), ["changed", "missing"]),
    "escaped without markup": (html.escape(OUT) + ERR, ["changed", "scrambled"]),
    "an insertion": (OUT.replace(B, f"{B}&nbsp;") + ERR, ["inserted"]),
    "a missing value": (f"{OUT.rstrip()}\n{ERR}\nNone", ["null"]),
    "question marks": (f"{OUT}{ERR}".encode("ascii", "replace").decode(), ["changed"]),
}


def test_wrong_texts_are_found() -> None:
    assert {name: kinds(text) for name, (text, _) in WRONG.items()} == {
        name: found for name, (_, found) in WRONG.items()
    }


def gone(kept: str) -> int:
    return len(S) - len(kept)


CUT = {
    "head": f"{S[:9000]}\n[… {gone(S[:9000])} characters cut]",
    "tail": f"(only the last {9000} of {len(S):,} characters)\n{S[-9000:]}",
    "middle": f"{S[:5000]}\n<<{gone(S[:5000] + S[-4000:])}>>\n{S[-4000:]}",
    "to a limit": f"{S[:9960]}\n(truncated to 10000)",
    "bytes": f"{S[:9000]}\n{len(S[9000:].encode())} bytes omitted",
    "lines": f"{chr(10).join(S.splitlines()[:100])}\n… {len(S.splitlines()) - 100} lignes de plus",
    "chinese": f"（省略了{gone(S[-700:])}个字符）{S[-700:]}",
}
BAD_CUT = {
    "silent": (S[:9000], ["cut_silently"]),
    "middle, silent": (S[:5000] + S[-4000:], ["changed"]),
    "no number": (f"{S[:9000]}\n(truncated)", ["cut_unnumbered"]),
    "one too few": (f"{S[:9000]}\n[{gone(S[:9000]) - 1} characters cut]", ["cut_untrue"]),
    "one too many": (
        f"{S[:5000]}\n[{gone(S[:5000] + S[-4000:]) + 1} cut]\n{S[-4000:]}",
        ["cut_untrue"],
    ),
    "what is left as if it were missing": (
        f"{S[:5000]}\n[10000 characters cut]\n{S[-5000:]}",
        ["cut_untrue"],
    ),
    "bytes called characters": (
        f"{S[:9000]}\n[{len(S[9000:].encode())} more characters were cut]",
        ["cut_untrue"],
    ),
    "characters called bytes": (f"{S[:9000]}\n[{gone(S[:9000])} bytes cut]", ["cut_untrue"]),
    "half a character": (f"{S[:9000]}\ufffd\n[… {gone(S[:9000])} characters cut]", ["changed"]),
}


def test_a_cut_that_tells_a_true_number_is_right() -> None:
    assert {name: found for name, text in CUT.items() if (found := kinds(text, LONG))} == {}


def test_a_cut_that_does_not_is_found() -> None:
    assert {name: kinds(text, LONG) for name, (text, _) in BAD_CUT.items()} == {
        name: found for name, (_, found) in BAD_CUT.items()
    }


def test_warnings_of_a_program_that_succeeded_may_be_left_out_but_not_in_part() -> None:
    succeeded = ProgramTruth(OUT, ERR)
    assert kinds(OUT, succeeded) == []
    assert kinds(OUT + ERR[:-1], succeeded) == ["changed"]
    assert kinds(OUT) == ["missing"]


def test_a_missing_value_in_place_of_an_empty_output_is_found() -> None:
    assert kinds("None", ProgramTruth()) == ["null"]
    assert kinds("None was printed.", ProgramTruth()) == []
    assert kinds(f"{A}\nNone", ProgramTruth(f"{A}\nNone\n")) == []


def test_the_wording_is_what_the_tool_says_itself() -> None:
    reading = read_text(f"{OUT}{ERR}\n[exit 3 after 0.25 s, 12 ms]", TRUTH)
    assert integers(reading.wording) & exits(3) == {3}
    assert normal_wording(reading.wording) == "[exit 3 after # s, # ms]"
    assert exits(-9) == {-9, 9, 137}
    assert integers("code -9, 1,234 of 3.5 x2 7") == {-9, 1234, 7}


def test_long_texts_are_unique_everywhere_and_of_the_given_size() -> None:
    for size in (500, 501, 30_000):
        text = long_text(size, "x")
        assert len(text) == size
        assert text == text.strip()
        assert len(tokens_in(text)) == 2
