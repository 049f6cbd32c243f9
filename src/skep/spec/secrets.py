"""The secrets a spec refers to: names of environment variables, never their values."""

from __future__ import annotations

from collections.abc import Mapping

from skep.spec.ir import App
from skep.spec.problems import Path, Problem, Spans, located


def secret_variables(app: App) -> dict[str, Path]:
    """Every variable that must be there before anything starts, with the first place that names it."""
    found: dict[str, Path] = {}
    for name, webhook in app.webhooks.items():
        if webhook.verify is not None:
            for variable in webhook.verify.secret_env:
                found.setdefault(variable, ("webhooks", name, "verify", "secret_env"))
    for name, queue in app.queues.items():
        if queue.deliver is not None:
            for variable in queue.deliver.secret_env:
                found.setdefault(variable, ("queues", name, "deliver", "secret_env"))
    return found


def missing_secrets(app: App, environment: Mapping[str, str], spans: Spans | None = None) -> list[Problem]:
    """A problem for each variable that is not there, or empty."""
    return [
        located(
            Problem(message=f"the environment has no {variable}", path=path, expected="a secret"), "", 0, spans or {}
        )
        for variable, path in secret_variables(app).items()
        if not environment.get(variable)
    ]
