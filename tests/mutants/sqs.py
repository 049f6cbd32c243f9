"""Faults of the door for Amazon SQS, and of what it needed of the stores."""

from __future__ import annotations

from tests.mutants import Mutant

STANDARD = "tests/sqs/test_standard.py -k 'not postgres'"
FIFO = "tests/sqs/test_fifo.py -k 'not postgres'"
ACCESS = "tests/sqs/test_access.py -k 'not postgres'"
HOSTILE = "tests/sqs/test_hostile.py -k 'forged and not postgres'"
MOVES = "tests/sqs/test_moves.py -k 'not postgres'"
DOORS = "tests/sqs/test_two_doors.py -k 'not postgres'"

MUTANTS = [
    Mutant(
        "renew: a message takes its neighbours along",
        "store/sqlite/settle_sets.py",
        "            if len(held.seqs) > 1:\n",
        "            if len(held.seqs) > 1_000:\n",
        "tests/contract/test_unordered.py -k 'kept_for and sqlite'",
    ),
    Mutant(
        "renew: in PostgreSQL a message takes its neighbours along",
        "store/postgres/functions/settle.sql",
        "        IF cardinality(v_set.seqs) > 1 THEN\n",
        "        IF cardinality(v_set.seqs) > 1000 THEN\n",
        "tests/contract/test_unordered.py -k 'kept_for and postgres' --all",
    ),
    Mutant(
        "renew: any message renews an ordered lease",
        "store/sqlite/settle.py",
        " or not (renewal.seq is None or renewal.seq in lease.held)",
        "",
        "tests/contract/test_unordered.py -k 'only_a_message and sqlite'",
    ),
    Mutant(
        "dedup: an id counts in its partition though the setting says the queue",
        "store/sqlite/session.py",
        "return ALL_PARTITIONS if self.settings.dedup_across_partitions else partition",
        "return partition",
        "tests/contract/test_push.py -k 'whole_queue and sqlite'",
    ),
    Mutant(
        "dedup: in PostgreSQL an id counts in its partition though the setting says the queue",
        "store/postgres/push.py",
        "return ALL_PARTITIONS if self.dedup_across else partition",
        "return partition",
        "tests/contract/test_push.py -k 'whole_queue and postgres' --all",
    ),
    Mutant(
        "dedup: a scheduled message's key is sought where the partition says",
        "store/sqlite/scheduled.sql",
        "partition IN (?3, '') AND message_id = ?4",
        "partition = ?3 AND message_id = ?4",
        "tests/contract/test_dedup_across_partitions.py -k 'setting_was_changed and sqlite'",
    ),
    Mutant(
        "dedup: in PostgreSQL a scheduled message's key is sought where the partition says",
        "store/postgres/scheduled.sql",
        "d.partition = ANY (ARRAY[k.partition, ''])",
        "d.partition = k.partition",
        "tests/contract/test_dedup_across_partitions.py -k 'setting_was_changed and postgres' --all",
    ),
    Mutant(
        "dedup: a forgotten message keeps an id that counts in the whole queue",
        "store/postgres/forget.sql",
        "d.partition = ANY (ARRAY[k.partition, ''])",
        "d.partition = k.partition",
        "tests/contract/test_dedup_across_partitions.py -k 'forgotten and postgres' --all",
    ),
    Mutant(
        "note: another's change is overwritten",
        "store/sqlite/queues.sql",
        "UPDATE queue SET sqs_note = ?2 WHERE id = ?1 AND sqs_note IS ?3",
        "UPDATE queue SET sqs_note = ?2 WHERE id = ?1",
        "tests/contract/test_sqs_note.py -k sqlite",
    ),
    Mutant(
        "note: other processes do not hear of a change",
        "store/remote/news.py",
        '    "keep_sqs_note": lambda given, kept: (SystemEventKind.QUEUE, given[0]) if kept else None,\n',
        "",
        "tests/sqs/test_killed.py -k several --all",
    ),
    Mutant(
        "delete: a part of a lease is the whole lease",
        "http/sqs/settling.py",
        "        if len(own) >= own[0].messages:\n",
        "        if own:\n",
        STANDARD,
    ),
    Mutant(
        "delete: a stale handle of a FIFO queue succeeds",
        "http/sqs/settling.py",
        "    if not queue.is_fifo:\n        return {}\n",
        "    return {}\n",
        FIFO,
    ),
    Mutant(
        "fifo: a queue of SQS deduplicates within a group",
        "http/sqs/attributes.py",
        "dedup_across_partitions=is_fifo,\n",
        "dedup_across_partitions=False,\n",
        FIFO,
    ),
    Mutant(
        "handles: of any queue",
        "http/sqs/names.py",
        "receipt.key != key or ",
        "",
        f"{STANDARD[:-1]} and handle'",
    ),
    Mutant(
        "handles: a number of messages that no receive gives",
        "http/sqs/names.py",
        " and 0 < receipt.messages <= MESSAGES_MAX",
        "",
        HOSTILE,
    ),
    Mutant(
        "signatures: any is right",
        "access/signature_v4.py",
        "    return hmac.compare_digest(expected, signature.signature)\n",
        "    return True\n",
        ACCESS,
    ),
    Mutant(
        "signatures: a space may become a plus",
        "access/signature_v4.py",
        "import quote, unquote_plus\n",
        "import quote\nfrom urllib.parse import unquote as unquote_plus\n",
        f"{ACCESS[:-1]} and presigned'",
    ),
    Mutant(
        "signatures: of the path without what a proxy has removed",
        "http/sqs/signing.py",
        "    return [prefix + path, path, ",
        "    return [path, path, ",
        "tests/sqs/test_proxy.py",
    ),
    Mutant(
        "queue URLs: without the path of a proxy",
        "http/sqs/door.py",
        "queue_url(call, key, prefix_of(call, self.path_prefix))",
        'queue_url(call, key, "")',
        "tests/sqs/test_proxy.py",
    ),
    Mutant(
        "moves: more than a push carries",
        "http/sqs/moves.py",
        "sum(size <= most_bytes for size in sizes)",
        "sum(1 for _ in sizes)",
        f"{MOVES[:-1]} and more_bytes'",
    ),
    Mutant(
        "attributes: a tracestate without its traceparent is left out",
        "http/sqs/message.py",
        "    return encode_headers(headers)\n",
        '    return encode_headers({k: v for k, v in headers.items() if k != "tracestate"})\n',
        f"{STANDARD[:-1]} and name_of_a_header'",
    ),
    Mutant(
        "signatures: for ever",
        "access/signature_v4.py",
        "    return made - SKEW_SECONDS <= present <= until\n",
        "    return made - SKEW_SECONDS <= present\n",
        ACCESS,
    ),
    Mutant(
        "signatures: the tenant need not be signed",
        "http/sqs/signing.py",
        'if name.startswith(b"x-amz-") or name == TENANT_HEADER}',
        'if name.startswith(b"x-amz-")}',
        f"{ACCESS[:-1]} and changed'",
    ),
    Mutant(
        "signatures: the payload's digest is believed",
        "http/sqs/signing.py",
        '    is_whole = told is None or told.decode("latin-1") == hashlib.sha256(body).hexdigest()\n',
        "    is_whole = True\n",
        f"{ACCESS[:-1]} and payload'",
        equivalent="the signature is computed with the body's own digest, so one for another digest never matches",
    ),
    Mutant(
        "access: an answer without a signature is sent",
        "http/sqs/routes.py",
        "        signed = None if gate is None else await examine(gate, call, engine.now())\n",
        "        signed = None\n",
        ACCESS,
    ),
    Mutant(
        "moves: a source that is gone is made anew",
        "http/sqs/moves.py",
        "        return (await self._queues.get(QueueKey(name, self._source.tenant))).key  # a push would make it\n",
        "        return QueueKey(name, self._source.tenant)\n",
        MOVES,
    ),
    Mutant(
        "moves: what cannot be moved is kept for a minute",
        "http/sqs/moves.py",
        "            if left:\n                self._engine.give_back(left)\n",
        "            pass\n",
        MOVES,
    ),
    Mutant(
        "messages: a native header is no attribute",
        "http/sqs/message.py",
        '    return {name: _value("String", value) for name, value in headers.items() if name not in _OWN and value}\n',
        "    return {}\n",
        DOORS,
    ),
]
