"""Sources of master keys: `file:/path`, `env:NAME`, or the output of `command:…`, which may ask any KMS."""

from __future__ import annotations

import shlex
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from skep.crypto.master import MasterKeys
from skep.errors import Code, SkepError

COMMAND_SECONDS = 30
KEYS_BYTES_MAX = 64 * 1024


def load_master_keys(source: str, environment: Mapping[str, str]) -> MasterKeys:
    """The master keys of a source; KEY_UNAVAILABLE when it cannot be read, INVALID_SETTING when its text is malformed."""
    kind, _, place = source.partition(":")
    match kind:
        case "file":
            return MasterKeys(_from_file(Path(place)))
        case "env":
            if not environment.get(place):
                raise _unavailable(f"the environment has no variable {place}")
            return MasterKeys(environment[place])
        case "command":
            return MasterKeys(_from_command(place))
        case _:
            # The value itself is not repeated: it may be a key that was meant to be in a file.
            raise SkepError(
                Code.INVALID_SETTING,
                "encryption.master_keys is file:/path, env:NAME or command:…",
                setting="master_keys",
            )


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise _unavailable(f"{path} can be read by others than its owner: chmod 600 {path}")
            return _text(file.read(KEYS_BYTES_MAX + 1))
    except OSError as error:
        raise _unavailable(f"{path} cannot be read: {error.strerror}") from None


def _from_command(command: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, capture_output=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, ValueError, IndexError) as error:
        raise _unavailable(f"its command cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise _unavailable(f"its command took longer than {COMMAND_SECONDS} seconds") from None
    if done.returncode:
        # Only its stderr: its output may contain a key.
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise _unavailable(f"its command ended with status {done.returncode}: {said}")
    return _text(done.stdout)


def _text(data: bytes) -> str:
    if len(data) > KEYS_BYTES_MAX:
        raise _unavailable(f"there are more than {KEYS_BYTES_MAX} bytes of it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _unavailable("it is not text") from None


def _unavailable(reason: str) -> SkepError:
    return SkepError(Code.KEY_UNAVAILABLE, f"the master key cannot be had: {reason}")
