"""`/api/v1/tables/{table}`: lease history, dead letters, queues and groups as Arrow tables, for Spark and other readers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ_LIST
from skep.http.request.route import Media, Parameter
from skep.http.routes.bulk import arrow_extra
from skep.http.routes.route_table import RouteTable
from skep.wire.log import ARROW

TABLE_ROWS = 1_000_000


class TableName(StrEnum):
    """The name of a table."""

    LEASES = "leases"
    DEAD_LETTERS = "dead_letters"
    QUEUES = "queues"
    GROUPS = "groups"


PARAMETERS = (
    Parameter("table", TableName, "which table"),
    Parameter("queue", str, "rows of this queue; leases and dead_letters need it"),
    Parameter("after", str, "rows after this position, seq or name of a queue"),
    Parameter("until", int, "rows up to this position or seq, of leases and dead_letters"),
    Parameter("since", datetime, "leases that ended, or dead_letters that died, at this time or later"),
    Parameter("limit", int, f"how many rows at most; {TABLE_ROWS} by default"),
)


ROUTES: RouteTable[Engine] = RouteTable("Log")


@ROUTES.route(
    "GET", "/api/v1/tables/{table}", READ_LIST, "Lease history, dead letters, queues or groups, as an Arrow stream",
    parameters=PARAMETERS, answers={200: Media(ARROW)},
)  # fmt: skip
async def read(engine: Engine, call: Call) -> Answer:
    try:
        name = TableName(call.path("table"))
    except ValueError:
        raise SkepError(Code.INVALID_REQUEST, f"there are the tables {', '.join(TableName)}") from None
    with arrow_extra():
        from skep.http.tables import TABLES, Row, TableWish, stream
    query = call.query
    limit = parameters.count(query, "limit", TABLE_ROWS)
    table = TABLES[name]
    if "queue" in query:
        call.queue(query["queue"])
    wish = TableWish(
        call.tenant,
        query.get("queue"),
        query.get("after"),
        parameters.position(query, "until"),
        parameters.time(query, "since"),
        limit,
        call.visible,
    )
    pages = table.pages(engine, wish)
    first: list[Row] = await anext(pages, [])
    return Answer(200, stream(table, pages, first, limit), ARROW.encode())
