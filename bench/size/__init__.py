"""`skep bench size`: what somebody who only pushes feels when there is much of something else on the server."""
