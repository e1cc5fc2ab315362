"""A conversation about 152 students, with two programs and three replies."""

from __future__ import annotations

from sfusion.fakes.sglang import ScriptedPolicy, ScriptedTurn, ToolCall

QUESTION = (
    "Of 152 students, 100 take Math, 94 take Science and 57 take English. 73 take Math and "
    "Science, 24 Math and "
    "English, 27 Science and English, and 22 take all three. How many take none of them?"
)

COUNT = """\
math, science, english = 100, 94, 57
math_science, math_english, science_english, every = 73, 24, 27, 22
at_least_one = math + science + english - math_science - math_english - science_english + every
print(152 - at_least_one)
"""

CHECK = """\
every = 22
only_pairs = [73 - every, 24 - every, 27 - every]
ms, me, se = only_pairs
only = [100 - ms - me - every, 94 - ms - se - every, 57 - me - se - every]
print(sum(only) + sum(only_pairs) + every)
"""


def students() -> ScriptedPolicy:
    """Return a model that counts, checks by categories, and answers once it has seen both
    numbers."""
    return ScriptedPolicy(
        [
            ScriptedTurn(
                "I count those in at least one course.",
                (ToolCall("code_interpreter", {"code": COUNT}),),
                turn=0,
            ),
            ScriptedTurn(
                "I check it by categories.",
                (ToolCall("code_interpreter", {"code": CHECK}),),
                tool_result=r"^3\n",
            ),
            ScriptedTurn("<answer>152 - 149 = 3, so \\boxed{3}</answer>", tool_result=r"^149\n"),
        ]
    )
