"""The small process that starts programs, confines them and kills what they leave behind.

It runs as `python -I -S`, imports only the standard library, and forks once per command: the server
may be large, threaded and busy, and forking it would be slow and unsafe. Modules import each other
relatively, because inside that process this package is a top-level one.
"""
