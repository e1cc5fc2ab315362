"""The table of models in the docs is what the templates do, and programs reach the tools
unchanged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sfusion_tools.errors import FormatError
from sfusion_tools.rollout.guess import format_of
from sfusion_tools.rollout.turns import format_parser
from tests import ROOT
from tests.templates.models import MODELS, chatml
from tests.templates.programs import compare
from tests.templates.published import PUBLISHED
from tests.templates.table import row, rows, tokenizers

pytestmark = pytest.mark.xdist_group("transformers")


def test_the_docs_have_the_table_of_models(caplog: pytest.LogCaptureFixture) -> None:
    """Run ``python -m tests.templates`` to print it."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    caplog.set_level(logging.ERROR)
    made = list(rows(MODELS, PUBLISHED))
    assert len(made) - 2 >= 40
    assert "\n".join(made) in (ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["MiniMax-M2", "Nemotron-Nano-v2", "GLM-4.7", "kimi-k3"])
def test_an_imitation_does_as_the_published_template(name: str) -> None:
    pytest.importorskip("transformers", reason="extra hf is not installed")
    assert set(PUBLISHED) <= set(MODELS)
    ((_, tokenizer),) = tokenizers({name: MODELS[name]})
    found = PUBLISHED[name]
    assert row(name, tokenizer)[1:] == (found.same, found.thinking, found.form)


def test_the_table_tells_apart_what_a_template_may_do(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="extra hf is not installed")
    none = (
        "{{ raise_exception('No tools.') if messages[-1].role == 'tool' }}" + MODELS["Hermes-2-Pro"]
    )
    thinks = chatml("qwen25", "tool", prompt="<|im_start|>assistant\n<think>\n")
    first = MODELS["Hermes-2-Pro"].replace("for c in m.tool_calls", "for c in m.tool_calls[:1]")
    found = list(rows({"none": none, "thinks": thinks, "first": first}))[2:]
    assert [line.split(" | ")[1] for line in found] == [
        "no",
        "earlier",
        "✓; parallel calls: differs",
    ]


LLAMA_TURNS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}CALL{% endfor %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
ARGUMENTS = "{{ c.function.arguments | tojson }}"


NAME = "{{ c.function.name }}"


def json_call(arguments: str = "arguments") -> str:
    return f'{{"name": "{NAME}", "{arguments}": {ARGUMENTS}}}'


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (json_call("parameters"), "llama3"),
        (f"<|python_tag|>{json_call('parameters')}", "llama3"),
        (f"<function={NAME}>{ARGUMENTS}</function>", "functionary_v31"),
        (f">>>{NAME}\n{ARGUMENTS}{{# recipient #}}", "functionary_v32"),
        (f" functools[{json_call()}]", "phi4_mini"),
        (f"<tool_call>{json_call()}</tool_call>", "hermes"),
        (f"<tool_call>{NAME}({ARGUMENTS})</tool_call>", None),
        (f"<f {NAME}>{ARGUMENTS}</f>", None),
        ("", None),
        ("{# <tool_call> #}", "hermes"),
    ],
)
def test_a_format_that_does_not_read_what_the_template_writes_is_not_guessed(
    call: str, found: str | None
) -> None:
    """All have the sign of Llama 3, which many templates have that write calls in another way.

    Of a template that writes no calls, only signs of calls tell the format.
    """
    pytest.importorskip("transformers", reason="extra hf is not installed")
    ((_, tokenizer),) = tokenizers({"x": LLAMA_TURNS.replace("CALL", call)})
    form = format_of(tokenizer)
    assert (form and form.name) == found
    if found is None:
        with pytest.raises(FormatError, match="cannot be told"):
            format_parser(tokenizer=tokenizer)


def test_the_format_is_told_if_the_prompt_ends_with_a_part_of_the_marker() -> None:
    """The tokens that prompt and turn have in common are not only those of the prompt's end."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    turns = LLAMA_TURNS.replace("{{ m.content }}", "{{ m.content if not m.tool_calls }}")
    template = turns.replace("{% endif %}", "<think>{% endif %}").replace(
        "CALL", f"<tool_call>{json_call()}</tool_call>"
    )
    ((_, tokenizer),) = tokenizers({"x": template})
    form = format_of(tokenizer)
    assert form is not None
    assert form.name == "hermes"


def test_tools_receive_the_code_that_the_model_wrote() -> None:
    """``python -m tests.templates.programs 10000`` draws more."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    assert compare(500) == 500
