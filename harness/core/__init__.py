"""Pure rules and records that the laboratory and the studies share; importing one loads little."""
