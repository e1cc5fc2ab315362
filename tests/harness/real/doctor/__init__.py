"""The doctor: every finding is tested against a server that really behaves that way."""
