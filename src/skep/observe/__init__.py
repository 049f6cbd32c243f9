"""Metrics of the server. Of the other packages it imports only the clock."""
