"""The tool stack on real Ray clusters: real processes, really killed."""
