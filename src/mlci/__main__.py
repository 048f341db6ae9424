"""The command `mlci`, also `python -m mlci`; Ctrl-C while the program loads prints a sentence, not a traceback."""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from mlci.cli import main as run

        run()
    except KeyboardInterrupt:  # before a command has begun; later, the command line handles it
        print("mlci: stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
