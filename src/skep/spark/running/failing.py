"""Queues that a pipeline cannot do: each fails alone, the others go on, and at the end a table says which failed and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skep.errors import Code, SkepError
from skep.spark.running.context import Context
from skep.spark.running.record import Stage
from skep.spark.running.said import code_of, told

TITLE = "Queues that failed"
OF_ALL = frozenset({Code.QUEUE_NOT_FOUND, Code.UNAUTHENTICATED})
"""Errors of the whole run: a mistyped name, and a key that no queue accepts. A server that is away also fails the run."""


class FailedQueues:
    """The queues that failed in one pass; ``done`` says what was to be done with them."""

    def __init__(self, context: Context, stage: Stage, title: str = TITLE, done: str = "archived") -> None:
        self._context = context
        self._stage = stage
        self._title = title
        self._done = done
        self.errors: dict[str, SkepError] = {}

    def note(self, queue: str, error: Exception) -> None:
        """Note that a queue failed. A queue that was deleted meanwhile has not failed, it is missed."""
        if not self._context.inputs.miss(queue):
            self.errors[queue] = SkepError(code_of(error) or Code.INTERNAL, told(error))

    @contextmanager
    def alone(self, queue: str) -> Iterator[None]:
        """The errors of this block belong to one queue."""
        try:
            yield
        except SkepError as error:
            if error.retryable or error.code in OF_ALL:
                raise
            self.errors[queue] = error

    def settle(self) -> None:
        """Report the queues that failed. When all queues failed, raise the first error."""
        if not self.errors:
            return
        rows = [(queue, str(error.code), error.message) for queue, error in sorted(self.errors.items())]
        self._context.show(self._title, ("queue", "code", "error"), rows)
        self._context.check(
            self._stage,
            f"every queue was {self._done}",
            False,
            f"{len(rows)} failed: {', '.join(row[0] for row in rows[:10])}",
        )
        if len(rows) == len(self._context.inputs.queues):
            raise next(iter(self.errors.values()))


def is_of_a_queue(error: Exception) -> bool:
    """Whether an error that Spark passed on is about a queue, and not about Spark, the lake or the whole server."""
    code = code_of(error)
    if code is None or isinstance(error, SkepError):
        return False
    return code is not Code.UNAUTHENTICATED and not SkepError(code, "").retryable
