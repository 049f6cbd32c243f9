"""Entities: what a command does to one. Pure: nothing here reads a clock, a store or the network.

`compile_entities` compiles an app's entities once. `accept` finds the entity of an input, `decide` computes what the command does to
it, and `fold` computes its state from its events.
"""

from skep.entities.compiled import CompiledEntity, compile_entities, compile_entity
from skep.entities.decide import Accepted, Decision, Emitted, Snapshot, accept, decide, encoded, snapshot
from skep.entities.fold import fold
from skep.entities.refusal import PERMANENT

__all__ = [
    "PERMANENT",
    "Accepted",
    "CompiledEntity",
    "Decision",
    "Emitted",
    "Snapshot",
    "accept",
    "compile_entities",
    "compile_entity",
    "decide",
    "encoded",
    "fold",
    "snapshot",
]
