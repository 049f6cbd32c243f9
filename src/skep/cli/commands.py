"""Every command with its module and one line about it. `skep --help` prints this table, and the app is built from it.

This module imports nothing, so that help costs next to nothing. A command is loaded when it is called.
"""

Command = tuple[str, str, str]
"""The word that users type, the module and function of the command, and one line about it."""

SECTIONS: dict[str, list[Command]] = {
    "Start here": [
        ("demo", "skep.cli.demo.command:demo", "Watch an order story run through a server of its own."),
        ("serve", "skep.cli.serve:serve", "Serve queues over HTTP."),
        ("run", "skep.cli.work:run", "Run an app: serve, apply its spec, and work."),
        ("config", "skep.cli.config:config_app", "Show the settings of a server, and where each comes from."),
        ("key", "skep.cli.keys:key_app", "Make, list and revoke API keys, and read the audit log."),
        ("access", "skep.cli.access:access_app", "See whether a store is closed (asks for keys), and open it."),
        ("encryption", "skep.cli.encryption:encryption_app", "Look after the keys of encrypted queues."),
        ("store", "skep.cli.store:store_app", "Shrink an SQLite file after messages were deleted."),
        ("doctor", "skep.cli.doctor:doctor", "Check whether this machine is fit to serve."),
    ],
    "Messages": [
        ("push", "skep.cli.push:push", "Push one message, or many as NDJSON on stdin."),
        ("pop", "skep.cli.pop:pop", "Lease messages of a queue (receive them)."),
        ("ack", "skep.cli.ack:ack", "Settle popped messages: completed, failed, retry or dead."),
        ("release", "skep.cli.ack:release", "Release a lease: its messages are delivered again."),
        ("tail", "skep.cli.tail:tail", "Follow the log of a queue, without leasing anything."),
        ("message", "skep.cli.messages:message_app", "Look at messages; replay, delete or forget them."),
        ("scheduled", "skep.cli.scheduled:scheduled_app", "See scheduled messages; cancel, move and run them."),
        ("trace", "skep.cli.trace:trace", "Follow a trace across queues, oldest message first."),
    ],
    "Queues and groups": [
        ("queue", "skep.cli.queues:queue_app", "List, create, change, empty and delete queues."),
        ("group", "skep.cli.groups:group_app", "See the progress of consumer groups; move and delete groups."),
        ("lease", "skep.cli.leases:lease_app", "See which consumers hold leases, and end their leases."),
        ("dlq", "skep.cli.dead_letters:dead_letter_app", "Look at dead letters, replay and purge them."),
        ("lag", "skep.cli.lag:lag", "See which groups are behind, the furthest first."),
        ("pace", "skep.cli.pace:pace", "See how a queue keeps up: wait and handler times, bottleneck."),
        ("consumers", "skep.cli.pace:consumers", "See the consumers that wait, popped lately, or hold leases."),
        ("stats", "skep.cli.stats:stats", "See the figures of one queue and its groups, or of all queues."),
        ("ops", "skep.cli.operations:operations_app", "See calls that were queued under load, and cancel them."),
        ("spool", "skep.cli.spool:spool_app", "See messages kept on a server's disk: PostgreSQL was away."),
    ],
    "Specs and apps": [
        ("spec", "skep.cli.spec:spec_app", "Check, format, plan, apply and export specs."),
        ("webhook", "skep.cli.webhooks:webhook_app", "See what webhooks refused, and why; make secrets and keys."),
        ("entity", "skep.cli.entities:entity_app", "Look at entities and their events."),
        ("work", "skep.cli.work:work", "Run a worker of an app: pop, run commands, deliver, settle."),
    ],
    "And": [
        ("pipeline", "skep.cli.pipeline:pipeline_app", "Run the ready pipelines on Spark."),
        ("lake", "skep.cli.lake:lake_app", "Look at a lake, erase messages, delete files it no longer needs."),
        ("bench", "skep.cli.bench:bench", "Measure Skep on this machine, from a clone: ./skep bench."),
        ("completion", "skep.cli.completion:completion", "Print or install completion for bash, zsh and fish."),
        ("version", "skep.cli.version:version", "Print the version."),
    ],
}  # fmt: skip


def overview() -> str:
    """The help of `skep` itself."""
    lines = ["Usage: skep COMMAND", "", "A message queue whose messages end up in Spark."]
    for title, commands in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {word:<11} {about}" for word, _, about in commands]
    lines += ["", "skep COMMAND --help shows the options, with an example. More: docs/cli.md.", ""]
    return "\n".join(lines)
