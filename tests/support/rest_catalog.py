"""A REST catalog of Iceberg on this machine: the protocol of tables and namespaces, over an SQLite catalog of pyiceberg.

Run as a program it serves on a socket that it inherits: `python -m tests.support.rest_catalog FD FOLDER`. Its requests can go wrong as
those of `tests.support.s3`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.s3 import Faulty

STATES = {200: "200 OK", 204: "204 No Content", 404: "404 Not Found", 409: "409 Conflict"}
SEPARATOR = "\x1f"
"""Between the parts of a namespace in a path."""


class RestCatalog:
    """The application."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        store = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
        self._tables = SqlCatalog(
            "served", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri(), **store
        )

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        from pyiceberg import exceptions

        refused = {
            exceptions.NoSuchTableError: 404, exceptions.NoSuchNamespaceError: 404,
            exceptions.TableAlreadyExistsError: 409, exceptions.NamespaceAlreadyExistsError: 409,
            exceptions.CommitFailedException: 409,
        }  # fmt: skip
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        parts = [unquote(part) for part in environ["PATH_INFO"].strip("/").split("/")][1:]
        try:
            status, answer = 200, self._answer(environ["REQUEST_METHOD"], parts, body)
        except tuple(refused) as error:
            status = refused[type(error)]
            told = {"message": str(error), "type": type(error).__name__, "code": status}
            answer = json.dumps({"error": told})
        start(STATES[status], [("Content-Type", "application/json")])
        return [answer.encode()]

    def _answer(self, method: str, parts: list[str], body: bytes) -> str:
        match method, parts:
            case "GET", ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                namespace = tuple(json.loads(body)["namespace"])
                self._tables.create_namespace(namespace)
                return json.dumps({"namespace": namespace, "properties": {}})
            case "GET", ["namespaces", name]:
                properties = self._tables.load_namespace_properties(tuple(name.split(SEPARATOR)))
                return json.dumps({"namespace": name.split(SEPARATOR), "properties": properties})
            case "POST", ["namespaces", name, "tables"]:
                return self._create(tuple(name.split(SEPARATOR)), body)
            case "GET", ["namespaces", name, "tables", table]:
                found = self._tables.load_table((*name.split(SEPARATOR), table))
                return _told(found.metadata_location, found.metadata)
            case "POST", ["namespaces", name, "tables", table]:
                return self._commit((*name.split(SEPARATOR), table), body)
        raise AssertionError(f"{method} {'/'.join(parts)} is no request of these tests")

    def _create(self, namespace: tuple[str, ...], body: bytes) -> str:
        from pyiceberg.catalog.rest import CreateTableRequest
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

        asked = CreateTableRequest.model_validate_json(body)
        made = self._tables.create_table(
            (*namespace, asked.name), asked.table_schema, asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC, properties=asked.properties,
        )  # fmt: skip
        return _told(made.metadata_location, made.metadata)

    def _commit(self, name: tuple[str, ...], body: bytes) -> str:
        from pyiceberg.table import CommitTableRequest

        asked = CommitTableRequest.model_validate_json(body)
        done = self._tables.commit_table(self._tables.load_table(name), asked.requirements, asked.updates)
        return _told(done.metadata_location, done.metadata)


def _told(location: str, metadata: Any) -> str:
    return json.dumps({"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())})


def main(descriptor: int, folder: str) -> None:
    from werkzeug.serving import make_server

    make_server("127.0.0.1", 0, Faulty(RestCatalog(Path(folder))), threaded=True, fd=descriptor).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
