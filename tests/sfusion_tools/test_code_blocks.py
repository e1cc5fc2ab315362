"""The program in a generation: fenced blocks as models write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.code_blocks import extract_code

IN_DOCSTRING = "def f():\n    '''Run\n\n    ```\n    f()\n    ```\n    '''\n"


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("print(1)", "python", "print(1)"),
        ("a\n```python\nprint(1)\n```\nb", "python", "print(1)\n"),
        ("```py\n1\n```\n```python\n2\n```", "python", "2\n"),
        ("```python\n1\n```\n```\noutput\n```", "python", "1\n"),
        ("```\n1\n```\n```text\n2\n```", "python", "2\n"),
        ("```python\n1\n```\n```cpp\nint main(){}\n```", "cpp", "int main(){}\n"),
        ("```c++\nint main(){}\n```\n```python\n1\n```", "cpp", "int main(){}\n"),
        ("```javascript\n1\n```\n```\n2\n```", "nodejs", "1\n"),
        ("```Go\n1\n```\n```\n2\n```", "go", "1\n"),
        ("```python\r\n1\r\n```", "python", "1\r\n"),
        ("```python\r\n1\r\n```\r\nDone.\r\n", "python", "1\r\n"),
        ("~~~python\nprint('''\n```\n''')\n~~~", "python", "print('''\n```\n''')\n"),
        ("````python\n'''\n```\n'''\n````", "python", "'''\n```\n'''\n"),
        ("1. Run\n   ```python\n   if 1:\n       2\n   ```", "python", "if 1:\n    2\n"),
        ('```python title="a.py"\n1\n```\n```\n2\n```', "python", "1\n"),
        ("```python:a.py\n1\n```\n```\n2\n```", "python", "1\n"),
        ("```{.python .numberLines}\n1\n```\n```\n2\n```", "python", "1\n"),
        ("``` Python\n1\n```\n```\n2\n```", "python", "1\n"),
        ("```python\nprint(1)```\nIt prints:\n```\n1\n```", "python", "print(1)"),
        ("```python\n# as in ```f(1)```\n1\n```", "python", "# as in ```f(1)```\n1\n"),
        ("use ```x``` here", "python", "use ```x``` here"),
        ("```markdown\nSee:\n```python\n1\n```\n```", "python", "1\n"),
        ("````markdown\n```python\n1\n```\n````", "python", "1\n"),
        (f"```python\n{IN_DOCSTRING}```", "python", IN_DOCSTRING),
        ("<answer>```python\nif 1:\n    2\n```</answer>", "python", "if 1:\n    2\n"),
        ("<answer>```python\nif 1:\n    2\n```\n</answer>\nDone", "python", "if 1:\n    2\n"),
        ("Answer: ```python\nif 1:\n    2\n```", "python", "if 1:\n    2\n"),
        ("Answer: ```c++\nint main(){}\n```", "cpp", "int main(){}\n"),
        ("1. ```python\n   if 1:\n       2\n   ```", "python", "if 1:\n    2\n"),
        ("- ```py\nif 1:\n    2\n```", "python", "if 1:\n    2\n"),
        ("> ```python\n> if 1:\n>     2\n>\n> 3\n> ```\n> Done", "python", "if 1:\n    2\n\n3\n"),
        ("Answer: ```python\nx = 1\n\nThis is it.", "python", "x = 1\n"),
        (
            '```python\ns = """See ```python\nf()\n"""\n```',
            "python",
            's = """See ```python\nf()\n"""\n',
        ),
        (
            '```python\ns = """\n```\nx\n```\n"""\nprint(s)\n```',
            "python",
            's = """\n```\nx\n```\n"""\nprint(s)\n',
        ),
        (
            "```python\ns = '''\n```python\n1\n```\n'''\n```\nend",
            "python",
            "s = '''\n```python\n1\n```\n'''\n",
        ),
        ('```python\ns = "\'\'\'"  # """\n```\n```text\n2\n```', "python", 's = "\'\'\'"  # """\n'),
        ("```python\ns = '''\n```\n```python\n2\n```", "python", "2\n"),
        ("```\ns = '''a\n```\n'''\n```", "python", "s = '''a\n```\n'''\n"),
        ("Use ```x``` in ```y", "python", "Use ```x``` in ```y"),
        ("   ```python\nif 1:\n  2\n   ```", "python", "if 1:\n  2\n"),
    ],
)
def test_the_code_is_extracted_from_a_generation(text, language, code):
    assert extract_code(text, language) == code


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("```python\nprint(1)", "python", "print(1)"),
        ("```\nprint(1)\n\nThis prints one.", "python", "print(1)\n"),
        ("```python\nx = 1\n\nDone", "python", "x = 1\n"),
        ("```python\nx = 1\nNote: this is fine", "python", "x = 1"),
        ("```python\nx = 1\n\nOutput:\n```text\n1\n```", "python", "x = 1\n"),
        ("```python\nx = 1\n```python\ny = 2\n```", "python", "y = 2\n"),
        ("```python\nx = 1\n```\nBetter:\n```python\ny = 2", "python", "y = 2"),
        ("```python\nx = 1\n```\n```", "python", "x = 1\n"),
        ("```python\ndef f(:\n    pass", "python", "def f(:\n    pass"),
        ("```python\nDone", "python", "Done"),
        ("```python\ns = '\\d'\nprint(s)\nThe end.", "python", "s = '\\d'\nprint(s)"),
        ("```cpp\nint main(){}\n\nOutput:\n```text\n1\n```", "cpp", "int main(){}\n\nOutput:"),
    ],
)
def test_an_unclosed_block_ends_where_the_text_stops_being_code(text, language, code):
    assert extract_code(text, language) == code


PROSE = "This doesn't print (as it should) the model's first number, which is 3; it's \"fine\".\n"


@pytest.mark.parametrize("lines", [1, 400, 4000])
def test_prose_of_any_length_after_an_unclosed_block_is_left_out(lines):
    code = "def f(x):\n    return x + 1\n" * 20
    assert extract_code(f"```python\n{code}\n{PROSE * lines}") == code


def test_long_code_in_an_unclosed_block_is_kept():
    code = "x = 1\n" * 20_000
    assert extract_code(f"```python\n{code}") == code


@pytest.mark.parametrize(
    "piece",
    ["(", "-", "a.", "1+", "[", "@a\n", "if x:\n", "lambda:", "```python\n", "```", "~~~ x\n"],
)
def test_hostile_text_is_read_in_bounded_time(piece):
    for size in (19_000, 200_000):
        assert extract_code(f"```python\n{piece * (size // len(piece))}")


@settings(max_examples=80)
@given(st.text("`~ \n\rpy{}()a1:#\x0c\u2028", max_size=60), st.sampled_from(["python", "cpp"]))
def test_code_is_always_a_part_of_the_text(text, language):
    """Except for the indentation of its fence."""
    code = extract_code(text, language)
    assert all(line.strip() in text for line in code.split("\n"))
