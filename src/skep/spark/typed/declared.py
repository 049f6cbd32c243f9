"""Where the message types of queues come from: a spec file, or the specs that are applied on the server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skep.errors import Code, SkepError
from skep.model import DEFAULT_TENANT
from skep.spark.offset_ranges import matching, subscribed
from skep.spark.options import APPLIED
from skep.spec import App, from_json, load
from skep.spec.ir import ExtraFields, Fields, OnFail, Queue

if TYPE_CHECKING:
    from skep.spark.link import Link
    from skep.spark.options import SourceOptions


class TypedQueue(Struct, frozen=True):
    """A queue with a message type, in an app of its own that has nothing else: its type, and the checks that reject messages."""

    app: App
    name: str

    @property
    def queue(self) -> Queue:
        return self.app.queues[self.name]

    @property
    def fields(self) -> Fields:
        return self.queue.message_type

    @property
    def rejects_by_checks(self) -> bool:
        """Whether a message of the type may still be rejected."""
        return bool(self.queue.checks)


def typed_queue(app: App, name: str) -> TypedQueue:
    """A queue of an app as typed rows need it; INVALID_REQUEST when it has no message type."""
    spec = app.queues.get(name)
    if spec is None:
        known = ", ".join(one for one, queue in app.queues.items() if queue.message_type) or "none"
        raise SkepError(
            Code.INVALID_REQUEST, f"the spec of {app.name} has no queue {name!r}; with a message type it has {known}"
        )
    if not spec.message_type:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the queue {name!r} of {app.name} has no message_type, so its messages have no fields to make columns of: declare "
            "one, or read the queue without typed columns",
        )
    # Messages that were pushed before a field was removed still have it.
    bare = Queue(
        message_type=spec.message_type, extra_fields=ExtraFields.ALLOW,
        checks={check: one for check, one in spec.checks.items() if one.on_fail is OnFail.DROP},
    )  # fmt: skip
    return TypedQueue(App(name=app.name, queues={name: bare}), name)


def app_of_file(path: str) -> App:
    """The app of a spec file. INVALID_REQUEST when it cannot be read, INVALID_SPEC with all problems when it is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the spec {path} cannot be read in {Path.cwd()}: {reason}. It is read on the machine of Spark's driver; {APPLIED} "
            "means the specs that are applied on the server",
        ) from None
    return load(text, path)


def applied_apps(server: Link, tenant: str, wanted: Callable[[str], bool]) -> dict[str, App]:
    """The applied app of each wanted queue that one declares. Another tenant than the default one has the queues of an app if one of
    its webhooks takes the tenant.
    """
    found: dict[str, App] = {}
    # In the order in which they were applied: of two that declare the same, the first one has it.
    for summary in sorted(server.patiently(server.client.apps), key=lambda one: one.revision):
        queues = [queue for queue in summary.queues if wanted(queue) and queue not in found]
        if not queues:
            continue
        detail = server.patiently(partial(server.client.app, summary.app))
        app = from_json(bytes(detail.document), summary.app)
        if tenant == DEFAULT_TENANT or any(webhook.tenant is not None for webhook in app.webhooks.values()):
            found |= dict.fromkeys(queues, app)
    return found


def subscribed_types(server: Link, options: SourceOptions) -> dict[str, TypedQueue]:
    """The message types of the queues to read. Of a pattern, also those of queues that are declared and not made yet."""
    wanted = frozenset(options.queues).__contains__ if options.pattern is None else matching(options.pattern)
    if options.spec is None or options.spec == APPLIED:
        apps = applied_apps(server, options.connection.tenant, wanted)
    else:
        app = app_of_file(options.spec)
        apps = dict.fromkeys(filter(wanted, app.queues), app)
    names = set(subscribed(server, options))
    if options.pattern is not None:
        names |= {name for name, app in apps.items() if app.queues[name].message_type}
    found = {}
    for name in sorted(names):
        if name not in apps:
            raise _undeclared(name, options)
        found[name] = typed_queue(apps[name], name)
    return found


def _undeclared(queue: str, options: SourceOptions) -> SkepError:
    if options.spec != APPLIED:
        return SkepError(
            Code.INVALID_REQUEST, f"the spec {options.spec} declares no queue {queue!r}, which is to be read"
        )
    tenant = options.connection.tenant
    of = "" if tenant == DEFAULT_TENANT else f" for the tenant {tenant!r}"
    return SkepError(
        Code.INVALID_REQUEST,
        f"no applied spec declares the queue {queue!r}{of}, so the type of its messages is not known: apply one (skep spec apply), or "
        'name a file: .option("spec", "shop.skep")',
    )
