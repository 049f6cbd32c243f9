"""The errors that refuse a command for good: a retry would fail in the same way. Each names the expression and the value."""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.spec import Expression, ExpressionError, FieldMapping, Misfit
from skep.spec.expressions import shown

PERMANENT = frozenset({Code.GUARD_REJECTED, Code.MAPPING_FAILED, Code.MESSAGE_INVALID})
"""The codes of these errors."""


def without_value(error: ExpressionError, where: str) -> SkepError:
    """The error of an expression that has no value for this message."""
    field = error.details.get("field")
    of_field = f", field {field!r}" if field else ""
    got = "" if error.value is None else f"; the value is {shown(error.value)}"
    return SkepError(
        Code.MAPPING_FAILED,
        f"{where}{of_field}: {error.message}, in `{error.details['expression']}`{got}",
        expression=error.details["expression"],
        at=error.at,
        value=shown(error.value),
        field=field,
    )


def not_a_condition(expression: Expression, value: object, where: str) -> SkepError:
    """The error of a condition that is neither true nor false."""
    return SkepError(
        Code.MAPPING_FAILED,
        f"{where}: neither true nor false, in `{expression.text[:200]}`; the value is {shown(value)}",
        expression=expression.text[:200],
        value=shown(value),
    )


def cannot_apply(mapping: FieldMapping, misfit: Misfit, where: str) -> SkepError:
    """The error of a mapping whose result does not fit its target."""
    text = next((expression.text for name, expression in mapping.fields if name == _root(misfit.field)), None)
    made_by = f", made by `{text[:200]}`" if text is not None else ""
    return SkepError(
        Code.MAPPING_FAILED,
        f"{where}: {misfit}{made_by}",
        field=misfit.field,
        value=misfit.value,
        expected=misfit.expected,
        expression=None if text is None else text[:200],
    )


def unfit_input(misfit: Misfit, command: str) -> SkepError:
    """The error of an input that does not fit the command."""
    return SkepError(
        Code.MAPPING_FAILED,
        f"the input of {command}: {misfit}",
        field=misfit.field,
        value=misfit.value,
        expected=misfit.expected,
    )


def unfit_key(expression: Expression, value: object, where: str) -> SkepError:
    """The error of a value that cannot be an id."""
    return SkepError(
        Code.MAPPING_FAILED,
        f"{where}: expected 1 to 255 characters without control characters, or an int, "
        f"from `{expression.text[:200]}`; the value is {shown(value)!r}",
        expression=expression.text[:200],
        value=shown(value),
    )


def rejected(guard: Expression, command: str, id_: str, values: dict[str, object]) -> SkepError:
    """The error of a guard that did not hold."""
    return SkepError(
        Code.GUARD_REJECTED,
        f"the guard of {command} does not hold for {id_!r}: `{guard.text[:200]}`; "
        f"input {shown(values['input'])}, state {shown(values['state'])}",
        expression=guard.text[:200],
        id=id_,
        input=shown(values["input"]),
        state=shown(values["state"]),
    )


def _root(field: str) -> str:
    return field.split(".")[0].split("[")[0]
