"""Faults of OpenTelemetry: what clients tell, and what a server sends."""

from __future__ import annotations

from tests.mutants import Mutant

CONVENTIONS = "tests/client/test_conventions.py"
SENDING = "tests/serve/test_telemetry.py -k 'spans_of or prometheus or one_line_and'"

MUTANTS = [
    Mutant(
        "conventions: a batch has the id of its first message",
        "client/tracing.py",
        "    if len(messages) == 1:\n        about[MESSAGE_ID]",
        "    if messages:\n        about[MESSAGE_ID]",
        CONVENTIONS,
    ),
    Mutant(
        "conventions: several partitions are told as one",
        "client/tracing.py",
        "    if all(one.partition == first.partition for one in messages):\n",
        "    if first.partition:\n",
        CONVENTIONS,
    ),
    Mutant(
        "conventions: messages that were not sent are no attempt",
        "client/observation.py",
        "            told[ERROR_TYPE] = self._error\n",
        "            return\n",
        CONVENTIONS,
    ),
    Mutant(
        "telemetry: every failure is told",
        "observe/otlp.py",
        "        if was_down is not is_down:\n",
        "        if was_down is not is_down or not sent:\n",
        SENDING,
    ),
    Mutant(
        "telemetry: the libraries log as they like",
        "observe/otlp.py",
        "            logger.propagate = False\n",
        "            logger.propagate = True\n",
        SENDING,
    ),
    Mutant(
        "telemetry: buckets count all lower ones, too",
        "observe/otlp.py",
        "        own = [count - below for",
        "        own = [count for",
        SENDING,
    ),
    Mutant(
        "telemetry: spans have no parent",
        "observe/otlp.py",
        "context=None if context is None else _parent(context)",
        "context=None",
        SENDING,
    ),
]
