"""A process that has imported Skep and waits to become `skep ARGUMENTS`, or a script. `tests.support.process` starts it and asks it.

It forks for each command, so that a command is a process of its own but need not import anything: that takes longer than most commands
themselves. The process in between ends at once. So the command becomes a child of whoever asked, who waits for it as for any other.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import socket
import sys
import threading
import time
import types
import warnings
from pathlib import Path

REQUEST_BYTES = 1_000_000
LEFT_OUT = ("skep.cli.demo", "skep.cli.pipeline")
"""Commands that import what starts threads: the libraries of columns and of Spark."""
ALSO = (
    "skep.server.compose",
    "skep.server.process",
    "skep.server.run",
    "skep.store.sqlite",
    "skep.store.postgres",
    "skep.client",
)


def prepare() -> None:
    """Import what commands import, and compile the pages that a server compiles in its first second."""
    import skep.cli
    from skep.dashboard.site import read_templates

    for module in pkgutil.walk_packages(skep.cli.__path__, "skep.cli."):
        if not module.name.startswith(LEFT_OUT):
            importlib.import_module(module.name)
    for name in ALSO:
        importlib.import_module(name)
    read_templates()
    gc.freeze()


def wait_for_request(asked: socket.socket) -> dict[str, object] | None:
    """Answer requests with the number of a process; in that process, return the request. None when nobody asks any more."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 3)
        if not text:
            return None
        between = os.fork()
        if between == 0:
            number = os.fork()
            if number == 0:
                request: dict[str, object] = json.loads(text)
                become(request, descriptors)
                return request
            asked.send(str(number).encode())
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        asked.send(b"it is yours")


def become(request: dict[str, object], descriptors: list[int]) -> None:
    """Take on the folder, environment, arguments and standard streams that were asked for."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    if request["new_session"]:
        os.setsid()
    os.umask(int(str(request["umask"])))
    os.chdir(str(request["folder"]))
    environ = request["environ"]
    assert isinstance(environ, dict)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.path[0] = str(request["folder"])
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    command = [str(importlib.import_module("skep").__path__[0]) + "/__main__.py"]
    sys.argv[:] = arguments if request["is_script"] else command + arguments
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdout, sys.stderr = writer(1, "strict"), writer(2, "backslashreplace")


def writer(number: int, errors: str) -> io.TextIOWrapper:
    """A standard stream, buffered as the interpreter does it."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), "utf-8", errors=errors, line_buffering=number == 2 or raw.isatty(), write_through=False
    )


def end(asked: SystemExit) -> None:
    """Leave as the interpreter does, without taking apart what was imported: that copies all of it, as nothing is shared any more.

    Returns when the output cannot be written, which the interpreter has a way of its own to tell.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as the interpreter does first
    atexit._run_exitfuncs()
    try:
        if isinstance(asked.code, str):
            print(asked.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(asked.code if isinstance(asked.code, int) else int(asked.code is not None))


def run_script(path: str) -> None:
    """Be a script, as the interpreter is that is told `-W error`."""
    warnings.resetwarnings()
    warnings.simplefilter("error")
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    end(SystemExit(0))


def run() -> None:
    """Be the command."""
    from skep.cli import main

    try:
        main()
    except SystemExit as asked:
        end(asked)
        raise


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        asked.set_inheritable(False)
        prepare()
        asked.send(b"ready")
        asked_for = wait_for_request(asked)
    if asked_for is not None and asked_for["is_script"]:
        run_script(sys.argv[0])
    elif asked_for is not None:
        run()
