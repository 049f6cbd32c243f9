"""Who may do what: keys and tokens become principals, principals have scopes, and what admins do is noted.

Nothing here knows HTTP; `skep.http.request.guard` asks at the door.
"""
