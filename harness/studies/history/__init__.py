"""The history of a folder of runs: earlier runs beside the latest, and a small record of each."""
