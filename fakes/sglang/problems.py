"""Grade-school word problems by seed, with known answers: data for rollouts without a download."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from sfusion_tools.errors import import_extra

from .keyed_digest import hex_id, pick, whole

Numbers = Mapping[str, int]

_ESCAPED_FIELD = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True)
class Template:
    """One kind of word problem.

    ``text`` contains ``{name}`` and numbers; the pattern that reads a question back is made from
    the same text, so a solver needs nothing but the question. ``answer`` computes the answer
    without running ``code``.
    """

    kind: str
    text: str
    ranges: Mapping[str, tuple[int, int, int]]
    """The least and the greatest value of each number, and the step between values."""
    code: tuple[str, ...]
    """The lines of a program, with places for numbers and facts."""
    answer: Callable[[Numbers], str]
    thought: str
    closing: str = "The program printed {result}, and that is what was asked for.\n"
    facts: Callable[[Numbers], Mapping[str, str]] = field(default=lambda numbers: {})
    extra_arguments: Mapping[str, str] = field(default_factory=dict)

    def read(self, question: str) -> tuple[str, dict[str, int]] | None:
        """Return the name and the numbers in a question; None if it is of another kind."""
        found = _pattern(self.text).search(question)
        if found is None:
            return None

        groups = found.groupdict()
        name = groups.pop("name")
        return name, {key: int(value.replace(",", "")) for key, value in groups.items()}

    def program(self, numbers: Numbers) -> str:
        """Return the program that computes the answer for these numbers."""
        places = {**numbers, **self.facts(numbers)}
        return "\n".join(self.code).format(**places)

    def fill(self, text: str, name: str, numbers: Numbers, **more: str) -> str:
        """Put what is known about a problem into ``text``, ``thought`` or ``closing``."""
        written = {key: f"{value:,}" for key, value in numbers.items()}
        places = {**written, **self.facts(numbers), **more}
        return text.format(name=name, **places)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that reads a question back; a repeated field must repeat its value."""
    seen: set[str] = set()

    def group(found: re.Match[str]) -> str:
        key = found[1]
        if key in seen:
            return f"(?P={key})"
        seen.add(key)
        if key == "name":
            return rf"(?P<{key}>[^\W\d_][\w.'’\- ]*?)"
        return rf"(?P<{key}>\d[\d,]*)"

    return re.compile(_ESCAPED_FIELD.sub(group, re.escape(text)))


def _percent(numbers: Numbers) -> int:
    return numbers["bonus"] * 100 // numbers["last"]


def _bonus_facts(numbers: Numbers) -> dict[str, str]:
    percent = _percent(numbers)
    pay = numbers["pay"]
    bonus = pay * percent // 100
    return {
        "percent": str(percent),
        "fraction": str(numbers["bonus"] / numbers["last"]),
        "pay_bonus": f"{bonus:,}",
        "total": f"{pay + bonus:,}",
    }


BONUS = Template(
    kind="bonus",
    text=(
        "{name} gets a bonus that's the same percentage every year.  Last year he made ${last} "
        "and got a ${bonus} bonus.  This year he makes ${pay}.  How much will {name} make this "
        "year when adding both his total pay and bonus together?"
    ),
    # _numbers derives the bonus from last year's pay, so that the percentage is a whole number.
    ranges={"last": (40_000, 180_000, 10_000), "pay": (50_000, 300_000, 10_000)},
    code=(
        "total_pay_this_year = {pay}",
        "bonus_percentage = {percent} / 100",
        "bonus_this_year = total_pay_this_year * bonus_percentage",
        "total_income_this_year = total_pay_this_year + bonus_this_year",
        "print(total_income_this_year)",
    ),
    answer=lambda n: str(n["pay"] + n["pay"] * (_percent(n) / 100)),
    facts=_bonus_facts,
    thought=(
        "Okay, let's see. {name} gets a bonus that's the same percentage every year. Last "
        "year, he made ${last} and got a ${bonus} bonus. This year, he makes ${pay}. The "
        "question is asking how much he'll make this year when adding both his total pay and "
        "bonus together.\n\n"
        "First, I need to figure out the percentage bonus he gets. Since the bonus is the same "
        "percentage each year, if I can find that percentage based on last year's details, I "
        "can apply it to this year's earnings to find this year's bonus. Then, I'll add that "
        "bonus to his total pay this year.\n\n"
        "Last year, he earned ${last} and got a ${bonus} bonus. To find the percentage, I can "
        "divide the bonus by his total earnings. So, {bonus} divided by {last}. Let me "
        "calculate that.\n\n"
        "{bonus} / {last} equals {fraction}, which is {percent}% as a percentage. So, his "
        "bonus is {percent}% of his pay each year.\n\n"
        "This year, he makes ${pay}. So, the bonus this year would be {percent}% of {pay}. Let "
        "me compute that using the code interpreter to ensure accuracy.\n"
    ),
    closing=(
        "So the code shows that {name}'s total income this year would be ${total}. This is "
        "consistent with the {percent}% bonus on last year's pay of ${last}, which was "
        "${bonus}. Therefore, this year's bonus of ${pay_bonus} added to his total pay of "
        "${pay} results in a total income of ${total}.\n\n"
        "I need to verify that there are no other factors at play. The problem states it's a "
        "constant percentage bonus each year, so there's no mention of changing percentages or "
        "other variables. Therefore, applying a straightforward percentage of {percent}% on "
        "this year's partial salary amount would result in ${pay_bonus}. Adding that to his "
        "total pay gives ${total}. The calculation is correct and aligns with the question's "
        "parameters.\n"
    ),
    extra_arguments={"executes": "True"},
)

