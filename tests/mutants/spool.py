"""Faults of the spool: its files, its order, and what becomes of its records."""

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
        "spool: a new file may vanish from its folder",
        "engine/push/spool/slot.py",
        "                self._db = push_file.open_to_write(self._path)\n                sync_folder(self.folder)\n",
        "                self._db = push_file.open_to_write(self._path)\n",
        "tests/spool/test_slot.py -k synced",
    ),
    Mutant(
        "spool: a call's pushes are written one by one",
        "engine/push/spool/push_file.py",
        "    with db:\n        db.executemany(_INSERT, rows)\n        size = used_bytes(db)\n",
        "    for row in rows:\n        db.execute(_INSERT, row)\n    size = used_bytes(db)\n",
        "tests/spool/test_slot.py",
    ),
    Mutant(
        "spool: two processes have one slot",
        "engine/push/spool/slot.py",
        "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "tests/spool/test_slot.py",
    ),
    Mutant(
        "spool: a damaged push is stored",
        "engine/push/spool/push_file.py",
        "if crc32(self.body) != self.checksum:",
        "if self.checksum < 0:",
        "tests/spool/test_slot.py tests/spool/test_spool_damage.py -k 'damaged and not postgres'",
    ),
    Mutant(
        "spool: it fills the disk",
        "engine/push/spool/slot.py",
        "if free - size < self._limits.free_bytes:",
        "if free < 0:",
        "tests/spool/test_slot.py",
    ),
    Mutant(
        "spool: it grows without a bound",
        "engine/push/spool/slot.py",
        "if self.size_bytes + size > self._limits.max_bytes:",
        "if size > self._limits.max_bytes:",
        "tests/spool/test_slot.py",
    ),
    Mutant(
        "spool: a push that waits to be written is overtaken",
        "engine/push/spool/spool.py",
        "        self._arriving.hold(groups)\n",
        "",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py tests/spool/test_spool_damage.py -k 'I13 and not postgres'",
    ),
    Mutant(
        "spool: the partitions of a fifo queue are apart",
        "engine/push/spool/spool.py",
        "if known is None or known.fifo or (queue, message.partition) in held.groups:",
        "if (queue, message.partition) in held.groups:",
        "tests/spool/test_spool.py -k 'fifo and not postgres'",
    ),
    Mutant(
        "spool: a record that was given up is not noted before it is buried",
        "engine/push/spool/spool.py",
        "        await self._in_thread(slot.give_up, number, given.error)\n",
        "",
        "tests/spool/test_spool_refused.py -k 'given_up and not postgres'",
    ),
    Mutant(
        "spool: a record is stored without a receipt of its own",
        "engine/push/spool/drain.py",
        '            receipt = Receipt(ReceiptKey(SCOPE, record.name), b"{}", expires_at)\n',
        "            return record.batch\n",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py tests/spool/test_spool_damage.py -k 'I13 and not postgres'",
    ),
    Mutant(
        "spool: the log is searched before earlier attempts are over",
        "engine/push/spool/drain.py",
        "            await self._fence(ready)\n",
        "",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py tests/spool/test_spool_damage.py -k 'I13 and not postgres'",
    ),
    Mutant(
        "spool: a record overtakes one that waits in its partition",
        "engine/push/spool/drain.py",
        "                held |= groups\n                continue\n",
        "                continue\n",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py tests/spool/test_spool_damage.py -k 'I13 and not postgres'",
    ),
    Mutant(
        "spool: a sealed record overtakes a plain one that is refused",
        "engine/push/spool/drain.py",
        "overtakes = True in sealed and groups & plain",
        "overtakes = False",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py -k 'encrypted and not postgres'",
    ),
    Mutant(
        "spool: a smaller record overtakes one that a full queue refused",
        "engine/push/spool/drain.py",
        "            limited |= queues\n",
        "",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py -k 'full and not postgres'",
    ),
    Mutant(
        "spool: a stored record stays in the file",
        "engine/push/spool/spool.py",
        "                await self._in_thread(slot.finish, [one.number for one in done if one.slot is slot])\n",
        "                pass\n",
        "tests/spool/test_spool.py tests/spool/test_spool_refused.py tests/spool/test_spool_damage.py -k 'not postgres'",
    ),
    Mutant(
        "spool: files of processes that died are never taken over",
        "engine/push/spool/spool.py",
        "                if now >= adopt_at:\n                    await self._adopt()\n",
        "                if now >= adopt_at:\n",
        "tests/spool/test_spool.py -k 'left_behind and not postgres'",
    ),
    Mutant(
        "spool: pushes go on to the file while a damaged one is replaced",
        "engine/push/spool/spool.py",
        "        self._own = None\n        await self._lane.drained()\n",
        "        await self._lane.drained()\n",
        "tests/spool/test_spool_damage.py -k 'damaged and not postgres'",
    ),
]
