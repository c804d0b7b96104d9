"""``nco-bench``, and ``python -m nco_bench``: what is interrupted while the command line is still imported ends quietly."""

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from nco_bench.cli.app import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
