"""The doctor: every finding against a server that really behaves so."""
