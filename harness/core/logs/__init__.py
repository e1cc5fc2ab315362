"""Logs of production: read into calls, whatever wrote them."""
