"""The dashboard: pages for people, served at `/` by the same server. It needs the extra `dashboard`.

It stands on the engine and on the code that the API looks around with; it knows no SQL, and no page runs a query that grows
with the log. Every state is a URL; links and forms work without a script, which only adds comfort.
"""

from skep.dashboard.pages import Dashboard

__all__ = ["Dashboard"]
