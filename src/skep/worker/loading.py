"""Load the app that the command line names: a spec file, or a Python module with an app and its functions."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from skep.errors import Code, SkepError
from skep.worker.app import App

_SUFFIXES = (".skep", ".toml", ".json")


def load_app(target: str) -> App:
    """The app of ``orders.skep``, ``module:app`` or ``folder/file.py:app``; modules are looked for in this folder, too."""
    home, colon, name = target.rpartition(":")
    if target.endswith(_SUFFIXES) or not colon:
        return App.load(target)
    found = getattr(_module(home), name, None)
    if not isinstance(found, App):
        what = "nothing of that name" if found is None else f"{type(found).__name__}, not a skep.App"
        raise SkepError(Code.INVALID_REQUEST, f"{target}: {home} has {what}")
    return found


def _module(home: str) -> ModuleType:
    try:
        if home.endswith(".py"):
            return _from_file(Path(home))
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(home)
    except SkepError:
        raise
    except ImportError as error:
        raise SkepError(Code.INVALID_REQUEST, f"{home!r} cannot be imported: {error}") from error


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SkepError(Code.INVALID_REQUEST, f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    # Types of annotations are looked for here, and so are the module's own neighbours.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
