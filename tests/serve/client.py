"""Producers that push over plain HTTP until the server goes away, or it is enough, and remember what they were told."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

BATCH = 10_000


class Producer(threading.Thread):
    """Pushes one message after the other; ``answered`` are those the server said it has stored."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__()
        self._port = port
        self._name = name
        self.answered: list[str] = []
        self.refused: list[int] = []
        self.under_way = threading.Event()
        self.enough = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        number = 0
        try:
            while not self.enough.is_set():
                number += 1
                text = f"{self._name}-{number}"
                status = push(connection, text)
                if status in (200, 201):
                    self.answered.append(text)
                else:
                    self.refused.append(status)
                    return
                if number == 20:
                    self.under_way.set()
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def push(connection: http.client.HTTPConnection, text: str) -> int:
    """Push one message; the status of the answer."""
    item = {"queue": "q", "partition": text.partition("-")[0], "payload": text}
    connection.request("POST", "/api/v1/push", json.dumps({"items": [item]}))
    response = connection.getresponse()
    response.read()
    if response.will_close:
        # The next request would quietly open another connection, to which the server may not be there any more.
        connection.auto_open = 0
    return response.status


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and body of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else None
    finally:
        connection.close()


def stored(port: int) -> list[str]:
    """Every payload of the queue, by popping it empty."""
    found: list[str] = []
    while True:
        status, body = get(port, f"/api/v1/pop/queue/q?batch={BATCH}&autoAck=true")
        if status == 204:
            return found
        found += [message["payload"] for message in body["messages"]]
