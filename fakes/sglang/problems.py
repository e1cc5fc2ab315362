"""Grade-school word problems made by seed, with known answers: the rollout's data without a download."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfusion.fakes.sglang.chance import hex_id, pick, whole
from sfusion.fakes.sglang.templates import BONUS, TANK, TEMPLATES, Template
from sfusion_tools.errors import MissingExtra

__all__ = ["INSTRUCTION", "SYSTEM_PROMPT", "Problem", "problems", "prompts"]

SYSTEM_PROMPT = (
    "You are a math expert. You are given a question and you need to solve it step by step. Reasoning step by step "
    "before any tool call. You should use the `calc_gsm8k_reward` tool after step by step solving the question, before "
    "generate final answer at least once and refine your answer if necessary. Put your final answer in the format of "
    "`#### <answer>`."
)
INSTRUCTION = "Let's think step by step and output the final answer after `####`."

# The bonus is about a "he".
_MEN = ("Adam", "Carlos", "David", "Emeka", "Farid", "Hiroshi", "Ivan", "Luis", "Omar", "Peter", "Ravi", "Wei")
_WOMEN = ("Aisha", "Anna", "Chioma", "Elena", "Fatima", "Grace", "Ingrid", "Keiko", "Maria", "Priya", "Sofia", "Zoe")
_JOHN = {"last": 100_000, "bonus": 10_000, "pay": 200_000}
_JOHNS_TRUTH = "220000"
"""As the data set writes it. The program prints 220000.0, so strict scoring says 0: that is the plan's own sample."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem: what is asked, what is true, and a program that finds out."""

    id: str
    question: str
    ground_truth: str
    code: str
    prints: str
    """What the program prints: the answer, not always spelt like the ground truth."""

    def messages(self) -> list[dict[str, str]]:
        """The conversation that a rollout starts with."""
        return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": self.question}]


def problems(seed: int, count: int) -> list[Problem]:
    """So many problems; the first is always John's bonus, and a longer list begins with the shorter one."""
    if count < 0:
        raise ValueError(f"count is {count}, but a list of problems has 0 or more")
    made = [replace(_problem("john-bonus", BONUS, "John", _JOHN), ground_truth=_JOHNS_TRUTH)] if count else []
    for number in range(1, count):
        key = (seed, "problem", number)
        template = pick(TEMPLATES, *key, "kind")
        name = pick(_MEN if template is BONUS else _MEN + _WOMEN, *key, "name")
        made.append(_problem(f"{template.kind}-{number}", template, name, _numbers(template, key)))
    return made


def _problem(id: str, template: Template, name: str, numbers: dict[str, int]) -> Problem:
    question = f"{template.ask(name, numbers)} {INSTRUCTION}"
    answer = template.answer(numbers)
    return Problem(id, question, answer, template.code(numbers), answer)


def _numbers(template: Template, key: tuple[int, str, int]) -> dict[str, int]:
    numbers = {
        field: low + step * whole(0, (high - low) // step, *key, field)
        for field, (low, high, step) in template.ranges.items()
    }
    if template is BONUS:
        numbers["bonus"] = numbers["last"] // 100 * whole(2, 25, *key, "percent")
    if template is TANK:
        numbers["full"] = (numbers["tap"] - numbers["leak"]) * whole(8, 40, *key, "minutes")
    return numbers


def prompts(
    seed: int, count: int, locales: tuple[str, ...] = ("en_US", "de_DE", "ja_JP")
) -> list[list[dict[str, str]]]:
    """So many conversation openings as strangers write them: names, places, scripts and odd requests by Faker."""
    try:
        from faker import Faker
    except ImportError as error:
        raise MissingExtra("prompts()", "faker", error) from error
    fakers = {locale: Faker(locale) for locale in locales}
    made: list[list[dict[str, str]]] = []
    for number in range(count):
        key = (seed, "prompt", number)
        faker = fakers[pick(locales, *key, "locale")]
        faker.seed_instance(whole(0, 2**31, *key, "text"))
        wish = pick(_WISHES, *key, "wish").format(
            name=faker.name(), city=faker.city(), company=faker.company(), word=faker.word(), text=faker.sentence()
        )
        made.append(
            [
                {"role": "system", "content": f"You help {faker.name()}. Session {hex_id(8, *key)}."},
                {"role": "user", "content": wish},
            ]
        )
    return made


_WISHES = (
    "{name} of {company} asks: how many letters are in “{text}”?",
    "Write the name of {city} backwards with code.",
    "Run `print({word!r} * 3)` and tell me what it printed.",
    "{text}\n\nCount the words above, please.",
    "I am {name}. What is 17% of the number of letters in {city}?",
)
