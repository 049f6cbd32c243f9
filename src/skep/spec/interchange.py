"""The IR as TOML and as JSON, both ways. Both have the shape of the structs, with types as text.

All problems of a document are reported at once, by path.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skep.model import QueueChanges
from skep.model.setting_names import meant_setting
from skep.spec.faults import TextError
from skep.spec.ir import App, Entity, Queue, Schedule, Webhook
from skep.spec.problems import Path, SpecError, SpecProblem, render_all
from skep.spec.syntax import TEXT_CHARACTERS
from skep.spec.types import Field, parse_field, print_field

Document = dict[str, Any]

_KINDS: dict[str, type] = {"queues": Queue, "webhooks": Webhook, "entities": Entity, "schedules": Schedule}
LINE_CHARACTERS = 20_000
"""The longest line of TOML: the standard library's parser takes quadratic time for a key with many dots."""

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def from_json(text: str | bytes, filename: str = "spec") -> App:
    """An app from JSON."""
    return _loaded(text, filename, msgspec.json.decode)


def from_toml(text: str, filename: str = "spec") -> App:
    """An app from TOML."""
    return _loaded(text, filename, _load_toml)


def to_json(app: App) -> str:
    """An app as JSON, two spaces a level."""
    return msgspec.json.format(msgspec.json.encode(to_document(app)), indent=2).decode() + "\n"


def to_toml(app: App) -> str:
    """An app as TOML."""
    return "\n".join(_toml_table(to_document(app), ())).strip() + "\n"


def to_document(app: App) -> Document:
    """An app as plain dictionaries, with types as text."""
    document: Document = msgspec.to_builtins(app)
    for path, fields in _field_tables(document):
        where: Any = app
        for step in path:
            where = where[step] if isinstance(where, dict) else getattr(where, str(step))
        for name in fields:
            field: Field = where[name]
            fields[name] = print_field(field)
    return document


def from_document(document: object, filename: str = "spec") -> App:
    """An app from plain dictionaries."""
    problems: list[SpecProblem] = []
    try:
        app = _converted(copy.deepcopy(document), problems)
    except RecursionError:
        app = App(name="")
        problems.append(SpecProblem(message="the document is nested too deeply"))
    if problems:
        raise SpecError(problems, render_all(problems, "", filename))
    return app


def _loaded(text: str | bytes, filename: str, load: Callable[[str | bytes], object]) -> App:
    problem: SpecProblem
    try:
        if len(text) > TEXT_CHARACTERS:
            raise ValueError(f"a spec has at most {TEXT_CHARACTERS} characters")
        document = load(text)
    except RecursionError:
        problem = SpecProblem(message="the document is nested too deeply")
    except (ValueError, msgspec.MsgspecError) as error:
        problem = SpecProblem(message=f"the document cannot be read: {error}")
    else:
        return from_document(document, filename)
    raise SpecError([problem], render_all([problem], "", filename))


def _load_toml(text: str | bytes) -> object:
    given = text if isinstance(text, str) else text.decode()
    if any(len(line) > LINE_CHARACTERS for line in given.split("\n")):
        raise ValueError(f"a line has at most {LINE_CHARACTERS} characters")
    return tomllib.loads(given)


def _converted(document: object, problems: list[SpecProblem]) -> App:
    if not isinstance(document, dict):
        problems.append(
            SpecProblem(message="a spec is a table", expected="name, queues, webhooks, entities or schedules")
        )
        return App(name="")
    for path, fields in _field_tables(document):
        _read_fields(path, fields, problems)
    found: Document = {}
    for kind, part in _KINDS.items():
        found[kind] = _convert_kind(document.get(kind, {}), kind, part, problems)
    unknown = [str(name) for name in document if name != "name" and name not in _KINDS]
    problems += [SpecProblem(message=f"there is no {name!r} in a spec", path=(name,)) for name in unknown]
    name = document.get("name")
    if not isinstance(name, str):
        problems.append(SpecProblem(message="the app has no name", path=("name",), expected="a string"))
        name = ""
    return App(name=name, **found)


def _convert_kind(given: object, kind: str, part: type, problems: list[SpecProblem]) -> Document:
    if not isinstance(given, dict):
        problems.append(SpecProblem(message=f"{kind} are kept by their names", path=(kind,), expected="a table"))
        return {}
    found: Document = {}
    for name, content in given.items():
        if kind == "queues" and isinstance(content, dict) and isinstance(content.get("settings"), dict):
            # A null setting counts as missing, as in the spec language.
            said = {key: value for key, value in content["settings"].items() if value is not None}
            content["settings"] = {key: said[key] for key in said if key in QueueChanges.__struct_fields__}
            problems += [
                _unknown_setting((kind, str(name), "settings", str(key)))
                for key in sorted(said.keys() - content["settings"].keys())
            ]
        try:
            found[str(name)] = msgspec.convert(content, part)
        except (msgspec.ValidationError, RecursionError) as error:
            text = str(error)
            problems.append(SpecProblem(message=text[:1].lower() + text[1:], path=(kind, str(name))))
    return found


def _unknown_setting(path: Path) -> SpecProblem:
    name = str(path[-1])
    meant = meant_setting(name)
    return SpecProblem(message=f"there is no setting {name!r}", path=path, expected=f"{meant}?" if meant else None)


def _read_fields(path: Path, fields: Document, problems: list[SpecProblem]) -> None:
    for name, text in list(fields.items()):
        try:
            if not isinstance(text, str):
                raise TextError(0, "a type is written as a string", '"int", for instance')
            fields[name] = parse_field(text)
        except TextError as error:
            problems.append(SpecProblem(message=error.message, path=(*path, name), expected=error.expected))
            del fields[name]


def _field_tables(document: Document) -> Iterator[tuple[Path, Document]]:
    """Every table of typed fields, with its path."""
    for name, queue in _tables(document.get("queues")):
        yield from _table(queue, "message_type", ("queues", name))
    for name, entity in _tables(document.get("entities")):
        yield from _table(entity, "state", ("entities", name))
        for command, content in _tables(entity.get("commands")):
            yield from _table(content, "input", ("entities", name, "commands", command))


def _tables(given: object) -> Iterator[tuple[str, Document]]:
    if isinstance(given, dict):
        yield from ((name, content) for name, content in given.items() if isinstance(content, dict))


def _table(parent: Document, name: str, path: Path) -> Iterator[tuple[Path, Document]]:
    if isinstance(parent.get(name), dict):
        yield (*path, name), parent[name]


def _toml_table(table: Document, path: tuple[str, ...]) -> Iterator[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, dict) and value is not None}
    if path and (plain or not table):
        yield ""
        yield f"[{'.'.join(map(_toml_key, path))}]"
    for name, value in plain.items():
        yield f"{_toml_key(name)} = {_toml_value(value)}"
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _toml_table(value, (*path, name))


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml_string(name)


def _toml_value(value: object) -> str:
    match value:
        case str():
            return _toml_string(value)
        case bool():
            return "true" if value else "false"
        case dict():
            pairs = (f"{_toml_key(name)} = {_toml_value(item)}" for name, item in value.items() if item is not None)
            return f"{{ {', '.join(pairs)} }}"
        case list():
            return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)


def _toml_string(text: str) -> str:
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
