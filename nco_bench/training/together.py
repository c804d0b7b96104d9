"""torchrun that ends without a traceback where its processes have ended with a checkpoint, as SIGTERM asks of them.

``python -m nco_bench.training.together`` takes torchrun's arguments.
"""

from __future__ import annotations

import logging
import sys

MODULE = "nco_bench.training.together"
SHELL_SIGNAL = 128
"""What shells add to a signal's number for the status of a process that it ended."""


def main() -> int:
    """Start processes that train together and wait for them; a signal is passed on to all, and they are waited for."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException

    logging.disable(logging.WARNING)  # a line for each process to which a signal is passed on
    try:
        run.main()
    except SignalException as signal:
        return SHELL_SIGNAL + int(signal.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
