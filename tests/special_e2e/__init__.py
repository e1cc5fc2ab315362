"""The end-to-end script of verl's original design, and a test that runs it."""
