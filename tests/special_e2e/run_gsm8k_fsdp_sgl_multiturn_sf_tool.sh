#!/usr/bin/env bash
# Multi-turn rollouts on GSM8K-like problems with the Sandbox Fusion tool, end to end and without a GPU: the fake
# engine writes the calls, the real tool sends them under its limiter, the fake sandbox really runs the programs.
# The dump is then checked: its keys, its layout, and John's bonus, which must come to 220000.0.
#
#   PROBLEMS  samples of each step (64)      STEPS  steps (1)      SEED  seed of the problems (0)
#   ROLLOUT_DATA_DIR  where to dump (a temporary directory, removed afterwards)
#   PYTHON    the interpreter sfusion is installed for (python3)
# Further arguments go to `sfusion rollout`.
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
        wrong.append(f"step {step} has {len(records)} samples, {problems} were asked for")
    for number, record in enumerate(records, start=1):
        where = f"step {step}, sample {number}"
        if list(record) != ["input", "output", "score", "step"] or record["step"] != step:
            wrong.append(f"{where}: keys {list(record)}, step {record.get('step')}")
        elif not record["input"].startswith("system\n") or not record["input"].endswith("\nassistant\n"):
            wrong.append(f"{where}: the input does not go from the system's turn to the assistant's")
        elif not record["output"].startswith("assistant\n") or "\ntool\n" not in record["output"]:
            wrong.append(f"{where}: the output holds no tool's turn")
john = json.loads((directory / "1.jsonl").read_text().splitlines()[0])
if "John gets a bonus" not in john["input"] or not john["output"].endswith("#### 220000.0"):
    wrong.append("step 1, sample 1: John's bonus did not come to 220000.0")
print("\n".join(wrong) or f"{steps} step(s) of {problems} samples are as they should be")
sys.exit(1 if wrong else 0)
CHECK
