"""The attacks made in other ways, in a weekly job: ``SFUSION_ATTACK_SEED=7 pytest tests``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.mutations import DIRECTLY, STARTS, mutated
from tests.attacks.test_attacks import PROGRAMS, PROMISED, Targets, check_promise, pytestmark

__all__ = ["pytestmark"]

SEED = os.environ.get("SFUSION_ATTACK_SEED", "")
SEEDS = range(12)
SINGLE = [program for program in PROGRAMS if "# %%\n" not in program.read_text(encoding="utf-8")]


def test_a_mutation_depends_on_its_seed_alone_and_is_a_program() -> None:
    for program in SINGLE:
        source = program.read_text(encoding="utf-8")
        made = {mutated(source, f"{seed}") for seed in SEEDS}
        assert len(made) > (1 if DIRECTLY in source else len(STARTS))
        assert made == {mutated(source, f"{seed}") for seed in SEEDS}
        for text in made:
            compile(text, program.name, "exec")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mutated_program_says_and_ends_what_the_program_does(seed: int) -> None:
    for source, code, said in (
        ("for name in ('a', 'b'):\n    print(name)", 0, "a b"),
        ("import os\nos.kill(os.getpid(), 9)", -9, ""),
    ):
        done = subprocess.run(
            [sys.executable, "-S", "-c", mutated(source, f"{seed}")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, " ".join(sorted(done.stdout.split()))) == (code, said), done


TRIED = [case for case in PROMISED if SEED and case.values[0] in SINGLE]


@pytest.mark.parametrize(("program", "mode"), TRIED)
def test_promise_holds_against_a_mutation(program: Path, mode: str, targets: Targets) -> None:
    source = mutated(program.read_text(encoding="utf-8"), f"{SEED}-{program.stem}-{mode}")
    check_promise(program, mode, targets, [source])
