"""`skep webhook`: why webhooks refuse requests, and new secrets and keys of Standard Webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.connection import ServerOptions
from skep.cli.output import Columns, print_lines, print_rows

if TYPE_CHECKING:
    from skep.wire.refusals import RefusalView

webhook_app = App(
    name="webhook", help="See which requests webhooks refused, and why; make secrets and keys.", help_format="plaintext"
)


@webhook_app.command
def refusals(webhook: str, /, *, to: ServerOptions = ServerOptions()) -> None:
    """See the last 100 requests that a webhook refused, newest first. Exit code 4 when there is no such webhook.

    For example:
        skep webhook refusals GitHub

    Parameters
    ----------
    webhook
        The name of the webhook in the spec.
    """
    with to.open() as client:
        print_rows(to, client.refusals(webhook), REFUSED, empty=f"the webhook {webhook!r} has refused nothing")


@webhook_app.command
def secret() -> None:
    """Print a new secret of Standard Webhooks, for deliveries that a receiver verifies with the same secret. Skep does not keep it.

    For example:
        export NOTIFY_SECRET=$(skep webhook secret)
    """
    from skep.spec.standard_keys import new_secret

    print_lines([new_secret()])


@webhook_app.command
def pair() -> None:
    """Print a new pair of keys of Standard Webhooks: the private key, which signs, and the public key, for those who verify.

    Skep does not keep them.

    For example:
        skep webhook pair
    """
    from skep.spec.standard_keys import new_pair

    print_lines(new_pair())


REFUSED: Columns[RefusalView] = {
    "when": lambda one: one.at,
    "code": lambda one: one.code,
    "status": lambda one: one.status,
    "from": lambda one: one.remote,
    "tenant": lambda one: one.tenant or "",
    "why": lambda one: one.message,
    "request": lambda one: one.excerpt,
}
