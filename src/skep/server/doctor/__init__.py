"""`skep doctor`: whether this machine is fit to serve. `examine` runs all checks."""
