"""Tests of the peers and the proof."""
