"""The trial: one fixed plan of calls and faults that judges any client of Sandbox Fusion by
facts."""
