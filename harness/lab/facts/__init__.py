"""Facts about programs and clients: what was asked against what was sent, what happened against
what is read."""
