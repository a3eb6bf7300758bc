"""``python -m kvsim``, and the entry point of the command ``kvsim``."""

from __future__ import annotations

import gc
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line and leave with its exit code."""
    # A replay makes many objects and hardly any cycles: to look for them less often saves 7 % of the
    # time of a long one.
    gc.set_threshold(100_000, 20, 100)
    signal.signal(signal.SIGTERM, _stop)
    try:
        from kvsim.cli.app import run
    except KeyboardInterrupt:  # while the libraries are loaded, before `run` could answer it
        sys.exit(130)
    sys.exit(run())


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave as on a mistake: what is half-written goes, and so do processes that work for us."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
