"""Tests of the tokenizers."""
