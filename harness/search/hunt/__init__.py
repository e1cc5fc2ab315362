"""The hunt: cases drawn from a seed, played in virtual time and judged by every promise that
applies to them."""
