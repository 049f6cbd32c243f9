"""What must hold of the tables of a tenant whatever has happened: a rule each, as a query for what breaks it."""

from __future__ import annotations

from tests.unit.store.postgres.holding import Session

BURIED_ONCE = "I11: a group buries a message once"
RULES = {
    "a log has as many messages as its account says": """
        SELECT q.name, q.first_seq, l.last, q.gaps, n.there FROM queues q
        CROSS JOIN LATERAL (SELECT greatest(q.floor_seq, coalesce(max(m.seq), 0)) AS last FROM message m WHERE m.queue_id = q.id) l
        CROSS JOIN LATERAL (SELECT count(*) AS there FROM message m WHERE m.queue_id = q.id AND m.seq >= q.first_seq) n
        WHERE q.deleted_at IS NULL AND n.there <> l.last - q.first_seq + 1 - q.gaps""",
    "time does not fall along a log": """
        SELECT q.name, m.seq FROM queues q JOIN message m ON m.queue_id = q.id JOIN message n ON n.queue_id = q.id AND n.seq > m.seq
        WHERE n.created_at < m.created_at""",
    "I12: what a group has discovered is settled or in a row": """
        SELECT g.name, g.start_seq, g.scan_seq, g.gaps, c.settled, p.n AS in_partitions, s.n AS in_sets FROM groups g
        CROSS JOIN LATERAL (SELECT coalesce(sum(c.completed + c.dead + c.expired + c.skipped), 0) AS settled
                            FROM group_counter c WHERE c.group_id = g.id) c
        CROSS JOIN LATERAL (SELECT coalesce(sum(l.pending + cardinality(l.open)), 0) AS n
                            FROM partition_lease l WHERE l.group_id = g.id) p
        CROSS JOIN LATERAL (SELECT coalesce(sum(cardinality(l.seqs)), 0) AS n FROM set_lease l WHERE l.group_id = g.id) s
        WHERE g.scan_seq - g.start_seq + g.gaps <> c.settled + p.n + s.n""",
    "a row has as many messages pending as the log has for it": """
        SELECT g.name, l.partition, l.pending, n.there FROM groups g JOIN partition_lease l ON l.group_id = g.id
        CROSS JOIN LATERAL (SELECT count(*) AS there FROM message m
                            WHERE m.queue_id = g.queue_id AND m.partition = l.partition AND m.seq > l.delivered_seq
                              AND m.seq <= g.scan_seq AND (m.audience IS NULL OR m.audience = g.id)) n
        WHERE l.pending <> n.there OR l.leased > cardinality(l.open) OR l.pending + cardinality(l.open) = 0
           OR (l.token IS NOT NULL) <> (l.leased > 0)""",
    "I5: no message is in two rows of a group": """
        SELECT g.name, s.seq, count(*) FROM groups g JOIN set_lease l ON l.group_id = g.id CROSS JOIN unnest(l.seqs) AS s (seq)
        GROUP BY g.name, g.id, s.seq HAVING count(*) > 1""",
    "a row has only messages that the group has discovered, and that are in the log unless they are leased": """
        SELECT g.name, s.seq FROM groups g JOIN queues q ON q.id = g.queue_id
        CROSS JOIN LATERAL (
            SELECT u.seq, l.token FROM set_lease l, unnest(l.seqs) AS u (seq) WHERE l.group_id = g.id
            UNION ALL
            SELECT u.seq, l.token FROM partition_lease l, unnest(l.open) AS u (seq) WHERE l.group_id = g.id) s
        WHERE q.deleted_at IS NULL AND (s.seq > g.scan_seq OR s.seq <= g.start_seq OR (s.token IS NULL AND NOT EXISTS (
            SELECT 1 FROM message m WHERE m.queue_id = g.queue_id AND m.seq = s.seq)))""",
    "nobody's rows": """
        SELECT 'group' AS kind, g.id FROM consumer_group g WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = g.queue_id)
        UNION ALL SELECT 'partition', l.group_id FROM partition_lease l WHERE NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.id = l.group_id)
        UNION ALL SELECT 'set', l.group_id FROM set_lease l WHERE NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.id = l.group_id)
        UNION ALL SELECT 'counter', l.group_id FROM group_counter l WHERE NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.id = l.group_id)
        UNION ALL SELECT 'message', m.queue_id FROM message m WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue_id)
        UNION ALL SELECT 'scheduled', m.queue_id FROM scheduled m WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue_id)""",
    "I3: a key leads to the message that it was given with": """
        SELECT q.name, d.transaction_id, d.seq FROM queues q JOIN dedup d ON d.queue_id = q.id
        JOIN message m ON m.queue_id = q.id AND m.seq = d.seq WHERE m.id <> d.message_id""",
    "I3: a transaction id is stored once": """
        SELECT q.name, m.transaction_id, count(*) FROM queues q JOIN message m ON m.queue_id = q.id
        WHERE m.transaction_id IS NOT NULL AND NOT q.holds_dead_letters
          AND NOT EXISTS (SELECT 1 FROM replay_history r WHERE r.queue_id = q.id AND r.seq = m.seq)
        GROUP BY q.id, q.name, m.partition, m.transaction_id HAVING count(*) > 1""",
    "what was forgotten is nowhere": """
        SELECT q.name, t.first_seq, t.last_seq, x.kind FROM queues q JOIN forgotten t ON t.queue_id = q.id
        CROSS JOIN LATERAL (
            SELECT 'message' AS kind FROM message m WHERE m.queue_id = q.id AND m.seq BETWEEN t.first_seq AND t.last_seq
            UNION ALL SELECT 'letter' FROM dead_letter d JOIN queues g ON g.id = d.queue_id
            WHERE d.source_queue = q.name AND d.source_seq BETWEEN t.first_seq AND t.last_seq AND d.created_at >= q.created_at AND g.deleted_at IS NULL
            UNION ALL SELECT 'replay' FROM replay_history r
            WHERE (r.dead_queue = q.id AND r.dead_seq BETWEEN t.first_seq AND t.last_seq) OR (r.queue_id = q.id AND r.seq BETWEEN t.first_seq AND t.last_seq)
            UNION ALL SELECT 'failure' FROM failed_attempt f WHERE f.queue_id = q.id AND f.seq BETWEEN t.first_seq AND t.last_seq) x""",
    "tombstones do not overlap, and their positions have no gap": """
        SELECT q.name, t.position, t.first_seq, t.last_seq FROM queues q JOIN forgotten t ON t.queue_id = q.id
        WHERE t.first_seq > t.last_seq
           OR EXISTS (SELECT 1 FROM forgotten o WHERE o.queue_id = q.id AND o.position <> t.position AND o.first_seq <= t.last_seq AND o.last_seq >= t.first_seq)
           OR (t.position > 1 AND NOT EXISTS (SELECT 1 FROM forgotten o WHERE o.queue_id = q.id AND o.position = t.position - 1))""",
    "the schedule is counted": """
        SELECT q.name, q.scheduled_count FROM queues q
        WHERE q.deleted_at IS NULL AND q.scheduled_count <> (SELECT count(*) FROM scheduled s WHERE s.queue_id = q.id)""",
    "I11: a message is in the log or in the schedule": """
        SELECT q.name, s.id FROM queues q JOIN scheduled s ON s.queue_id = q.id JOIN message m ON m.queue_id = q.id AND m.id = s.id""",
    "I11: a dead letter has its message": """
        SELECT q.name, d.seq FROM queues q JOIN dead_letter d ON d.queue_id = q.id
        WHERE q.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM message m WHERE m.queue_id = q.id AND m.seq = d.seq)""",
    BURIED_ONCE: """
        SELECT d.source_queue, d.source_seq, d.group_name FROM queues q JOIN dead_letter d ON d.queue_id = q.id
        WHERE d.group_name <> ''
        GROUP BY q.id, d.source_queue, d.source_seq, d.group_name, d.failed_at HAVING count(*) > 1""",
    "dead letters are counted": """
        SELECT q.name, c.n, d.n FROM queues q
        CROSS JOIN LATERAL (SELECT coalesce(sum(c.change), 0) AS n FROM dead_letter_change c WHERE c.queue_id = q.id) c
        CROSS JOIN LATERAL (SELECT count(*) AS n FROM dead_letter d WHERE d.queue_id = q.id) d WHERE c.n <> d.n""",
}
ALL = """
WITH queues AS MATERIALIZED (SELECT * FROM queue WHERE tenant = $1), groups AS MATERIALIZED (
    SELECT g.* FROM consumer_group g JOIN queues q ON q.id = g.queue_id WHERE q.deleted_at IS NULL)
""" + "\nUNION ALL ".join(
    f"SELECT {place} AS rule, row_to_json(x)::text AS row FROM ({query}) x"
    for place, query in enumerate(RULES.values())
)


async def violations(session: Session, tenant: str, but: str | None = None) -> list[str]:
    """Which rules a tenant's tables break, each with the rows that show it; ``but`` is a rule that may be broken."""
    rules = list(RULES)
    found = await session.fetch(ALL, tenant)
    return [f"{rules[row['rule']]}: {row['row']}" for row in found if rules[row["rule"]] != but]
