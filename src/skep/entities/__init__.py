"""Entities: what a command does to one. Pure: nothing here reads a clock, a store or the network.

`compile_entities` makes an app's entities ready once; `accept` tells which entity an input is for, `decide` what the command does to
it, and `fold` what its events add up to.
"""

from skep.entities.compiled import CompiledCommand, CompiledEntity, compile_entities, compile_entity
from skep.entities.decide import Accepted, Decision, Emitted, Snapshot, accept, decide, encoded, snapshot
from skep.entities.fold import apply_event, fold
from skep.entities.refusal import PERMANENT

__all__ = [
    "PERMANENT",
    "Accepted",
    "CompiledCommand",
    "CompiledEntity",
    "Decision",
    "Emitted",
    "Snapshot",
    "accept",
    "apply_event",
    "compile_entities",
    "compile_entity",
    "decide",
    "encoded",
    "fold",
    "snapshot",
]
