"""From a message to the input of a command, in one place for workers and for pipelines on Spark.

A message is read by its queue's type, the mapping makes fields, and the other fields of the command's input get their defaults.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from skep.entities.refusal import cannot_apply, without_value
from skep.errors import Code, SkepError
from skep.spec import (
    App,
    ExpressionError,
    FieldMapping,
    Validator,
    apply_mapping,
    compile_mapping,
    compile_validator,
    decode,
    misfit,
    misfit_of,
)
from skep.spec.ir import Queue
from skep.spec.messages import with_defaults
from skep.spec.variables import of_queue

Fields = dict[str, object]


class InputReader(Struct, frozen=True):
    """Reads the messages of a queue."""

    validator: Validator | None

    def fields(self, payload: bytes) -> Fields:
        """The variables of expressions over a message; MESSAGE_INVALID when the message does not fit."""
        if self.validator is not None:
            unfit = misfit(self.validator, payload)
            if unfit is not None:
                raise SkepError(
                    Code.MESSAGE_INVALID, str(unfit), field=unfit.field, value=unfit.value, expected=unfit.expected
                )
        try:
            # A json field that fits may still have no value in Python: a number like 1e999, or a list of 10,000 lists.
            return (
                {"message": msgspec.json.decode(payload)} if self.validator is None else decode(self.validator, payload)
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SkepError(Code.MESSAGE_INVALID, f"the message is no JSON: {error}") from None


class InputMapping(Struct, frozen=True):
    """Maps the fields of a message to the input of a command; ``input`` is None when no entity declares the command."""

    command: str
    mapping: FieldMapping
    input: Validator | None

    def made(self, fields: Fields) -> Fields:
        """The command's input; MAPPING_FAILED when it cannot be made."""
        where = f"map_to {self.command}"
        try:
            made = apply_mapping(self.mapping, fields)
        except ExpressionError as error:
            raise without_value(error, where) from None
        if self.input is None:
            return made
        if (unfit := misfit_of(self.input, made)) is not None:
            raise cannot_apply(self.mapping, unfit, where)
        return with_defaults(self.input, made)

    @property
    def constants(self) -> Fields:
        """The fields of the input that the mapping does not make: their defaults, the same for every message."""
        if self.input is None:
            return {}
        mapped = {name for name, _ in self.mapping.fields}
        return {name: value for name, value in with_defaults(self.input, {}).items() if name not in mapped}


def compile_reading(queue: Queue) -> InputReader:
    return InputReader(compile_validator(queue.message_type, queue.extra_fields) if queue.message_type else None)


def compile_input(app: App, queue: Queue) -> InputMapping | None:
    """The compiled mapping of a queue of a valid app; None when the queue has none."""
    call = queue.map_to
    if call is None:
        return None
    entity = app.entities.get(call.entity)
    target = entity.commands[call.command].input if entity is not None else None
    return InputMapping(
        f"{call.entity}.{call.command}",
        compile_mapping(call.fields, of_queue(queue), target),
        compile_validator(target) if target is not None else None,
    )
