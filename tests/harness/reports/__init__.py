"""Reports: what a run tells people, build systems and browsers."""
