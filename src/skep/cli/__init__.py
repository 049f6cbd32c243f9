"""The `skep` command: one cyclopts app, to which each group of commands adds itself.

Commands are named by where they are and loaded when they are called, so that `skep --help` need not import them.
"""

from cyclopts import App

import skep

app = App(
    name="skep",
    help="A message queue whose messages end up in Spark.",
    version=skep.__version__,
    help_format="plaintext",
)
app.command("skep.cli.serve:serve", name="serve", help="Serve queues over HTTP.")
app.command("skep.cli.config:config_app", name="config", help="What the server is set to, and why.")
app.command("skep.cli.doctor:doctor", name="doctor", help="See whether this machine is fit to serve.")
app.command("skep.cli.bench:bench_app", name="bench", help="Measure Skep on this machine; ratios are within one run.")


@app.command
def version() -> None:
    """Print the version."""
    app.version_print()


def main() -> None:
    """Run the command line; the console script calls this."""
    app()
