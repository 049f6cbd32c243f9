"""Encryption of payloads. This package knows nothing of stores, settings of queues or HTTP.

A queue's payloads are sealed with its data key (`envelope`); data keys are kept wrapped by a master key (`master`) that is never
stored.
"""
