"""Logs of production: read into one form, whatever wrote them."""
