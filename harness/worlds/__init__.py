"""Worlds: where a scenario runs. Each gives a journal; the promises are judged alike for all."""
