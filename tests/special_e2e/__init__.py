"""The end-to-end script of the plan, and a test that runs it."""
