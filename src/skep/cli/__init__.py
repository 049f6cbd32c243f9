"""The `skep` command. Only the help of `skep` itself is loaded at once; each command is loaded when it is called."""

import sys

HELP: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["help"])


def main() -> None:
    """Run the command line; the console script calls this."""
    arguments = sys.argv[1:]
    if arguments in HELP:
        from skep.cli.commands import overview

        sys.stdout.write(overview())
        return
    from skep.cli.app import run

    sys.exit(run(arguments))
