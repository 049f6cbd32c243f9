"""Workers: functions that messages are handed to, with leases kept, acks batched, and a stop that drops nothing."""

from skep.client.worker.verdict import Reject, Retry, RetryAt
from skep.client.worker.worker import Worker

__all__ = ["Reject", "Retry", "RetryAt", "Worker"]
