"""Layers between a process and its C library, which show it another time or another disk than there is.

A layer is one C file of this folder. It is compiled when it is first needed, a process is started with it (LD_PRELOAD), and it does nothing
until it is told to: its cells, whole numbers in a file that the process maps, are written from outside while the process runs. In C
they are a struct of `int64_t`; the first two are `version`, which is odd while somebody writes, and `loaded`, which every process that
loads the layer adds one to.
"""

from __future__ import annotations

import mmap
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILED = frozenset(("clock", "disk"))
COMPILER = "cc"
CURE = "layers need Linux and a C compiler (cc): install one, such as gcc with libc6-dev, or leave these faults out"
_CELL_BYTES = 8
_FIRST_CELLS = ("version", "loaded")


def can_compile() -> bool:
    """Whether this machine can have layers at all."""
    return sys.platform == "linux" and shutil.which(COMPILER) is not None


def compiled(name: str, folder: Path) -> Path:
    """The layer as a library in the folder; RuntimeError with the compiler's words when it cannot be had."""
    library = folder / f"{name}.so"
    if not library.exists():
        command = [COMPILER, "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCES / f"{name}.c")]
        done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the layer {name} was not compiled ({CURE}): {done.stderr.strip()}")
        library.chmod(0o755)
    return library


class Layer:
    """One layer of one process, or of a family of processes that is started as one. The folder must be open to whoever they run as."""

    def __init__(self, name: str, process: str, cells: tuple[str, ...], folder: Path) -> None:
        """``cells`` are those after the first two, as the C file has them."""
        self.name = name
        self.library = compiled(name, folder)
        self._places = {cell: place for place, cell in enumerate((*_FIRST_CELLS, *cells))}
        self._path = folder / f"{name}.{process}.cells"
        self._path.write_bytes(bytes(_CELL_BYTES * len(self._places)))
        self._path.chmod(0o666)
        with self._path.open("r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def read(self, cell: str) -> int:
        """What a cell has now."""
        return self._cells[self._places[cell]]

    def write(self, **values: int) -> None:
        """Change cells; who reads them meanwhile sees all of the change or nothing."""
        self._cells[0] += 1
        for cell, value in values.items():
            self._cells[self._places[cell]] = value
        self._cells[0] += 1

    def check(self) -> None:
        """RuntimeError when no process has loaded the layer: then its faults would do nothing."""
        if self.read("loaded") == 0:
            raise RuntimeError(f"no process has loaded the layer {self.name} ({self.library})")

    @property
    def variable(self) -> tuple[str, str]:
        """The environment variable that names the file of the cells."""
        return f"SKEP_TORTURE_{self.name.upper()}", str(self._path)


def environment(layers: Iterable[Layer]) -> dict[str, str]:
    """What a process needs in its environment to be started with these layers."""
    all_layers = list(layers)
    if not all_layers:
        return {}
    preload = ":".join(str(layer.library) for layer in all_layers)
    return {"LD_PRELOAD": preload, **dict(layer.variable for layer in all_layers)}
