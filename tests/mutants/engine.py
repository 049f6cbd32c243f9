"""Faults of the engine: group commit, its queues, and the door."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "lane: requests go to the store newest first",
        "engine/batching.py",
        "        self._waiting.append((request, messages, size_bytes, future))\n",
        "        self._waiting.appendleft((request, messages, size_bytes, future))\n",
        "tests/engine/test_group_commit.py tests/engine/test_operations.py -k 'not postgres'",
    ),
    Mutant(
        "lane: messages leased for a cancelled caller are not given back",
        "engine/batching.py",
        "            elif self._abandoned is not None:\n                self._abandoned(request, answer)\n",
        "",
        "tests/engine/test_cancellation.py -k 'not postgres'",
    ),
    Mutant(
        "lane: after an unexpected error each request is tried again",
        "engine/batching.py",
        '            _fail(batch, SkepError(Code.INTERNAL, f"{self._verb} failed: {type(error).__name__}"))\n        elif',
        '            error = SkepError(Code.INTERNAL, f"{self._verb} failed: {type(error).__name__}")\n        if',
        "tests/engine/test_group_commit.py -k 'not postgres'",
    ),
    Mutant(
        "lane: after the store failed each request is tried again",
        "engine/batching.py",
        "elif len(batch) == 1 or error.code in STORE_CODES:",
        "elif len(batch) == 1:",
        "tests/engine/test_group_commit.py -k 'not postgres'",
    ),
    Mutant(
        "lane: any number of requests may wait",
        "engine/batching.py",
        "if len(self._waiting) >= self._max_waiting:",
        "if len(self._waiting) < 0:",
        "tests/engine/test_group_commit.py tests/engine/test_admission.py tests/engine/test_validation.py -k 'not postgres'",
    ),
    Mutant(
        "lane: one call may have any number of messages",
        "engine/batching.py",
        "if batch and (messages_left < 0 or bytes_left < 0):",
        "if batch and bytes_left < 0:",
        "tests/engine/test_group_commit.py tests/engine/test_validation.py -k 'not postgres'",
    ),
    Mutant(
        "queue: a freed partition wakes nobody",
        "engine/logical_queue.py",
        "            self.parking.wake(1, group, served=served)\n",
        "",
        "tests/engine/test_long_poll.py -k 'not postgres'",
    ),
    Mutant(
        "queue: a retry that is due wakes nobody",
        "engine/logical_queue.py",
        "            if retry_at is not None:\n                self.parking.ready_at(group, retry_at)\n",
        "",
        "tests/engine/test_long_poll.py -k 'not postgres'",
        equivalent="The nack wakes a poll of each line, and the poll's look sets the same time from the store's next_ready_at.",
    ),
    Mutant(
        "queue: a lease that runs out wakes nobody",
        "engine/logical_queue.py",
        "                self.parking.ready_at(request.group, deadline)\n",
        "",
        "tests/engine/test_long_poll.py -k 'not postgres'",
    ),
    Mutant(
        "door: the oldest call gets in first",
        "engine/door.py",
        "            if _answer(self._waiting.pop()[1], True):\n",
        "            if _answer(self._waiting.popleft()[1], True):\n",
        "tests/engine/test_door.py",
    ),
    Mutant(
        "door: a call gets in whose time is up",
        "engine/door.py",
        "while self._waiting and self.inside < self.limit and self._waiting[-1][0] > latest:",
        "while self._waiting and self.inside < self.limit:",
        "tests/engine/test_door.py",
    ),
    Mutant(
        "door: the limit falls without a bound",
        "engine/door.py",
        "self.limit = max(LEAST, MOST_FALL * self.limit, min(held, self.limit))",
        "self.limit = min(held, self.limit)",
        "tests/engine/test_door.py",
    ),
]
