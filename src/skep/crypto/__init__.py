"""Encryption of payloads: what is sealed how, and under which key. Knows nothing of stores, queues' settings or HTTP.

A queue's payloads are sealed with its data key (`envelope`); data keys are kept wrapped by a master key (`master`) that is never
stored.
"""
