"""`skep doctor`: whether this machine is fit to serve. `examine` asks all the checks."""
