"""The `skep` command: one cyclopts app, to which each group of commands adds itself."""

from cyclopts import App

import skep
from skep.cli.bench import bench_app
from skep.cli.serve import serve

app = App(name="skep", help="A message queue whose messages end up in Spark.", version=skep.__version__)
app.command(bench_app)
app.command(serve)


@app.command
def version() -> None:
    """Print the version."""
    app.version_print()


def main() -> None:
    """Run the command line; the console script calls this."""
    app()
