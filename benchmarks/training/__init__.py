"""Real trainings of a small decoder whose tool calls go through our stack to a failing sandbox.

    python -m benchmarks.training --help

docs/learning.md tells what came out; benchmarks/training/README.md how to make it again.
"""
