"""`minga`, also as `python -m minga`. Who interrupts it while it is still being imported gets no traceback either."""

import sys

__all__ = ["main"]


def main() -> None:
    try:
        from minga.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
