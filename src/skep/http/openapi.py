"""The OpenAPI document, made from the routes and their structs, so that both always agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from http import HTTPStatus
from typing import Any

import msgspec

from skep import __version__
from skep.config import Limits
from skep.http.request.permission import Reach
from skep.http.request.route import Media, Parameter, Route
from skep.http.stated_limits import NAME, Stated, write_answered
from skep.wire.problems import ErrorResponse

Json = dict[str, Any]

JSON = "application/json"
REF = "#/components/schemas/{name}"
DESCRIPTION = (
    "A message queue for Python teams whose messages end up in Spark. Every answer outside 2xx has the one shape "
    "`ErrorResponse`. An unknown field or parameter is refused."
)
PATH_PARAMETERS = {
    "queue": "the queue's name",
    "partition": "the partition's name",
    "group": "the group's name",
    "lease": "the `leaseId` of a popped message",
    "transactionId": "the message's transaction id",
    "app": "the app's name",
    "webhook": "the webhook's name, as its spec calls it",
    "tenant": "the tenant's name",
    "type": "the type of the entity, as its spec calls it",
    "id": "the entity's id",
}
TENANT = {
    "name": "Skep-Tenant",
    "in": "header",
    "description": "Whose queues are meant; the tenant `default` when it is not given.",
    "schema": {"type": "string", **NAME},
    "example": "default",
}
SECURITY = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key (`skep_…`) or a token (JWT), where the server asks for one.",
}
_TENANTED = ("/api/", "/admin/")
_REFERENCE = re.compile(re.escape(REF).replace(re.escape("{name}"), r"(\w+)"))
_BRACES = re.compile(r"{(\w+)}")
_TIME = re.compile(r"(At|Deadline|After|Before|_at|_deadline|^since|^until|^time|^at)$")


def document(routes: Sequence[Route], limits: Limits) -> Json:
    """The whole document of a server with these limits."""
    schemas = _Schemas(routes, Stated(limits))
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Skep",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "parameters": {"Tenant": TENANT},
            "securitySchemes": {"bearer": SECURITY},
            "responses": {
                "Error": {
                    "description": "Nothing of the call happened; the code says why",
                    "content": {JSON: {"schema": schemas.of(ErrorResponse)}},
                }
            },
        },
    }


class _Schemas:
    """The schemas of all types that routes name."""

    def __init__(self, routes: Sequence[Route], stated: Stated) -> None:
        self.stated = stated
        types = list({_key(kind): kind for kind in [*_types(routes), ErrorResponse]}.values())
        found, self.components = msgspec.json.schema_components(types, ref_template=REF)
        self._of = {_key(kind): schema for kind, schema in zip(types, found, strict=True)}
        asked = set(self._named_by(route.request for route in routes))
        for struct, component in self.components.items():
            for name, schema in component.get("properties", {}).items():
                _refine(name, schema)
                write_answered(struct, name, schema)
                if struct in asked:
                    stated.write(struct, name, schema)
            if "description" in component:
                component["description"] = component["description"].replace("``", "`")

    def _named_by(self, bodies: Iterable[Any]) -> Iterator[str]:
        """The components that bodies are made of."""
        open_ = [self.of(kind) for body in bodies for kind in _kinds(body)]
        seen: set[str] = set()
        while open_:
            for name in _REFERENCE.findall(msgspec.json.encode(open_.pop()).decode()):
                if name not in seen:
                    seen.add(name)
                    open_.append(self.components[name])
                    yield name

    def of(self, kind: Any) -> Json:
        """The schema of a type."""
        return deepcopy(self._of[_key(kind)])


def _key(kind: Any) -> str:
    return repr(kind)


def _types(routes: Sequence[Route]) -> Iterator[Any]:
    for route in routes:
        for body in (route.request, *route.answers.values()):
            yield from _kinds(body)
        yield from (parameter.type for parameter in route.parameters)
    yield str


def _kinds(body: Any) -> Iterator[Any]:
    return (part.schema if isinstance(part, Media) else part for part in _parts(body))


def _parts(body: Any) -> tuple[Any, ...]:
    if body is None:
        return ()
    return body if isinstance(body, tuple) else (body,)


def _refine(name: str, schema: Json) -> None:
    """Schemas that a field's type does not show: times are recognized by their names, and so is raw JSON."""
    if _TIME.search(name):
        for part in schema.get("anyOf", [schema]):
            if part.get("type") == "string":
                part["format"] = "date-time"
    if name == "headers" and not schema:
        text = {"type": "object", "additionalProperties": {"type": "string"}}
        schema.update(anyOf=[text, {"type": "null"}], description="names and texts")
    if name == "payload" and not schema:
        schema["description"] = "any JSON"


def _operation(route: Route, schemas: _Schemas) -> Json:
    told: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": {str(status): _answer(status, body, schemas) for status, body in route.answers.items()},
    }
    told["responses"].update({kind: {"$ref": "#/components/responses/Error"} for kind in ("4XX", "5XX")})
    if route.access.reach not in (Reach.OPEN, Reach.SIGNED):
        told["security"] = [{"bearer": []}]
    needs = f"Needs {route.access}." if route.access.verbs else ""
    if route.description or needs:
        told["description"] = f"{route.description} {needs}".strip()
    parameters = list(_parameters(route, schemas))
    if route.path.startswith(_TENANTED):
        parameters.append({"$ref": "#/components/parameters/Tenant"})
    if parameters:
        told["parameters"] = parameters
    if route.request is not None:
        content = _content(route.request, schemas)
        if route.example is not None:
            next(iter(content.values()))["example"] = route.example
        told["requestBody"] = {"required": not route.optional, "content": content}
    return told


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path.removeprefix("/api/v1"))
    return "_".join([route.method.lower(), *words])


def _parameters(route: Route, schemas: _Schemas) -> Iterator[Json]:
    told = {parameter.name: parameter for parameter in route.parameters}
    for name in _BRACES.findall(route.path):
        given = told.pop(name, None)
        parameter = given or Parameter(name, str, PATH_PARAMETERS[name])
        yield {**_parameter(route.path, parameter, schemas), "in": "path", "required": True}
    for parameter in told.values():
        yield {**_parameter(route.path, parameter, schemas), "in": "query", "required": parameter.required}


def _parameter(path: str, parameter: Parameter, schemas: _Schemas) -> Json:
    schema = schemas.of(parameter.type)
    _refine(parameter.name, schema)
    schemas.stated.write(path, parameter.name, schema)
    description = parameter.description.replace("``", "`")
    return {"name": parameter.name, "description": description, "schema": schema}


def _answer(status: int, body: Any, schemas: _Schemas) -> Json:
    told: Json = {"description": HTTPStatus(status).phrase}
    if body is not None:
        told["content"] = _content(body, schemas)
    return told


def _content(body: Any, schemas: _Schemas) -> Json:
    """The body by media type; several JSON shapes become one that is any of them."""
    content: Json = {}
    for part in _parts(body):
        media, kind = (part.type, part.schema) if isinstance(part, Media) else (JSON, part)
        schema = schemas.of(kind)
        if media in content:
            content[media]["schema"] = {"anyOf": [content[media]["schema"], schema]}
        else:
            content[media] = {"schema": schema}
    return content
