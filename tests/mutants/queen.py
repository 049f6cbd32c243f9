"""Faults of the door for Queen's clients, and of what it needed of the stores."""

from __future__ import annotations

from tests.mutants import Mutant

MESSAGES = "tests/queen/test_messages.py -k 'not postgres'"
CONSUMING = "tests/queen/test_consuming.py -k 'not postgres'"
HOSTILE = "tests/queen/test_hostile.py -k 'not postgres'"
LOOKING = "tests/queen/test_looking.py -k 'not postgres'"
ACCESS = "tests/queen/test_access.py -k 'not postgres'"

MUTANTS = [
    Mutant(
        "leased messages: of a lease that ran out",
        "store/sqlite/stats.py",
        "    return (lease for lease in found if lease.is_live(now))\n",
        "    return iter(found)\n",
        "tests/contract/test_leased_messages.py -k 'ran_out and sqlite'",
    ),
    Mutant(
        "leased messages: in PostgreSQL of a lease that ran out",
        "store/postgres/stats.sql",
        "l.token IS NOT NULL AND l.ready_at + 0 > $4\n",
        "l.token IS NOT NULL AND $4::bigint IS NOT NULL\n",
        "tests/contract/test_leased_messages.py -k 'ran_out and postgres' --all",
    ),
    Mutant(
        "leased messages: under any token",
        "store/sqlite/stats.py",
        "if lease.token is None or wanted.token not in (None, lease.token) or",
        "if lease.token is None or",
        "tests/contract/test_leased_messages.py -k 'token and sqlite'",
    ),
    Mutant(
        "ack: the present lease counts, whatever lease is named",
        "http/queen/naming.py",
        "            return NamedMessage(row, partition, [lease.group], {lease.token})\n",
        "            return NamedMessage(row, partition, [lease.group], ())\n",
        HOSTILE,
    ),
    Mutant(
        "ack: the lease's group counts, whatever group is named",
        "http/queen/naming.py",
        "            if lease.key != partition.key or lease.group != group_of(said):\n",
        "            if lease.key != partition.key:\n",
        HOSTILE,
    ),
    Mutant(
        "ack: a message is settled twice in one batch",
        "http/queen/naming.py",
        "            taken.add(message)\n",
        "",
        HOSTILE,
    ),
    Mutant(
        "ids: whoever shows one may use its queue",
        "http/queen/names.py",
        "    call.check(name.key, verb)\n",
        "    call.checked = True\n",
        ACCESS,
    ),
    Mutant(
        "transaction: a required lease that it acks nothing of need not hold",
        "http/queen/transactions.py",
        "    if filters and not all(await door.engine.browse.leased_messages(filters)):\n",
        "    if False:\n",
        HOSTILE,
    ),
    Mutant(
        "transaction: an ack by another lease than the required ones",
        "http/queen/naming.py",
        "        return NamedMessage(row, partition, leases.groups, leases.tokens)\n",
        "        return NamedMessage(row, partition, leases.groups, ())\n",
        HOSTILE,
    ),
    Mutant(
        "pop: from as many partitions as fill the batch",
        "http/queen/popping.py",
        'max_partitions=parameters.count(query, "partitions", 1)',
        'max_partitions=parameters.whole(query, "partitions", 0)',
        CONSUMING,
    ),
    Mutant(
        "pop: a queue that is not there is an error",
        "http/queen/popping.py",
        "                raise\n        if not await _comes(",
        "                raise\n            raise\n        if not await _comes(",
        CONSUMING,
    ),
    Mutant(
        "pop: a wait for a queue goes by the wall clock",
        "http/queen/popping.py",
        "    while (left := over_at - engine.steady()) > 0 and",
        "    while (left := over_at - engine.now()) > 0 and",
        CONSUMING,
    ),
    Mutant(
        "pop: messages of one transaction id are not told apart",
        "http/queen/popping.py",
        "one.seq if is_repeated else None",
        "None",
        HOSTILE,
    ),
    Mutant(
        "ack: of messages with one transaction id the first",
        "http/queen/naming.py",
        "            if named.partition.seq not in (None, message.seq):\n                continue\n",
        "",
        HOSTILE,
    ),
    Mutant(
        "transaction: any number of looks",
        "http/queen/naming.py",
        "    if looks > engine.settings.limits.settlements:\n",
        "    if looks < 0:\n",
        HOSTILE,
    ),
    Mutant(
        "configure: the retry limit is the number of attempts",
        "http/queen/configuring.py",
        '_value(RETRY_LIMIT, limit, "max_attempts") + 1',
        '_value(RETRY_LIMIT, limit, "max_attempts")',
        CONSUMING,
    ),
    Mutant(
        "extend: only one partition of the lease is kept",
        "http/queen/settling.py",
        "            for partition in dict.fromkeys(message.partition for message in held)\n",
        "            for partition in [held[0].partition]\n",
        CONSUMING,
    ),
    Mutant(
        "groups: one that keeps its metadata starts at the beginning",
        "http/queen/grouping.py",
        "Start(StartMode.SEQ, one.start_seq + 1)",
        "Start(StartMode.ALL)",
        LOOKING,
    ),
]
