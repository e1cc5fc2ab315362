"""Tests of the core of sandboxes that live and die."""
