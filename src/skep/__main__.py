"""`python -m skep` is the `skep` command."""

from skep.cli import main

if __name__ == "__main__":
    main()
