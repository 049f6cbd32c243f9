"""The limits of parameters as OpenAPI states them: taken from the checks that refuse what is beyond, so that both say the same.

What depends on a server's settings (`limits.pop_messages`, `limits.wait_seconds`) has no upper end here.
"""

from __future__ import annotations

from typing import Any

from skep.engine.validate import LEASE_SECONDS_MAX, NAME_CHARACTERS, PARTITIONS_MAX
from skep.http.operation import Parameter
from skep.http.paging import LIMIT, PAGE_MAX
from skep.http.parameters import POSITION_MAX, SECONDS_MAX
from skep.http.routes.messages import PREVIEW_BYTES_MAX

Json = dict[str, Any]

POSITION: Json = {"minimum": 0, "maximum": POSITION_MAX}
SECONDS: Json = {"minimum": 0, "maximum": SECONDS_MAX}
NAME: Json = {"minLength": 1, "maxLength": NAME_CHARACTERS}
NUMBERS: dict[str, Json] = {
    "after": POSITION,
    "batch": {"minimum": 1},
    "expiringWithin": SECONDS,
    "leaseSeconds": {"exclusiveMinimum": 0, "maximum": LEASE_SECONDS_MAX},
    "partitions": {"minimum": 0, "maximum": PARTITIONS_MAX},
    "preview": {"minimum": 0, "maximum": PREVIEW_BYTES_MAX},
    "seq": POSITION,
    "timeout": {"minimum": 0},
}
TEXTS: dict[str, Json] = {
    "consumerGroup": NAME,
    "namespace": NAME,
    "task": NAME,
    "traceId": {"format": "uuid"},
}


def stated(parameter: Parameter) -> Json:
    """The limits of a parameter, as its schema has them."""
    if parameter == LIMIT:  # the log and the tables have a limit of their own
        return {"minimum": 1, "maximum": PAGE_MAX}
    if parameter.type in (int, float):
        return NUMBERS.get(parameter.name, {})
    return TEXTS.get(parameter.name, {}) if parameter.type is str else {}