CHANGE = Template(
    kind="change",
    text=(
        "{name} buys {books} notebooks for ${book} each and {pens} pens for ${pen} each and "
        "hands over ${paid}. How many dollars does {name} get back?"
    ),
    ranges={
        "books": (2, 9, 1),
        "book": (3, 8, 1),
        "pens": (3, 12, 1),
        "pen": (1, 4, 1),
        "paid": (130, 200, 10),
    },
    code=(
        "notebooks = {books} * {book}",
        "pens = {pens} * {pen}",
        "print({paid} - notebooks - pens)",
    ),
    answer=lambda n: str(n["paid"] - n["books"] * n["book"] - n["pens"] * n["pen"]),
    thought=(
        "The notebooks cost {books} times ${book}, the pens {pens} times ${pen}. What is left "
        "of ${paid} is the change. I will let the interpreter do the sums.\n"
    ),
)

ROAD = Template(
    kind="road",
    text=(
        "{name} drives {first} hours at {slow} miles per hour, rests, and then drives {second} "
        "hours at {fast} miles per hour. How many miles did {name} drive?"
    ),
    ranges={"first": (2, 6, 1), "slow": (30, 50, 5), "second": (1, 5, 1), "fast": (55, 75, 5)},
    code=(
        "legs = [({first}, {slow}), ({second}, {fast})]",
        "print(sum(hours * speed for hours, speed in legs))",
    ),
    answer=lambda n: str(n["first"] * n["slow"] + n["second"] * n["fast"]),
    thought=(
        "Two legs: {first} hours at {slow} and {second} hours at {fast}; resting covers no "
        "ground. I add them.\n"
    ),
)

EGGS = Template(
    kind="eggs",
    text=(
        "{name} keeps {hens} hens and each of them lays {eggs} eggs a week. The family eats "
        "{eaten} eggs a week, and the others are sold at {cents} cents an egg. How many "
        "dollars does {name} earn in {weeks} weeks?"
    ),
    ranges={
        "hens": (12, 30, 1),
        "eggs": (4, 6, 1),
        "eaten": (10, 40, 2),
        "cents": (25, 60, 5),
        "weeks": (2, 10, 2),
    },
    code=(
        "sold = {hens} * {eggs} - {eaten}",
        "cents = sold * {cents} * {weeks}",
        "print(cents / 100)",
    ),
    answer=lambda n: str((n["hens"] * n["eggs"] - n["eaten"]) * n["cents"] * n["weeks"] / 100),
    thought=(
        "{hens} hens lay {eggs} eggs each, {eaten} of them are eaten. The rest is sold at "
        "{cents} cents, for {weeks} weeks. In dollars that is a hundredth of the cents.\n"
    ),
)

