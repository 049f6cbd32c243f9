"""The Python client with keys: it need not name the tenant that its key is for."""

from __future__ import annotations

import http.client

import pytest

import skep
from skep.model.key import Role, Verb
from skep.wire.access import GrantItem
from skep.wire.log import ARROW
from tests.access.driver import Door
from tests.access.requests import ALL


def test_a_client_with_a_key_of_one_tenant_need_not_name_it(door: Door) -> None:
    with skep.Client(door.server.url, token=door.key(*ALL).text, attempts=1) as client:
        client.push("orders", {"n": 1})
        [message] = client.pop("orders")
        client.ack(message)
        other = client.for_tenant("someone-else")
        with pytest.raises(skep.SkepError, match="FORBIDDEN"):
            other.push("orders", 1)
    with skep.Client(door.server.url, attempts=1) as nobody, pytest.raises(skep.SkepError, match="UNAUTHENTICATED"):
        nobody.pop("orders")


def test_a_client_makes_lists_and_revokes_keys_and_sees_who_did_it(door: Door) -> None:
    with skep.Client(door.server.url, token=door.key(*ALL).text, attempts=1) as admin:
        made = admin.create_key("reader", [GrantItem(role=Role.READ_ONLY, tenants=(door.tenant,))])
        with skep.Client(door.server.url, token=made.token, attempts=1) as reader:
            assert list(reader.queues()) == []
            with pytest.raises(skep.SkepError, match="FORBIDDEN"):
                reader.push("orders", 1)
            assert admin.revoke_key(made.key.id).revoked_at is not None
            with pytest.raises(skep.SkepError, match="UNAUTHENTICATED"):
                list(reader.queues())
        listed = list(admin.keys())
        assert made.key.id in {key.id for key in listed}
        admin.configure("orders")
        assert [entry.action for entry in admin.audit()] == ["POST /api/v1/configure"]


def test_a_stream_ends_unfinished_when_its_key_is_revoked(door: Door) -> None:
    minted = door.key(Verb.READ)
    pusher = door.caller(Verb.PUSH)
    for _ in range(6):
        pusher.push("orders", *["x" * 1_000_000] * 7)
    connection = http.client.HTTPConnection("127.0.0.1", door.server.port, timeout=30)
    headers = {"Authorization": f"Bearer {minted.text}", "Accept": ARROW}
    connection.request("GET", "/api/v1/log/orders", headers=headers)
    response = connection.getresponse()
    response.read(1_000)

    door.revoke(minted)

    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()


def test_a_client_does_not_print_its_token() -> None:
    with skep.Client(token="skep_id_secret") as client:
        assert "secret" not in f"{client.settings!r} {client!r} {client.settings}"
