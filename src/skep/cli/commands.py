"""Every command, where it is, and one line about it: what `skep --help` prints and what the app is built from.

It imports nothing, so that asking for help costs next to nothing; a command is loaded when it is called.
"""

Command = tuple[str, str, str]
"""The word that is typed, where the command is, and what it does."""

SECTIONS: dict[str, list[Command]] = {
    "Start here": [
        ("demo", "skep.cli.demo.command:demo", "Watch an order story run through a server of its own."),
        ("serve", "skep.cli.serve:serve", "Serve queues over HTTP."),
        ("run", "skep.cli.work:run", "Run an app: serve, apply its spec, and work."),
        ("config", "skep.cli.config:config_app", "What the server is set to, and why."),
        ("key", "skep.cli.keys:key_app", "Make, list and revoke keys: who may do what."),
        ("access", "skep.cli.access:access_app", "See whether a store asks for keys, and open it again."),
        ("encryption", "skep.cli.encryption:encryption_app", "Look after the keys of encrypted queues."),
        ("store", "skep.cli.store:store_app", "Give the room of what was deleted back to the disk."),
        ("doctor", "skep.cli.doctor:doctor", "See whether this machine is fit to serve."),
    ],
    "Messages": [
        ("push", "skep.cli.push:push", "Push one message, or many as NDJSON on stdin."),
        ("pop", "skep.cli.pop:pop", "Lease messages of a queue."),
        ("ack", "skep.cli.ack:ack", "Say what became of popped messages."),
        ("release", "skep.cli.ack:release", "Release a lease: its messages are delivered again."),
        ("tail", "skep.cli.tail:tail", "Follow the log of a queue, without leasing anything."),
        ("message", "skep.cli.messages:message_app", "Look at messages without leasing them; delete one."),
        ("scheduled", "skep.cli.scheduled:scheduled_app", "See scheduled messages; cancel, move and run them."),
        ("trace", "skep.cli.trace:trace", "Follow a trace across queues, oldest message first."),
    ],
    "Queues and groups": [
        ("queue", "skep.cli.queues:queue_app", "List, make, change and empty queues."),
        ("group", "skep.cli.groups:group_app", "See how far consumer groups have come, and move them."),
        ("lease", "skep.cli.leases:lease_app", "See who holds messages, and take them away."),
        ("dlq", "skep.cli.dead_letters:dead_letter_app", "Look at dead letters, replay and purge them."),
        ("lag", "skep.cli.lag:lag", "Which groups are behind, the furthest first."),
        ("pace", "skep.cli.pace:pace", "How a queue keeps up: wait and handler times, and why it is slow."),
        ("consumers", "skep.cli.pace:consumers", "Who waits for messages, popped lately, or holds leases."),
        ("stats", "skep.cli.stats:stats", "Figures of a queue and its groups, or of all of them."),
        ("ops", "skep.cli.operations:operations_app", "See calls that were queued under load, and cancel them."),
        ("spool", "skep.cli.spool:spool_app", "See what servers keep on disk while PostgreSQL is away."),
    ],
    "Specs and apps": [
        ("spec", "skep.cli.spec:spec_app", "Check, lay out, plan, apply and export specs."),
        ("webhook", "skep.cli.webhooks:webhook_app", "See which requests webhooks refused, and why."),
        ("entity", "skep.cli.entities:entity_app", "Look at entities and their events."),
        ("work", "skep.cli.work:work", "Work for an app: pop, run commands and deliveries, settle."),
    ],
    "And": [
        ("pipeline", "skep.cli.pipeline:pipeline_app", "Run the ready pipelines on Spark."),
        ("bench", "skep.cli.bench:bench", "Measure Skep on this machine, from a clone: ./skep bench."),
        ("completion", "skep.cli.completion:completion", "Completion for bash, zsh and fish."),
        ("version", "skep.cli.version:version", "Print the version."),
    ],
}  # fmt: skip


def overview() -> str:
    """The help of `skep` itself."""
    lines = ["Usage: skep COMMAND", "", "A message queue whose messages end up in Spark."]
    for title, commands in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {word:<11} {about}" for word, _, about in commands]
    lines += ["", "skep COMMAND --help tells more, with an example. docs/cli.md has it all.", ""]
    return "\n".join(lines)
