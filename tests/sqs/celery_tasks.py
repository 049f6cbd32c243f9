"""Tasks of Celery, as an app has them. Each notes what it does at a socket of the test."""

import os
import socket
import time

from celery import Celery, Task


def app_at(broker: str, queue: str, visibility_timeout: int) -> Celery:
    """The app, whose messages go through this queue."""
    made = Celery("tasks", broker=broker)
    made.conf.update(
        broker_transport_options={
            "region": "eu-west-1",
            "is_secure": False,
            "visibility_timeout": visibility_timeout,
            "wait_time_seconds": 1,
        },
        broker_connection_retry_on_startup=True,
        task_default_queue=queue,
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        enable_utc=True,
    )
    return made


app = app_at(
    os.environ.get("TASKS_BROKER", "sqs://"),
    os.environ.get("TASKS_QUEUE", "tasks"),
    int(os.environ.get("TASKS_VISIBILITY", "600")),
)


def note(text: str) -> str:
    """Tell the test; its answer says what to do."""
    with socket.create_connection(("127.0.0.1", int(os.environ["TASKS_NOTES"]))) as connection:
        connection.sendall(f"{os.getpid()} {time.time()} {text}\n".encode())
        return connection.makefile().readline().strip()


@app.task  # type: ignore[untyped-decorator] # Celery has no types
def add(number: int) -> None:
    note(f"add {number}")


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator] # as above
def flaky(self: Task, name: str) -> None:
    note(f"flaky {name} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0)


@app.task  # type: ignore[untyped-decorator] # Celery has no types
def hold(name: str) -> None:
    """Work until the test answers."""
    note(f"hold {name}")
