"""Tests of the executor that runs programs and notebooks."""
