"""A cell runner for machines without IPython: one process, one namespace, the messages that a kernel would send."""
