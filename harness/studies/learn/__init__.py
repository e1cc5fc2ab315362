"""Learns a scenario from the log of a production: from call records to a description, from that to
commented YAML."""
