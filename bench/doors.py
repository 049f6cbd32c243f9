"""`./skep bench doors`: the doors of others' interfaces beside our own, in the same run, over the same server.

Amazon SQS: sends of 10 messages from 64 connections, beside pushes of 10; and receives of 10 and deletes of what they gave, beside pops
and acks. Both sides use queues that SQS's `CreateQueue` made, so that only the interface differs. Rounds alternate.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import scripts, sqs_scripts
from bench.http import ALL_IT_CAN, SIZE, Subject, driven, fresh, latency, serving
from bench.loader import Load
from bench.report import Report, machine, middle
from bench.sqs_scripts import BATCH
from skep.testing.postgres import running_postgres

TARGETS = {"sqs_send_of_native": ">= 0.50", "sqs_cycle_of_native": ">= 0.50"}
CONNECTIONS = 64
ROUNDS, MESSAGES = 5, 60_000
QUICK_ROUNDS, QUICK_MESSAGES = 3, 20_000


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the servers of the stores, one after the other."""
    report = Report("doors", machine())
    report.notes["load"] = f"batches of {BATCH} messages of {SIZE} bytes over {CONNECTIONS} connections, fsync on"
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", Path(folder), ALL_IT_CAN) as (port, pid):
                await measure(Subject("sqlite", port, pid, ""), quick, report)
        if "postgres" in stores:
            with (
                running_postgres() as server,
                serving(server.create_database(), Path(folder), ALL_IT_CAN) as (port, pid),
            ):
                await measure(Subject("postgres", port, pid, ""), quick, report)
    return report


async def measure(subject: Subject, quick: bool, report: Report) -> None:
    """SQS and native in turn: what is sent is then received and deleted, or popped and acked."""
    rounds, messages = (QUICK_ROUNDS, QUICK_MESSAGES) if quick else (ROUNDS, MESSAGES)
    rates: dict[str, list[float]] = {name: [] for name in ("sqs_send", "native_send", "sqs_cycle", "native_cycle")}
    for number in range(rounds + 1):
        for kind, send_script, cycle_script in (
            ("sqs", sqs_scripts.send, sqs_scripts.receive_and_delete),
            ("native", sqs_scripts.push, sqs_scripts.pop_and_ack),
        ):
            queue = made(subject, fresh())
            goal = messages if number else messages // 10
            sent = await driven(subject, Load(send_script, (queue, SIZE), CONNECTIONS, messages=goal))
            done = await driven(subject, Load(cycle_script, (queue,), CONNECTIONS, messages=goal - CONNECTIONS * BATCH))
            if number:  # the first round warms up
                rates[f"{kind}_send"].append(sent.messages_per_second)
                rates[f"{kind}_cycle"].append(done.messages_per_second)
                report.notes[f"{subject.name}.{kind}_send"] = latency(sent)
                report.notes[f"{subject.name}.{kind}_cycle"] = latency(done)
    for name, found in rates.items():
        report.rates[f"{subject.name}.{name}"] = middle(found)
    for what in ("send", "cycle"):
        pairs = zip(rates[f"sqs_{what}"], rates[f"native_{what}"], strict=True)
        report.ratios[f"{subject.name}.sqs_{what}_of_native"] = middle([ours / native for ours, native in pairs])


def made(subject: Subject, name: str) -> str:
    """A standard queue, made by SQS's interface."""
    connection = http.client.HTTPConnection("127.0.0.1", subject.port, timeout=30)
    headers = {"Content-Type": sqs_scripts.MEDIA_TYPE, "X-Amz-Target": "AmazonSQS.CreateQueue"}
    connection.request("POST", "/", json.dumps({"QueueName": name}), headers)
    scripts.expect(200, connection.getresponse().status, b"")
    connection.close()
    return name
