"""The defaults that a queue object adds to its calls: its partition and group."""

from __future__ import annotations

from skep.client.calls import PopOptions

CONSUME_WAIT_SECONDS = 30.0
"""How long one long poll of `consume` lasts when it is not said."""


def queue_pop_options(partition: str | None, group: str | None, options: PopOptions) -> PopOptions:
    """The options of a pop: its own arguments, else the defaults of its queue object."""
    named: PopOptions = {}
    if partition is not None:
        named["partition"] = partition
    if group is not None:
        named["group"] = group
    return {**named, **options}
