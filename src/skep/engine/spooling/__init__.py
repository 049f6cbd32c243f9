"""The spool: a local, fsynced buffer that takes pushes while the store is away.

`segments` is the format of its files, `kept` that of the records in them, `slots` who may write and read which folder.
"""
