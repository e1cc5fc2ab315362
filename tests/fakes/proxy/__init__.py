"""The fault proxy: what it passes on, what it breaks, what it knows and what it keeps to itself."""
