"""The secrets a spec refers to: names of environment variables, never their values.

Where the environment has no such variable, `NAME_FILE` may name a file with the secret, as container platforms mount them.
A short secret could be guessed from one signature, so it is refused.
The keys of Standard Webhooks are read by `skep.spec.standard_keys`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from pathlib import Path as FilePath

from msgspec import Struct

from skep.spec.endpoint import is_address
from skep.spec.ir import App, Deliver, Scheme
from skep.spec.problems import Path, Spans, SpecProblem, located
from skep.spec.standard_keys import check_length, signing_key, verifying_key

FILE_BYTES_MAX = 64 * 1024
FILE_SUFFIX = "_FILE"


class SecretKind(Enum):
    """The purpose of a secret, which decides its form."""

    TEXT = auto()
    """The key of an HMAC, as it is written."""
    VERIFYING = auto()
    """What verifies Standard Webhooks: the sender's secret, or its public key."""
    SIGNING = auto()
    """What signs Standard Webhooks: a secret or a private key of ours."""
    HEADER = auto()
    """The value of a header."""
    ADDRESS = auto()
    """The URL of a delivery."""


class SecretUse(Struct, frozen=True):
    """A variable, its purpose, and the path of the part that names it."""

    variable: str
    kind: SecretKind
    path: Path


class SecretFault(Struct, frozen=True):
    """A secret that cannot be used, and why."""

    use: SecretUse
    message: str


def secret_uses(app: App) -> list[SecretUse]:
    """Every secret of an app, once for each purpose."""
    found: dict[tuple[str, SecretKind], SecretUse] = {}
    for name, webhook in app.webhooks.items():
        if webhook.verify is not None:
            kind = secret_kind(webhook.verify.scheme)
            for variable in webhook.verify.secret_env:
                use = SecretUse(variable, kind, ("webhooks", name, "verify", "secret_env"))
                found.setdefault((variable, kind), use)
    for name, queue in app.queues.items():
        for use in delivery_uses(queue.deliver, ("queues", name, "deliver")):
            found.setdefault((use.variable, use.kind), use)
    return list(found.values())


def secret_kind(scheme: Scheme) -> SecretKind:
    """The kind of secret that a signature scheme uses."""
    return SecretKind.VERIFYING if scheme is Scheme.STANDARD_WEBHOOKS else SecretKind.TEXT


def delivery_uses(deliver: Deliver | None, path: Path = ()) -> Iterator[SecretUse]:
    """The secrets of a delivery."""
    if deliver is None:
        return
    if deliver.url_env is not None:
        yield SecretUse(deliver.url_env, SecretKind.ADDRESS, (*path, "url_env"))
    for variable in deliver.secret_env:
        yield SecretUse(variable, SecretKind.SIGNING, (*path, "secret_env"))
    for header, variable in deliver.headers_env.items():
        yield SecretUse(variable, SecretKind.HEADER, (*path, "headers_env", header))


def secret_files(apps: Iterable[App], environment: Mapping[str, str]) -> list[FilePath]:
    """The files that hold secrets of these apps."""
    variables = {use.variable for app in apps for use in secret_uses(app)}
    return [
        FilePath(place)
        for variable in sorted(variables)
        if not environment.get(variable) and (place := environment.get(variable + FILE_SUFFIX))
    ]


def secret_faults(uses: list[SecretUse], environment: Mapping[str, str]) -> list[SecretFault]:
    """The secrets that cannot be used: they are missing or malformed."""
    found: list[SecretFault] = []
    for use in uses:
        try:
            read_secret(use, environment)
        except ValueError as error:
            found.append(SecretFault(use, str(error)))
    return found


def secret_problems(
    app: App, environment: Mapping[str, str], spans: Spans | None = None, *, expected: str = "a secret"
) -> list[SpecProblem]:
    """A problem for each secret of an app that cannot be used; ``expected`` says whose environment it is."""
    return [
        located(SpecProblem(message=fault.message, path=fault.use.path, expected=expected), "", 0, spans or {})
        for fault in secret_faults(secret_uses(app), environment)
    ]


def read_secret(use: SecretUse, environment: Mapping[str, str]) -> str:
    """A secret as text. ValueError when it is missing or malformed; the error has no part of it."""
    variable = use.variable
    secret = environment.get(variable) or _from_file(variable, environment)
    match use.kind:
        case SecretKind.TEXT:
            check_length(variable, secret.encode())
        case SecretKind.VERIFYING:
            verifying_key(variable, secret)
        case SecretKind.SIGNING:
            signing_key(variable, secret)
        case SecretKind.HEADER:
            if not secret.isprintable() or not secret.isascii():
                raise ValueError(f"what {variable} holds cannot be a header's value: plain ASCII, and one line")
        case SecretKind.ADDRESS:
            if not is_address(secret):
                raise ValueError(f"what {variable} holds is not an address like https://host/path")
    return secret


def _from_file(variable: str, environment: Mapping[str, str]) -> str:
    place = environment.get(variable + FILE_SUFFIX)
    if not place:
        raise ValueError(f"the environment has neither {variable} nor {variable}{FILE_SUFFIX}")
    try:
        with FilePath(place).open("rb") as file:
            text = file.read(FILE_BYTES_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"the file of {variable}{FILE_SUFFIX} cannot be read: {reason}") from None
    if not text:
        raise ValueError(f"the file of {variable}{FILE_SUFFIX} is empty")
    return text
