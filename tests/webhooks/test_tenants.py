"""Tenants by path or by header: each has its own queue, and its own keys."""

from __future__ import annotations

import json

import pytest

import skep
from skep.model import PopRequest
from tests.http.driver import Api
from tests.webhooks.driver import SIGNED, Sender

TENANTS = f"""
app Orders {{
  queue Placed {{
    message_type {{ order: int, tenant: string }}
    retention {{ max_depth: 2 }}
  }}
  webhook ByPath {{
    queue: Placed
    {SIGNED}
    tenant: path
    message {{ order: int(payload.order), tenant: tenant }}
  }}
  webhook ByHeader {{
    queue: Placed
    {SIGNED}
    tenant: header "X-Shop"
    message {{ order: int(payload.order), tenant: tenant }}
  }}
  webhook OfNobody {{
    queue: Placed
    {SIGNED}
    message {{ order: int(payload.order), tenant: tenant }}
  }}
}}
"""


@pytest.fixture
def shops(sender: Sender) -> Sender:
    sender.apply(TENANTS)
    return sender


def test_the_path_says_whose_message_it_is(shops: Sender) -> None:
    assert shops.signed("ByPath/north", {"order": 1}).status == 202
    assert shops.signed("ByPath/s%C3%BCd%2Fost", {"order": 2}).status == 202

    assert shops.stored("Placed", "north") == [{"order": 1, "tenant": "north"}]
    assert shops.signed("ByPath", {"order": 1}).code == "WEBHOOK_NOT_FOUND"
    [message] = shops.server.run(_look(shops, "süd/ost"))
    assert message == {"order": 2, "tenant": "süd/ost"}


async def _look(shops: Sender, tenant: str) -> list[object]:
    from skep.model import QueueKey

    found = await shops.server.engine.pop(PopRequest(QueueKey("Placed", tenant), batch=10))
    return [json.loads(delivery.payload) for delivery in found.deliveries]


def test_a_tenant_has_one_name_in_a_path_in_a_header_and_for_clients(shops: Sender) -> None:
    """Or its messages would lie where no worker looks for them."""
    utf_8 = "süd/日本".encode().decode("latin-1")  # as its bytes go into a header
    assert shops.signed("ByPath/s%C3%BCd%2F%E6%97%A5%E6%9C%AC", {"order": 1}).status == 202
    assert shops.signed("ByHeader", {"order": 2}, X_Shop=utf_8).status == 202

    with skep.Client(shops.server.url) as client:
        assert list(client.tenants()) == ["default", "süd/日本"]
        found = client.for_tenant("süd/日本").pop("Placed", batch=10)
    with skep.Client(shops.server.url, tenant="süd/日本", clock=shops.clock) as own:
        assert own.stats("Placed").stats.depth == 2

    assert [message.json() for message in found] == [{"order": n, "tenant": "süd/日本"} for n in (1, 2)]
    latin = "süd".encode("latin-1").decode("latin-1")
    assert shops.signed("ByHeader", {"order": 2}, X_Shop=latin).status == 400
    assert shops.api.request("GET", "/api/v1/resources/queues", headers={"Skep-Tenant": latin}).status == 422


def test_a_header_says_whose_message_it_is(shops: Sender) -> None:
    assert shops.signed("ByHeader", {"order": 1}, X_Shop="north").status == 202

    assert shops.stored("Placed", "north") == [{"order": 1, "tenant": "north"}]
    assert shops.signed("ByHeader", {"order": 1}).status == 400
    assert shops.signed("ByHeader", {"order": 1}, X_Shop="").code == "MALFORMED"
    assert shops.signed("ByHeader", {"order": 1}, X_Shop="north", x_shop="south").code == "MALFORMED"
    assert shops.signed("ByHeader/north", {"order": 1}).code == "WEBHOOK_NOT_FOUND"


def test_nothing_else_says_whose_message_it_is(shops: Sender) -> None:
    """Anybody may send Skep-Tenant; a webhook that does not ask for a tenant has none but the default one."""
    assert shops.signed("OfNobody", {"order": 1}, Skep_Tenant="north").status == 202

    assert shops.stored("Placed") == [{"order": 1, "tenant": "default"}]


def test_tenants_share_neither_keys_nor_depth(shops: Sender) -> None:
    for tenant in ("north", "south"):
        assert [shops.signed(f"ByPath/{tenant}", {"order": n}).status for n in (1, 2, 3)] == [202, 202, 503]
        assert len(shops.stored("Placed", tenant)) == 2


def test_the_first_message_of_a_tenant_may_be_one_for_the_quarantine_of_its_spec(sender: Sender) -> None:
    sender.apply(TENANTS.replace("message_type", "on_invalid: quarantine\n delivery { dead_letter_queue: Odd }\n message_type")
                 .replace("webhook ByPath", "queue Odd {}\n webhook ByPath"))  # fmt: skip

    mapped = sender.signed("ByPath/north", {"order": "none"})

    assert (mapped.status, mapped.json["quarantined"]) == (202, True)

    for_north = Api(sender.server, "north")
    letters = for_north.get("/api/v1/dlq?queue=Odd").json["deadLetters"]
    settings = for_north.get("/api/v1/resources/queues/Placed").json
    for_north.close()
    assert [(letter["sourceQueue"], letter["reason"]) for letter in letters] == [("Placed", "invalid")]
    assert "Odd" in json.dumps(settings)


def test_a_tenant_is_held_to_what_names_are(shops: Sender) -> None:
    assert shops.signed("ByPath/a%00b", {"order": 1}).code == "INVALID_NAME"
    assert shops.signed("ByPath/" + "x" * 256, {"order": 1}).code == "INVALID_NAME"
    assert shops.signed("ByPath/%ff", {"order": 1}).status == 422


BOUND = f"""
app Bound {{
  queue Placed {{}}
  webhook Shop {{
    queue: Placed
    {SIGNED}
    tenant: key payload.shop
  }}
}}
"""


def test_a_signed_body_is_taken_for_its_own_tenant_and_no_other(sender: Sender) -> None:
    """B9: a request that was signed once was taken for any tenant of a path."""
    sender.apply(BOUND)
    assert sender.signed("Shop", {"shop": "north", "order": 1}).status == 202
    assert sender.signed("Shop/south", {"shop": "north", "order": 1}).code == "WEBHOOK_NOT_FOUND"
    assert sender.signed("Shop", {"shop": "north", "order": 1}, X_Shop="south", Skep_Tenant="south").status == 202
    assert [message["payload"]["order"] for message in sender.stored("Placed", "north")] == [1]
    assert sender.signed("Shop", {"shop": 7, "order": 2}).status == 202
    assert [message["payload"]["order"] for message in sender.stored("Placed", "7")] == [2]


@pytest.mark.parametrize("payload", [{}, {"shop": ""}, {"shop": ["north"]}, {"shop": "a\nb"}])
def test_a_body_that_does_not_say_its_tenant_is_refused(sender: Sender, payload: dict[str, object]) -> None:
    sender.apply(BOUND)
    refused = sender.signed("Shop", payload)
    assert (refused.status, refused.code) == (422, "MAPPING_FAILED")
