"""`skep bench` of an installed Skep: it has no benchmarks. They lie beside `src` in a clone, and `./skep bench` runs them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from skep.errors import Code, SkepError


def bench(*_arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
    """Say where the benchmarks are run: in a clone, by `./skep bench`."""
    raise SkepError(Code.INVALID_REQUEST, "benchmarks are run from a clone of the repository, with ./skep bench")
