"""The command `mlci`, and `python -m mlci`: who stops it while it is still being loaded reads a sentence, too."""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from mlci.cli import main as run

        run()
    except KeyboardInterrupt:  # before a command had begun; afterwards the command line sees to it
        print("mlci: stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
