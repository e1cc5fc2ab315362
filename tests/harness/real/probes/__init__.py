"""Probes: the suite, sending it, recordings and what is scrubbed from them."""
