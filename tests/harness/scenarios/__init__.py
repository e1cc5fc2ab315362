"""Tests of scenarios, worlds, journals, verdicts and the commands around them."""
