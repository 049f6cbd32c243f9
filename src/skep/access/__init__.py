"""Access control: keys and tokens become principals, principals have grants, and the audit log notes admin calls.

Nothing here knows HTTP; `skep.http.request.guard` is its caller.
"""