SAVINGS = Template(
    kind="savings",
    text=(
        "{name} puts ${weekly} aside every week for {weeks} weeks and then spends a quarter of "
        "it on a bicycle. An aunt gives {name} another ${gift}. How many dollars does {name} "
        "have now?"
    ),
    ranges={"weekly": (8, 40, 4), "weeks": (5, 26, 1), "gift": (10, 90, 5)},
    code=(
        "saved = {weekly} * {weeks}",
        "left = saved - saved // 4",
        "print(left + {gift})",
    ),
    answer=lambda n: str(n["weekly"] * n["weeks"] * 3 // 4 + n["gift"]),
    thought=(
        "After {weeks} weeks at ${weekly} there is a sum of which three quarters stay; the "
        "aunt's ${gift} come on top. Let me run it.\n"
    ),
)

SCORES = Template(
    kind="scores",
    text=(
        "{name} scored {a}, {b} and {c} points in three games and wants to have {goal} points "
        "on average after four. How many points does {name} need in the fourth game?"
    ),
    ranges={"a": (10, 30, 1), "b": (10, 30, 1), "c": (10, 30, 1), "goal": (25, 40, 1)},
    code=("scores = [{a}, {b}, {c}]", "print(4 * {goal} - sum(scores))"),
    answer=lambda n: str(4 * n["goal"] - n["a"] - n["b"] - n["c"]),
    thought=(
        "Four games at {goal} make a total; what {a}, {b} and {c} leave of it is the fourth game.\n"
    ),
)

TANK = Template(
    kind="tank",
    text=(
        "A tank in {name}'s garden holds {full} litres. A tap fills it with {tap} litres a "
        "minute while a leak loses {leak} litres a minute. How many minutes until {name}'s "
        "empty tank is full?"
    ),
    # _numbers sets the tank to a multiple of the gain per minute, so that the minutes are whole.
    ranges={"tap": (12, 30, 1), "leak": (2, 9, 1)},
    code=(
        "minutes = level = 0",
        "while level < {full}:",
        "    level += {tap} - {leak}",
        "    minutes += 1",
        "print(minutes)",
    ),
    answer=lambda n: str(n["full"] // (n["tap"] - n["leak"])),
    thought=(
        "Every minute {tap} litres come and {leak} go. I will simulate it until {full} litres "
        "are reached.\n"
    ),
)

TEMPLATES = (BONUS, CHANGE, ROAD, EGGS, SAVINGS, SCORES, TANK)


SYSTEM_PROMPT = (
    "You are a math expert. You are given a question and you need to solve it step by step. "
    "Reasoning step by step before any tool call. You should use the `calc_gsm8k_reward` tool "
    "after step by step solving the question, before generate final answer at least once and "
    "refine your answer if necessary. Put your final answer in the format of `#### <answer>`."
)
INSTRUCTION = "Let's think step by step and output the final answer after `####`."

# The bonus problem says "he".
_MEN = (
    "Adam",
    "Carlos",
    "David",
    "Emeka",
    "Farid",
    "Hiroshi",
    "Ivan",
    "Luis",
    "Omar",
    "Peter",
    "Ravi",
    "Wei",
)
_WOMEN = (
    "Aisha",
    "Anna",
    "Chioma",
    "Elena",
    "Fatima",
    "Grace",
    "Ingrid",
    "Keiko",
    "Maria",
    "Priya",
    "Sofia",
    "Zoe",
)
_JOHN = {"last": 100_000, "bonus": 10_000, "pay": 200_000}
_JOHNS_TRUTH = "220000"
"""As in the data set. The program prints 220000.0, so strict scoring gives 0, as in verl's
original design."""


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
        return [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": self.question},
        ]


def problems(seed: int, count: int) -> list[WordProblem]:
    """Return ``count`` problems.

    The first is always John's bonus, and a longer list begins with the shorter one.
    """
    if count < 0:
        raise ValueError(f"count must be at least 0, found {count}")
    if count == 0:
        return []

    johns = _problem("john-bonus", BONUS, "John", _JOHN)
    made = [replace(johns, ground_truth=_JOHNS_TRUTH)]
    for number in range(1, count):
        key = (seed, "problem", number)
        template = pick(TEMPLATES, *key, "kind")
        names = _MEN if template is BONUS else _MEN + _WOMEN
        name = pick(names, *key, "name")
        numbers = _numbers(template, key)
        made.append(_problem(f"{template.kind}-{number}", template, name, numbers))
    return made


def _problem(id: str, template: Template, name: str, numbers: dict[str, int]) -> WordProblem:
    question = f"{template.fill(template.text, name, numbers)} {INSTRUCTION}"
    answer = template.answer(numbers)
    return WordProblem(
        id=id,
        question=question,
        ground_truth=answer,
        code=template.program(numbers),
        prints=answer,
    )


def _numbers(template: Template, key: tuple[int, str, int]) -> dict[str, int]:
    """Draw the numbers of a problem such that its answer is a round number."""
    numbers: dict[str, int] = {}
    for field_name, (low, high, step) in template.ranges.items():
        steps = whole(0, (high - low) // step, *key, field_name)
        numbers[field_name] = low + step * steps

    if template is BONUS:
        numbers["bonus"] = numbers["last"] // 100 * whole(2, 25, *key, "percent")
    if template is TANK:
        numbers["full"] = (numbers["tap"] - numbers["leak"]) * whole(8, 40, *key, "minutes")
    return numbers


_LOCALES = ("en_US", "de_DE", "ja_JP")
_REQUESTS = (
    "{name} of {company} asks: how many letters are in “{text}”?",
    "Write the name of {city} backwards with code.",
    "Run `print({word!r} * 3)` and tell me what it printed.",
    "{text}\n\nCount the words above, please.",
    "I am {name}. What is 17% of the number of letters in {city}?",
)
# Chosen: any number that Faker accepts. It must not change, or seeds would give other texts.
_MOST_SEED = 2**31


def prompts(seed: int, count: int) -> list[list[dict[str, str]]]:
    """Return ``count`` varied first messages, with names, places and text from Faker.

    Needs the extra ``faker``.
    """
    faker_of = import_extra("faker", extra="faker", needed_by="prompts()").Faker
    fakers = {locale: faker_of(locale) for locale in _LOCALES}

    made: list[list[dict[str, str]]] = []
    for number in range(count):
        key = (seed, "prompt", number)
        faker = fakers[pick(_LOCALES, *key, "locale")]
        faker.seed_instance(whole(0, _MOST_SEED, *key, "text"))
        request = pick(_REQUESTS, *key, "wish").format(
            name=faker.name(),
            city=faker.city(),
            company=faker.company(),
            word=faker.word(),
            text=faker.sentence(),
        )
        system = f"You help {faker.name()}. Session {hex_id(8, *key)}."
        made.append([{"role": "system", "content": system}, {"role": "user", "content": request}])
    return made
