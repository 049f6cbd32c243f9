"""Names of a package that are loaded when they are first used, so that importing the package costs nothing."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(
    package: "dict[str, Any]", homes: "Mapping[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """The `__getattr__` and `__dir__` of a package, given its globals, whose names are loaded from these modules when first used."""

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(home), name)
        return value

    return get, lambda: sorted({*package, *homes})
