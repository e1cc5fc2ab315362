"""Tests of schemas, registry, tools and rewards."""
