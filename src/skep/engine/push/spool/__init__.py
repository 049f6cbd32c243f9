"""The spool: a local, fsynced buffer that takes pushes while the store is away.

`push_file` is the SQLite file, `slot` the folder that one process has, `drain` decides what is stored next, `link` whether the store is there.
"""
