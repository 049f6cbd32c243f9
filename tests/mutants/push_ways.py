"""Faults of the ways in: the spool and encryption."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "spool: a push is answered without an fsync",
        "engine/push/spool/push_file.py",
        'db.pragma("synchronous", "FULL")',
        'db.pragma("synchronous", "NORMAL")',
        "tests/spool/test_slot.py tests/spool/test_crash.py",
    ),
    Mutant(
        "encryption: a key seals more messages than it may",
        "engine/encryption.py",
        "if sealed is None or sealed > MESSAGES_PER_KEY:",
        "if sealed is None:",
        "tests/engine/test_encryption.py -k 'limit and not postgres'",
    ),
    Mutant(
        "encryption: an envelope opens in another queue",
        "engine/encryption.py",
        "        return source is not None and queue == QueueKey(source, row.queue.tenant)\n",
        "        return True\n",
        "tests/engine/test_encryption.py -k 'envelope and not postgres'",
    ),
    Mutant(
        "encryption: an envelope opens for another message",
        "engine/encryption.py",
        "    if inside.id != row.id and inside.trace_id != row.trace_id:\n        return False\n",
        "",
        "tests/engine/test_encryption.py -k 'envelope and not postgres'",
    ),
    Mutant(
        "encryption: a sealed error opens for another message",
        "engine/encryption.py",
        " or seq not in (None, int.from_bytes(inside.id)):",
        ":",
        "tests/engine/test_sealed_errors.py -k 'not postgres'",
    ),
    Mutant(
        "encryption: destroyed keys stay in memory while the store destroys them",
        "engine/encryption.py",
        "        async with self._making:\n            dropped = self._drop(tenant, queue)\n",
        "        async with self._making:\n            dropped: set[Id] = set()\n",
        "tests/engine/test_shredding.py tests/engine/test_encryption.py -k 'shred and not postgres'",
    ),
    Mutant(
        "encryption: a new key is older than the one before when the clock is put back",
        "engine/encryption.py",
        "made_at = Instant(max(self._clock.now(), self._made_at.get(queue, 0) + 1))",
        "made_at = self._clock.now()",
        "tests/engine/test_encryption.py -k 'made_last and not postgres'",
    ),
    Mutant(
        "encryption: destroyed keys are looked for again and again",
        "engine/encryption.py",
        "            self._missing |= destroyed\n",
        "",
        "tests/engine/test_shredding.py -k 'not postgres'",
    ),
]
