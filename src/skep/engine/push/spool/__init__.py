"""The spool: a local, fsynced buffer that takes pushes while the store is away.

`push_file` is the SQLite file, `slot` the folder of one process. `drain` decides which push is stored next, `store_link` whether the
store is up.
"""
