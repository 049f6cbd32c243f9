"""The worker of a spec: it pops what the app's queues hold, makes commands and deliveries of it, and settles."""

from skep.worker.app import App
from skep.worker.working import Working, WorkOptions

__all__ = ["App", "WorkOptions", "Working"]
