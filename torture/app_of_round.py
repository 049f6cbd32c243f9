"""The app of a round: messages with a type, a webhook, commands with effects and follow-ups, and deliveries to an address.

Load clients consume ``typed`` and ``hooked``. Workers consume ``counted`` (each message is one event of an entity, and one message in ``told``)
and ``sent`` (each message is posted to the receiver).
"""

from __future__ import annotations

import base64

from torture.queues import Queues

SECRET_VARIABLE = "TORTURE_SECRET"  # noqa: S105 - the name of a variable
SECRET = base64.b64encode(b"known to all in this folder").decode()
SIGNATURE_HEADER = "X-Signature"

_SPEC = """
app {app} {{
  queue {typed} {{
    message_type {{
      name: string
      number: int
    }}
  }}
  queue {hooked} {{
    message_type {{
      payload: json
    }}
  }}
  queue {counted} {{
    message_type {{
      name: string
      account: string
    }}
    delivery {{
      lease: 1s
    }}
    map_to: command {app}Account.Count {{
      name: name
      account: account
    }}
    then: queue {told} {{
      name: name
    }}
  }}
  queue {told} {{}}
  queue {sent} {{
    message_type {{
      name: string
      number: int
    }}
    delivery {{
      lease: 1s
    }}
    deliver: "{receiver}/{sent}" {{
      secret_env: "{secret}"
      timeout: 2s
    }}
  }}
  entity {app}Account {{
    id: input.account
    state {{
      count: int = 0
    }}
    command Count {{
      input {{
        name: string
        account: string
      }}
      emits Counted {{
        name: input.name
      }}
    }}
    event Counted {{
      count: state.count + 1
    }}
  }}
  webhook {app}Hook {{
    queue: {hooked}
    verify_hmac {{
      header: "{signature}"
      secret_env: "{secret}"
    }}
    idempotency {{
      key: payload.name
    }}
  }}
}}
"""


def app_name(queues: Queues) -> str:
    return f"Round{queues.number}"


def entity_name(queues: Queues) -> str:
    return f"{app_name(queues)}Account"


def hook_path(queues: Queues) -> str:
    return f"/hook/{app_name(queues)}Hook"


def spec_of(queues: Queues, receiver: str) -> str:
    """The spec of a round's app; the receiver is at that address."""
    of_kind = {**queues.of_kind, **queues.worked}
    names = {kind: of_kind[kind].name for kind in ("typed", "hooked", "counted", "told", "sent")}
    return _SPEC.format(
        app=app_name(queues), receiver=receiver, secret=SECRET_VARIABLE, signature=SIGNATURE_HEADER, **names
    )
