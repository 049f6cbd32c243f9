"""`skep completion`: completion for shells."""

from __future__ import annotations

import sys
from typing import Literal

from skep.cli.connection import Flag
from skep.cli.output import print_lines


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: Flag = False) -> None:
    """Print the completion of a shell, or put it where the shell looks for it.

    For example:
        skep completion bash --install
        skep completion zsh > ~/.zfunc/_skep

    Parameters
    ----------
    shell
        The shell.
    install
        Write the file, and say where it is.
    """
    from skep.cli.app import app

    if install:
        print_lines([f"installed {app.install_completion(shell=shell, add_to_startup=True)}; open a new shell"])
        return
    sys.stdout.write(app.generate_completion(shell=shell))
