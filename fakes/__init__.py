"""Fakes of the servers that a rollout talks to: products for other people's tests too."""
