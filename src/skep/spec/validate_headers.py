"""The validator of kept headers: names in `keep_headers` that are never kept, and expressions that read headers that are not kept.

These are warnings, not errors, since apps that were applied earlier must go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.spec.ast import FunctionCall, Literal, Select, Variable, walk
from skep.spec.checking import Checking
from skep.spec.expressions import analyse
from skep.spec.faults import TextError
from skep.spec.ir import IdempotencySource, Webhook
from skep.spec.kept_headers import ALL, KeptHeaders, kept_of, secret_reason
from skep.spec.problems import Path, Severity
from skep.spec.variables import WEBHOOK

_HEADERS = "headers"


def check_kept(checking: Checking, webhook: Webhook, path: Path) -> None:
    """Check the headers that a webhook keeps, and those that its expressions read."""
    kept = kept_of(webhook)
    for header in webhook.keep_headers or ():
        if header != ALL:
            checking.header((*path, "keep_headers"), header)
            _check_named(checking, kept, header, (*path, "keep_headers"))
    for at, text in _expressions(webhook, path):
        for node in _names_read(text):
            _check_read(checking, kept, node, at, text)


def _check_named(checking: Checking, kept: KeptHeaders, header: str, path: Path) -> None:
    never = kept.why_not(header.lower())
    if never is not None:
        checking.warning(path, f"{header!r} is never kept: {never}", "headers without secrets")
    elif secret_reason(header.lower()) is not None:
        message = f"{header!r} is stored with every message, and its name says that it may hold a secret"
        checking.warning(path, message, "no such header, unless it is harmless")


def _check_read(checking: Checking, kept: KeptHeaders, node: Literal | Select, path: Path, text: str) -> None:
    name = node.field if isinstance(node, Select) else str(node.value)
    if name != name.lower():
        message, wanted = f"there is no header {name!r}: their names are in small letters", f'headers["{name.lower()}"]'
    elif (reason := kept.why_not(name)) is not None:
        message = f"the header {name!r} is not kept: {reason}"
        wanted = f'"{name}" in keep_headers' if kept.may_name(name) else "another header, or a field of the payload"
    else:
        return
    checking.problem(path, message, wanted, text=text, at=node.at, absence=True, severity=Severity.WARNING)


def _expressions(webhook: Webhook, path: Path) -> Iterator[tuple[Path, str]]:
    for name, text in webhook.message.items():
        yield (*path, "message", name), text
    if webhook.command is not None:
        for name, text in webhook.command.fields.items():
            yield (*path, "command", "fields", name), text
    if webhook.idempotency is not None and webhook.idempotency.source is IdempotencySource.KEY:
        yield (*path, "idempotency", "value"), webhook.idempotency.value


def _names_read(text: str) -> Iterator[Literal | Select]:
    """The places where an expression names a header: ``headers["a"]``, ``headers.a``, ``has(headers.a)``, ``"a" in headers``."""
    if _HEADERS not in text:
        return
    try:
        tree = analyse(text, WEBHOOK).tree
    except TextError:  # the check of the expression itself reports this
        return
    for node in walk(tree):
        match node:
            case Select(operand=Variable(name="headers")):
                yield node
            case FunctionCall(function="[]", arguments=(Variable(name="headers"), Literal(value=str()) as name)):
                yield name
            case FunctionCall(function="in", arguments=(Literal(value=str()) as name, Variable(name="headers"))):
                yield name
