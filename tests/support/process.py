"""`skep` as a process, started like any other but without the time to import it: forked from one that has (`tests.support.prepared`).

What is imported when, and what an interpreter is told at its start, such a process does not show. Tests of that start
`python -m skep` themselves, as does everything here on systems that are not Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
COMMAND = [sys.executable, "-m", "skep"]
SCRIPT = [sys.executable, "-W", "error"]
PREPARED = Path(__file__).with_name("prepared.py")
REPLY_BYTES = 64

_one_at_a_time = threading.Lock()


class SkepProcess(subprocess.Popen[Any]):
    """A `subprocess.Popen` of `skep ARGUMENTS`, with the same options; or of a script, to which warnings are errors."""

    def __init__(self, *arguments: str, is_script: bool = False, **options: Any) -> None:
        self._arguments = arguments
        self._is_script = is_script
        super().__init__([*(SCRIPT if is_script else COMMAND), *arguments], **options)

    def _execute_child(self, *given: Any) -> None:
        """Ask for a process where the base class forks and executes one."""
        signature = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined] # as private as here
        asked = signature.bind(self, *given).arguments
        environ = dict(os.environ if asked["env"] is None else asked["env"])
        if not _can_be_forked(asked, environ):
            super()._execute_child(*given)  # type: ignore[misc] # as above
            return
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        request = {
            "arguments": self._arguments, "folder": str(asked["cwd"] or Path.cwd()), "environ": environ,
            "new_session": asked["start_new_session"], "umask": _umask(), "is_script": self._is_script,
        }  # fmt: skip
        self.pid = _forked(
            json.dumps(request).encode(), [number if end == -1 else end for number, end in enumerate(ends)]
        )
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined] # as above


def run_skep(
    *arguments: str, timeout: float, typed: str | bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run `skep ARGUMENTS`, or a script, to its end and catch what it says, as `subprocess.run` does."""
    stdin = subprocess.DEVNULL if typed is None else subprocess.PIPE
    process = SkepProcess(*arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    with process:
        try:
            out, err = process.communicate(typed, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _can_be_forked(asked: dict[str, Any], environ: dict[str, str]) -> bool:
    """Whether nothing is asked for that only a new interpreter does."""
    if sys.platform != "linux" or asked["preexec_fn"] is not None or asked["pass_fds"]:
        return False
    return _for_python(environ) == _for_python(dict(os.environ))


def _for_python(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG", "LD_"))}


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _forked(request: bytes, descriptors: list[int]) -> int:
    """The number of a new process, which is a child of this one when this returns."""
    with _one_at_a_time:
        asking = _asking()
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(asking, [request], descriptors)
            number = int(asking.recv(REPLY_BYTES))
            asking.recv(REPLY_BYTES)
        finally:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return number


@functools.cache
def _asking() -> socket.socket:
    """The connection to the prepared process of this worker, which lasts as long as the worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(PREPARED), str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
    atexit.register(_end, ours, process)
    assert ours.recv(REPLY_BYTES) == b"ready"
    return ours


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()
