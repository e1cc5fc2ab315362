"""The small process that starts programs, confines them and sees that nothing of them outlives the request.

It runs beside the server as `python -I -S`, imports the standard library only, and forks once per command: the
server may be large, threaded and busy, a fork of it would be slow and unsafe. Modules import each other relatively,
because inside that process this package is a top-level one.
"""
