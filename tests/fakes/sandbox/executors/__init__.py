"""Tests of the executor that really runs programs and notebooks."""
