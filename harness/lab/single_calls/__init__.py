"""Single calls: what a scenario file plans of each, and what a journal tells of it."""
