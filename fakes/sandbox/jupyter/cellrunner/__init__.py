"""A cell runner for machines without IPython: one process with one namespace that sends the messages of a kernel."""
