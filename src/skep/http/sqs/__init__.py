"""A door that speaks the interface of Amazon SQS: `POST /` and queue URLs, for the SDKs of AWS and what is built on them.

The door translates. Each action becomes calls of the engine, and what SQS calls a thing becomes what Skep calls it: visibility timeout and
lease, message group and partition, deduplication id and transaction id, receipt handle and lease with seq. `actions.py` is the one table
of actions; the two protocols (JSON and query) only read requests and write answers.
"""
