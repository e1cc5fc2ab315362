#!/usr/bin/env bash
# Multi-turn rollouts on GSM8K-like problems with the Sandbox Fusion tool, end to end and without a GPU: the fake
# engine generates the calls, the real tool sends them under its limiter, the fake sandbox executes the programs.
# Then the dumps are checked: keys, layout, and John's bonus, which must be 220000.0.
#
#   PROBLEMS  samples per step (64)      STEPS  number of steps (1)      SEED  seed of the problems (0)
#   ROLLOUT_DATA_DIR  where to write the dumps (default: a temporary directory, removed afterwards)
#   PYTHON    an interpreter with sfusion installed (python3)
# Further arguments are passed to `sfusion rollout`.
set -euo pipefail

PROBLEMS=${PROBLEMS:-64}
STEPS=${STEPS:-1}
SEED=${SEED:-0}
PYTHON=${PYTHON:-python3}

if [[ -z ${ROLLOUT_DATA_DIR:-} ]]; then
    ROLLOUT_DATA_DIR=$(mktemp -d)
    trap 'rm -rf "$ROLLOUT_DATA_DIR"' EXIT
fi

"$PYTHON" -c 'from sfusion.harness.cli import main; main()' rollout \
    --problems "$PROBLEMS" --steps "$STEPS" --seed "$SEED" --out "$ROLLOUT_DATA_DIR" "$@"

"$PYTHON" - "$ROLLOUT_DATA_DIR" "$PROBLEMS" "$STEPS" <<'CHECK'
import json
import pathlib
import sys

directory, problems, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
wrong = []
for step in range(1, steps + 1):
    records = [json.loads(line) for line in (directory / f"{step}.jsonl").read_text().splitlines()]
    if len(records) != problems:
        wrong.append(f"step {step} has {len(records)} samples, expected {problems}")
    for number, record in enumerate(records, start=1):
        where = f"step {step}, sample {number}"
        if list(record) != ["input", "output", "score", "step"] or record["step"] != step:
            wrong.append(f"{where}: keys {list(record)}, step {record.get('step')}")
        elif not record["input"].startswith("system\n") or not record["input"].endswith("\nassistant\n"):
            wrong.append(f"{where}: the input must begin with the system turn and end with the assistant's role")
        elif not record["output"].startswith("assistant\n") or "\ntool\n" not in record["output"]:
            wrong.append(f"{where}: the output has no tool turn")
john = json.loads((directory / "1.jsonl").read_text().splitlines()[0])
if "John gets a bonus" not in john["input"] or not john["output"].endswith("#### 220000.0"):
    wrong.append("step 1, sample 1: John's bonus is not 220000.0")
print("\n".join(wrong) or f"checked {problems * steps} samples in {steps} file{'s' * (steps != 1)}: all as expected")
sys.exit(1 if wrong else 0)
CHECK
