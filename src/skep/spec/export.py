"""A spec for other tools: its IR as JSON, its message types as JSON Schema, its queues and webhooks as AsyncAPI 3.0."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET

from skep.spec.endpoint import endpoint_name
from skep.spec.interchange import to_json
from skep.spec.ir import App, ExtraFields, Fields, Queue, Scheme, Webhook
from skep.spec.types import INT_MAX, INT_MIN, Type, TypeKind
from skep.spec.validate_webhook import scheme_of

Schema = dict[str, Any]
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ExportFormat(StrEnum):
    """The formats of an export."""

    JSON = "json"
    JSONSCHEMA = "jsonschema"
    ASYNCAPI = "asyncapi"


def export(app: App, form: ExportFormat) -> str:
    """The spec in a format, as text."""
    match form:
        case ExportFormat.JSON:
            return to_json(app)
        case ExportFormat.JSONSCHEMA:
            return _written(json_schemas(app))
        case ExportFormat.ASYNCAPI:
            return _written(async_api(app))


def _written(document: Schema) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def json_schemas(app: App) -> Schema:
    """A schema for the messages of each queue, and for the input of each command."""
    definitions = {name: queue_schema(queue) for name, queue in app.queues.items()}
    for entity_name, entity in app.entities.items():
        for name, command in entity.commands.items():
            definitions[f"{entity_name}.{name}"] = fields_schema(command.input, ExtraFields.REFUSE)
    return {"$schema": SCHEMA_DIALECT, "title": app.name, "$defs": definitions}


def queue_schema(queue: Queue) -> Schema:
    """The schema of a queue's messages; a queue without a type takes any JSON."""
    return fields_schema(queue.message_type, queue.extra_fields) if queue.message_type else {}


def fields_schema(fields: Fields, extra_fields: ExtraFields) -> Schema:
    """The schema of an object with these fields."""
    properties: Schema = {}
    for name, field in fields.items():
        properties[name] = type_schema(field.type)
        if field.default is not UNSET:
            properties[name]["default"] = field.default
    required = [name for name, field in fields.items() if field.required]
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if extra_fields is ExtraFields.REFUSE:
        schema["additionalProperties"] = False
    return schema


_PLAIN: dict[TypeKind, Schema] = {
    TypeKind.STRING: {"type": "string"},
    TypeKind.INT: {"type": "integer", "minimum": INT_MIN, "maximum": INT_MAX},
    TypeKind.FLOAT: {"type": "number"},
    TypeKind.BOOL: {"type": "boolean"},
    TypeKind.TIME: {"type": "string", "format": "date-time"},
    TypeKind.UUID: {"type": "string", "format": "uuid"},
    TypeKind.JSON: {},
}


def type_schema(type_: Type) -> Schema:
    """The schema of a type."""
    schema = _bare_schema(type_)
    if not type_.optional or type_.kind is TypeKind.JSON:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _bare_schema(type_: Type) -> Schema:
    if type_.kind is TypeKind.ENUM:
        return {"type": "string", "enum": list(type_.choices)}
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return {"type": "array", "items": type_schema(type_.element)}
    if type_.kind is TypeKind.MAP and type_.element is not None and type_.key is not None:
        schema: Schema = {"type": "object", "additionalProperties": type_schema(type_.element)}
        if type_.key.kind is not TypeKind.STRING:
            schema["propertyNames"] = _bare_schema(type_.key)
        return schema
    return dict(_PLAIN[type_.kind])


def async_api(app: App) -> Schema:
    """An AsyncAPI 3.0 document: a channel for each queue and webhook, and the app's operations on it."""
    channels: Schema = {}
    operations: Schema = {}
    for name, queue in app.queues.items():
        channel = _identifier("queue", name)
        channels[channel] = _channel(name, f"the queue {name}", queue_schema(queue))
        if queue.map_to is not None or queue.deliver is not None:
            operations[f"work_{channel}"] = _operation("receive", channel, _work_of(queue))
        for then in queue.then:
            target = _identifier("queue", then.queue)
            operations[f"send_{channel}_{target}"] = _operation("send", target, f"once a message of {name} is done")
    for name, webhook in app.webhooks.items():
        channel = _identifier("webhook", name)
        channels[channel] = _channel(f"/hook/{name}", _webhook_title(name, webhook), {})
        channels[channel]["bindings"] = {"http": {}}
        operations[f"receive_{channel}"] = _operation("receive", channel, _webhook_target(webhook))
    return {
        "asyncapi": "3.0.0",
        "info": {"title": app.name, "version": "1"},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
    }


def _channel(address: str, title: str, payload: Schema) -> Schema:
    return {"address": address, "title": title, "messages": {"message": {"payload": payload}}}


def _operation(action: str, channel: str, summary: str) -> Schema:
    reference = {"$ref": f"#/channels/{channel}"}
    return {
        "action": action,
        "channel": reference,
        "summary": summary,
        "messages": [{"$ref": f"#/channels/{channel}/messages/message"}],
    }


def _identifier(kind: str, name: str) -> str:
    """The key of a channel, without characters that references would have to escape."""
    return f"{kind}_" + "".join(character if character.isascii() and character.isalnum() else "_" for character in name)


def _work_of(queue: Queue) -> str:
    if queue.map_to is not None:
        return f"runs {queue.map_to.entity}.{queue.map_to.command}"
    assert queue.deliver is not None
    return f"posts to {endpoint_name(queue.deliver.url) or queue.deliver.url_env}"


def _webhook_title(name: str, webhook: Webhook) -> str:
    scheme = scheme_of(webhook)
    return f"the webhook {name}, " + ("unsigned" if scheme is Scheme.NONE else f"signed by {scheme}")


def _webhook_target(webhook: Webhook) -> str:
    if webhook.command is not None:
        return f"runs {webhook.command.entity}.{webhook.command.command}"
    return f"pushes to {webhook.queue}"
