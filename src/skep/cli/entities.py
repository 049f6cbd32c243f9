"""`skep entity`: look at entities and their events."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from skep.cli.connection import Limit, ServerOptions
from skep.cli.output import Columns, excerpt, print_fields, print_lines, print_one, print_rows

if TYPE_CHECKING:
    from skep.wire.entities import EntityView, EventView

EntityType = Annotated[str, Parameter(help="The type, as the spec calls it.")]
EntityId = Annotated[str, Parameter(help="The entity's id.")]

entity_app = App(name="entity", help="Look at entities and their events.", help_format="plaintext")


@entity_app.command
def types(*, to: ServerOptions = ServerOptions()) -> None:
    """List the entity types that have entities.

    For example:
        skep entity types
    """
    with to.open() as client:
        print_one(to, client.entity_types(), lambda found: print_lines(found or ["there are no entities"]))


@entity_app.command(name="list")
def list_entities(type_: EntityType, /, *, limit: Limit = 100, to: ServerOptions = ServerOptions()) -> None:
    """List entities of a type by id.

    For example:
        skep entity list Incident --limit 20

    Parameters
    ----------
    limit
        The largest number of entities to list.
    """
    with to.open() as client:
        print_rows(to, islice(client.entities(type_), limit), LISTED, empty=f"there are no entities of {type_!r}")


@entity_app.command
def show(type_: EntityType, id_: EntityId, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Show an entity as it is now.

    For example:
        skep entity show Incident I-1001
    """
    with to.open() as client:
        print_one(to, client.entity(type_, id_), _show)


@entity_app.command
def events(type_: EntityType, id_: EntityId, /, *, limit: Limit = 100, to: ServerOptions = ServerOptions()) -> None:
    """List the events of an entity, oldest first.

    For example:
        skep entity events Incident I-1001

    Parameters
    ----------
    limit
        The largest number of events to list.
    """
    with to.open() as client:
        print_rows(to, islice(client.entity_events(type_, id_), limit), EVENTS, empty="there are no events")


def _show(entity: EntityView) -> None:
    print_fields({
        entity.entity: entity.id,
        "version": entity.version,
        "created": entity.created_at,
        "updated": entity.updated_at,
        "state": bytes(entity.state).decode(),
    })  # fmt: skip


LISTED: Columns[EntityView] = {
    "id": lambda one: one.id,
    "version": lambda one: one.version,
    "updated": lambda one: one.updated_at,
    "state": lambda one: excerpt(one.state),
}
EVENTS: Columns[EventView] = {
    "number": lambda one: one.number,
    "event": lambda one: one.name,
    "at": lambda one: one.at,
    "cause": lambda one: one.cause,
    "data": lambda one: excerpt(one.data),
}
