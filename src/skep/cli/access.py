"""`skep access`: whether servers of a store ask for keys. It works on the store itself: a server reads this only when it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.at_store import StoreChoice, note, on_store
from skep.cli.connection import Output
from skep.cli.consent import Consent
from skep.cli.output import chosen, print_json, print_lines
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.engine import Engine

access_app = App(name="access", help="See whether a store asks for keys, and open it again.", help_format="plaintext")


@dataclass(frozen=True)
class AccessState:
    """The state of a store: whether it is closed (a server asks for keys), and the number of valid keys."""

    closed: bool
    keys: int


@access_app.command
def show(*, place: StoreChoice = StoreChoice(), output: Output = None) -> None:
    """Say whether a server asks for keys when it starts on the store.

    For example:
        skep access show
    """
    _print(_at(place, _state), output)


@access_app.command(name="open")
def open_(*, consent: Consent = Consent(), place: StoreChoice = StoreChoice(), output: Output = None) -> None:
    """Open the store: from its next start on, a server on loopback asks nobody for a key, and every caller may do anything.

    A store that ever had a key stays closed, even after its last key has expired; this command opens it again. Revoke all valid
    keys first. A server that listens beyond loopback still needs a key.

    For example:
        skep access open --dry-run
        skep access open --yes
    """
    before = _at(place, _state)
    if before.keys:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"keys of the store that count: {before.keys}; revoke them first (skep key list, skep key revoke)",
        )
    if consent.dry_run or not before.closed:
        _print(before, output)
        return
    consent.ask("this lets everyone who reaches a server of this store do anything, from the server's next start on")

    async def opening(engine: Engine) -> AccessState:
        await engine.access.set_closed(False)
        await note(engine, place, "skep access open", target="the store", before="closed", after="open")
        return await _state(engine)

    _print(_at(place, opening), output)


async def _state(engine: Engine) -> AccessState:
    from skep.access.keys import counts

    now = engine.now()
    found = sum(counts(record, now) for record in await engine.access.all_keys())
    return AccessState(await engine.access.is_closed(), found)


def _at(place: StoreChoice, work: Callable[[Engine], Awaitable[AccessState]]) -> AccessState:
    try:
        return on_store(place, work)
    except SkepError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        raise SkepError(
            Code.STORE_BUSY, "a server has the store, and looks at this only when it starts: stop it first"
        ) from None


def _print(state: AccessState, output: Output) -> None:
    if chosen(output) == "json":
        print_json(state)
    elif state.keys:
        print_lines([f"keys are required; {state.keys} {'is' if state.keys == 1 else 'are'} valid"])
    elif state.closed:
        print_lines(
            ["keys are required, but none is valid: make one (skep key create) or open the store (skep access open)"]
        )
    else:
        print_lines(["on loopback nobody is asked for a key; elsewhere one is needed, and there is none"])
