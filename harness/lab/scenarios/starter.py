"""The scenario that `sfusion new` writes."""

from __future__ import annotations

_TEXT = """\
# Check this file with `sfusion check {file}`, run it with `sfusion run {file} --out runs`,
# and look up any key with `sfusion explain KEY`, such as `sfusion explain load.concurrency`.

# The name, which is also the folder of its runs: lowercase letters, digits, - . _
scenario: {name}
# What is tested and what you expect, in a sentence for the reader of a failed run.
about: A gateway admits 8 requests at a time and starts badly. Every call must still succeed.
# Where it can run: sim is virtual time in one process; add ray for a real Ray cluster.
worlds: [sim]
# Determines everything random: the same seed gives the same run, byte for byte.
seed: 1

# The processes that make calls and share one limiter.
cluster:
  # Number of machines; they are called node-1, node-2, ...
  nodes: 2
  # Number of processes on each machine; they are called n1-w1, n1-w2, ..., n2-w1, ...
  workers_per_node: 1

# Config keys of the tool, as in verl's tool config. To test your own class use `sfusion run --tools FILE`.
tools:
  # Most requests in flight at a time, in the whole cluster.
  rate_limit: 8
  # Seconds that a program may run, unless the model asks for less.
  default_timeout: 30

# The fake Sandbox Fusion server that answers the calls.
sandbox:
  # How it behaves under load: a quota answers 429 beyond `in_flight` requests; others are unbounded and queue.
  model:
    kind: quota
    # Number of requests that it handles at a time.
    in_flight: 8
    # Seconds in the Retry-After header of a 429.
    retry_after: 0.5
  # What goes wrong. Each rule says when it strikes and what it does; `sfusion explain kinds` lists the faults.
  faults:
    # The name of the rule, as reports show it.
    - name: bad-start
      # When: the first 3 requests. Others are every, probability, between, after, calls, code, above_in_flight.
      first: 3
      # What: a 503 before the program runs.
      what: {{status: 503}}

# The calls, as many concurrent rollouts would make them.
load:
  # Total number of calls; they are called c0001, c0002, ...
  calls: 60
  # Number of callers; each makes one call at a time.
  concurrency: 16
  # What each call runs. The scripted sandbox runs no code: it waits and answers with what the program prints.
  program:
    # How long it runs: a number, a text such as 200ms, or a distribution such as this one (median, sigma).
    seconds: {{lognormal: [0.2, 0.5]}}
    # Its stdout; {{call}} is replaced by the id of the call.
    prints: "{{call}}\\n"

# What happens during the run.
events:
  # When: 1 second after the load began; `after: {{grants: 17}}` names a point of the run instead.
  - at: 1s
    # What: kill a worker without warning. Others are pause, cut_off, restart, crash, wedge, resize, cancel.
    kill: worker-2

# What must hold; `sfusion explain promises` lists them all. A promise that the run cannot show counts as unknown and
# fails it, so that a scenario that tests nothing is noticed.
promises:
  # The cluster never has more requests in flight than rate_limit.
  - in_flight_within_limit
  # Every call ends exactly once; those of a killed worker are lost with it.
  - every_call_ends_once
  # All calls that were not lost got the result of their program.
  - outcomes: {{ok: all}}
  # The model reads what happened, and nothing that looks like output if the program did not run.
  - text_is_truthful
  # All permits were returned at the end, also those of the killed worker.
  - no_permit_leaked

# More keys: rollouts (multi-turn rollouts with the fake engine, instead of load), matrix (one run for each combination
# of values), extends (take missing keys from another file), horizon (the longest run), schedule (the order of what is
# ready at the same time), time_scale (faster runs on Ray), incident and expected (the report that this reproduces).
"""


def starter(name: str, file: str) -> str:
    """Return a commented scenario to start from; ``file`` is how its commands name it."""
    return _TEXT.format(name=name, file=file)
