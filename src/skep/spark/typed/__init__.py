"""Typed rows: the fields of a queue's message type as columns, and the messages that do not fit as rejects.

A message is read by `fields` (in Python, a batch at a time) or by `skep.spark.columns.fields` (by Spark itself). Both have the same
values for every message.
"""
