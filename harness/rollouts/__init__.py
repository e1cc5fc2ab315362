"""Rollouts end to end on the fakes, dumped in verl's format."""
