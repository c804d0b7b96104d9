"""``python -m nco_bench`` is ``nco-bench``."""

from nco_bench.cli.app import main

if __name__ == "__main__":
    main()
