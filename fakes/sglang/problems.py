"""Grade-school word problems by seed, with known answers: data for rollouts without a download."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfusion.fakes.sglang.keyed_digest import hex_id, pick, whole
from sfusion.fakes.sglang.templates import BONUS, TANK, TEMPLATES, Template
from sfusion_tools.errors import MissingExtra

__all__ = ["INSTRUCTION", "SYSTEM_PROMPT", "WordProblem", "problems", "prompts"]

SYSTEM_PROMPT = (
    "You are a math expert. You are given a question and you need to solve it step by step. Reasoning step by step "
    "before any tool call. You should use the `calc_gsm8k_reward` tool after step by step solving the question, before "
    "generate final answer at least once and refine your answer if necessary. Put your final answer in the format of "
    "`#### <answer>`."
)
INSTRUCTION = "Let's think step by step and output the final answer after `####`."

# The bonus problem says "he".
_MEN = ("Adam", "Carlos", "David", "Emeka", "Farid", "Hiroshi", "Ivan", "Luis", "Omar", "Peter", "Ravi", "Wei")
_WOMEN = ("Aisha", "Anna", "Chioma", "Elena", "Fatima", "Grace", "Ingrid", "Keiko", "Maria", "Priya", "Sofia", "Zoe")
_JOHN = {"last": 100_000, "bonus": 10_000, "pay": 200_000}
_JOHNS_TRUTH = "220000"
"""As in the data set. The program prints 220000.0, so strict scoring gives 0, as in verl's original design."""


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A word problem with its answer, and a program that computes it."""

    id: str
    question: str
    ground_truth: str
    code: str
    prints: str
    """The output of the program: the answer, not always spelt like the ground truth."""

    def messages(self) -> list[dict[str, str]]:
        """Return the first messages of a rollout."""
        return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": self.question}]


def problems(seed: int, count: int) -> list[WordProblem]:
    """Return ``count`` problems. The first is always John's bonus, and a longer list begins with the shorter one."""
    if count < 0:
        raise ValueError(f"count must be at least 0, found {count}")
    made = [replace(_problem("john-bonus", BONUS, "John", _JOHN), ground_truth=_JOHNS_TRUTH)] if count else []
    for number in range(1, count):
        key = (seed, "problem", number)
        template = pick(TEMPLATES, *key, "kind")
        name = pick(_MEN if template is BONUS else _MEN + _WOMEN, *key, "name")
        made.append(_problem(f"{template.kind}-{number}", template, name, _numbers(template, key)))
    return made


def _problem(id: str, template: Template, name: str, numbers: dict[str, int]) -> WordProblem:
    question = f"{template.ask(name, numbers)} {INSTRUCTION}"
    answer = template.answer(numbers)
    return WordProblem(id, question, answer, template.code(numbers), answer)


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
    """Return ``count`` varied first messages, with names, places and text from Faker. Needs the extra ``faker``."""
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
        request = pick(_REQUESTS, *key, "wish").format(
            name=faker.name(), city=faker.city(), company=faker.company(), word=faker.word(), text=faker.sentence()
        )
        made.append(
            [
                {"role": "system", "content": f"You help {faker.name()}. Session {hex_id(8, *key)}."},
                {"role": "user", "content": request},
            ]
        )
    return made


_REQUESTS = (
    "{name} of {company} asks: how many letters are in “{text}”?",
    "Write the name of {city} backwards with code.",
    "Run `print({word!r} * 3)` and tell me what it printed.",
    "{text}\n\nCount the words above, please.",
    "I am {name}. What is 17% of the number of letters in {city}?",
)
