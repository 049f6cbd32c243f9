"""The query protocol: the action and its parameters as a form, the result as XML. Lists are numbered parameters."""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from skep.errors import SkepError
from skep.http.request.call import Answer
from skep.http.sqs.actions import ACTIONS, SqsAction
from skep.http.sqs.faults import INVALID_ACTION, INVALID_VALUE, MALFORMED_QUERY, Fault, SqsError, missing

MEDIA_TYPE = b"text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
PARAMETERS_MAX = 2_000
LEVELS_MAX = 8

_LISTS = {
    "AttributeNames": "AttributeName", "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName", "TagKeys": "TagKey", "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}  # fmt: skip
"""The parameter that an element of a list is, by the list's name."""
_MAPS = {
    "Attributes": ("Attribute", "Name"), "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"), "Tags": ("Tag", "Key"), "tags": ("Tag", "Key"),
}  # fmt: skip
"""The element of a map, and what its key is called, by the map's name."""
_RESULTS = {
    "QueueUrls": "QueueUrl", "queueUrls": "QueueUrl", "Messages": "Message", "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}  # fmt: skip
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UNFIT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
Tree = dict[str, Any]


def parameters(text: bytes) -> dict[str, str]:
    """The parameters of a form or a query."""
    if text.count(b"&") >= PARAMETERS_MAX or not text.isascii() or _BROKEN_ESCAPE.search(text):
        raise _broken()
    found: dict[str, str] = {}
    for part in filter(None, text.split(b"&")):
        name, _, value = part.partition(b"=")
        known = _decoded(name)
        if known in found:
            raise SqsError(MALFORMED_QUERY, "The query string has a parameter twice.")
        found[known] = _decoded(value)
    return found


def _decoded(text: bytes) -> str:
    """A text without its escapes, which are sound.

    Quoted-printable is the same with another sign, and is read in one pass. `urllib` makes an object of each escape: a message of
    1 MiB took 250 MB and half a second, in which no other call was answered.
    """
    try:
        return binascii.a2b_qp(text.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"=")).decode()
    except UnicodeDecodeError:
        raise _broken() from None


def _broken() -> SqsError:
    return SqsError(MALFORMED_QUERY, "The query string contains a syntax error.")


def action_of(given: Mapping[str, str]) -> SqsAction:
    """The action that the parameters name."""
    name = given.get("Action")
    if name is None:
        raise missing("Action")
    action = ACTIONS.get(name)
    if action is None:
        raise SqsError(INVALID_ACTION, f"The action {name[:100]} is not valid for this endpoint.")
    return action


def read(action: SqsAction, given: Mapping[str, str]) -> Struct:
    """The request in the parameters."""
    try:
        request: Struct = msgspec.convert(
            _fields(action.request, _tree(given), f"{action.name}RequestEntry"), action.request, strict=False
        )
    except msgspec.ValidationError as error:
        raise SqsError(INVALID_VALUE, f"A parameter has a wrong value: {error}") from None
    return request


def _tree(given: Mapping[str, str]) -> Tree:
    """Parameters by the parts of their names, which dots divide."""
    tree: Tree = {}
    for name, value in given.items():
        *path, last = name.split(".", LEVELS_MAX)
        if len(path) >= LEVELS_MAX:
            raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} has too many parts.")
        place = tree
        for part in path:
            below = place.setdefault(part, {})
            if not isinstance(below, dict):
                raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} has a value and parts.")
            place = below
        if last in place:
            raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} has a value and parts.")
        place[last] = value
    return tree


def _fields(kind: type[Struct], tree: Tree, entry: str) -> Tree:
    """The fields of a request, as the JSON protocol has them."""
    found: Tree = {}
    for name in kind.__struct_encode_fields__:
        if name == "Entries":
            entries = _numbered(tree.get(entry))
            found[name] = [_fields(_entry_type(kind), one, entry) if isinstance(one, dict) else one for one in entries]
        elif name in _LISTS:
            found[name] = _numbered(tree.get(_LISTS[name]))
        elif name in _MAPS:
            found[name] = _map(tree, *_MAPS[name])
        elif name in tree:
            found[name] = tree[name]
    return found


def _entry_type(kind: type[Struct]) -> type[Struct]:
    entry: type[Struct] = msgspec.inspect.type_info(kind).fields[-1].type.fields[0].type.cls  # type: ignore[attr-defined] # Entries of structs
    return entry


def _numbered(of: object) -> list[Any]:
    """The elements of a list, in the order of their numbers."""
    if not isinstance(of, dict):
        return []
    of = of.get("member", of)
    if not isinstance(of, dict) or not all(
        number.isdecimal() and number.isascii() and len(number) < 10 for number in of
    ):
        raise SqsError(MALFORMED_QUERY, "The elements of a list are numbered.")
    return [of[number] for number in sorted(of, key=int)]


def _map(tree: Tree, element: str, key: str) -> Tree:
    found: Tree = {}
    for one in _numbered(tree.get(element)):
        if not isinstance(one, dict) or not isinstance(one.get(key), str) or one[key] in found:
            raise SqsError(INVALID_VALUE, f"Each {element} has a {key} of its own, and a Value.")
        found[one[key]] = one.get("Value", "")
    return found


# results


def answer(action: SqsAction, result: Struct, request_id: str) -> Answer:
    """The answer with a result."""
    name = action.name
    told = msgspec.to_builtins(result)
    parts = [f'<?xml version="1.0"?><{name}Response xmlns="{NAMESPACE}">']
    if result.__struct_fields__:
        parts.append(f"<{name}Result>")
        _write(parts, told, f"{name}ResultEntry")
        parts.append(f"</{name}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>")
    return Answer(200, "".join(parts).encode(), MEDIA_TYPE, [(b"x-amzn-requestid", request_id.encode())])


def _write(parts: list[str], fields: Mapping[str, Any], entry: str) -> None:
    for name, value in fields.items():
        if isinstance(value, list):
            element = entry if name == "Successful" else _RESULTS[name]
            for one in value:
                _element(parts, element, one, entry)
        elif isinstance(value, dict) and name in _MAPS:
            element, key = _MAPS[name]
            for known, one in value.items():
                _element(parts, element, {key: known, "Value": one}, entry)
        else:
            _element(parts, name, value, entry)


def _element(parts: list[str], name: str, value: Any, entry: str) -> None:
    parts.append(f"<{name}>")
    if isinstance(value, dict):
        _write(parts, value, entry)
    else:
        parts.append(_text(str(value).lower() if isinstance(value, bool) else str(value)))
    parts.append(f"</{name}>")


def _text(text: str) -> str:
    return _UNFIT.sub("\ufffd", text).translate(_ESCAPES)


def refusal(error: SkepError, fault: Fault, request_id: str) -> Answer:
    """The answer with an error."""
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{"Sender" if fault.is_senders else "Receiver"}</Type>'
        f"<Code>{fault.code}</Code><Message>{_text(error.message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Answer(fault.status, body.encode(), MEDIA_TYPE, [(b"x-amzn-requestid", request_id.encode())])
