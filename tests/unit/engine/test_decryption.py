"""Nothing that may be sealed leaves the store but through what opens it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

import skep.engine
from skep.engine.decryption import Decryption
from skep.store.protocol import PayloadVerbs
from skep.store.remote.verbs import VERBS, RemoteVerb

ENGINE = Path(skep.engine.__file__).parent
SEALED_FIELDS = {"payload", "error", "last_error", "batch"}
"""What payloads, the errors of consumers, and columns of the log are called in the structs that a store gives out."""
ELSEWHERE = {
    "scheduled.page": "engine/scheduled.py opens it",
    "claim_operations": "what is claimed is pushed as it is, sealed",
    "access.list_audit": "its errors are those of requests",
    "operation": "its error is the engine's own",
    "list_operations": "as that of one operation",
    "with_transaction_id": "its messages have no payloads",
}


def opened_verbs() -> set[str]:
    return {name for name, _ in inspect.getmembers(PayloadVerbs, inspect.iscoroutinefunction)}


def fields_of(kind: Any, seen: set[Any]) -> Iterator[str]:
    """The names of all that a type holds."""
    if kind in seen:
        return
    seen.add(kind)
    for inner in get_args(kind):
        yield from fields_of(inner, seen)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.type is not Any:
                yield field.name
            yield from fields_of(field.type, seen)


def gives_out_what_may_be_sealed(verb: RemoteVerb) -> bool:
    return bool(SEALED_FIELDS & set(fields_of(verb._hints["return"], set())))


def test_every_verb_that_gives_out_payloads_or_errors_is_opened() -> None:
    giving = {str(verb) for verb in VERBS if gives_out_what_may_be_sealed(verb)}

    assert giving - ELSEWHERE.keys() == opened_verbs()
    assert not ELSEWHERE.keys() - giving
    assert opened_verbs() <= vars(Decryption).keys()


def test_the_engine_reads_payloads_opened() -> None:
    """Its parts have those verbs of a store that they need, by their types: only where it is put together all of them are known."""
    whole = [path.name for path in ENGINE.rglob("*.py") if "Store" in names_imported(path, "skep.store.protocol")]
    verbs = opened_verbs()
    bare = [
        f"{path.name} {node.attr}"
        for path in ENGINE.rglob("*.py")
        if path.name not in ("decryption.py", "encryption.py", "forgetting.py")  # forgetting looks at seqs only
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in verbs and ast.unparse(node.value).endswith("store")
    ]

    assert (whole, bare) == (["parts.py"], [])


def names_imported(path: Path, module: str) -> set[str]:
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if f"from {module} import" in text else ()
    return {
        name.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == module for name in node.names
    }
