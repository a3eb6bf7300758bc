"""``python -m kvsim``, and the entry point of the command ``kvsim``."""

from __future__ import annotations

import gc
import sys

from kvsim.cli.app import run


def main() -> None:
    """Run the command line and leave with its exit code."""
    # A replay makes many objects and hardly any cycles: to look for them less often saves 7 % of the
    # time of a long one.
    gc.set_threshold(100_000, 20, 100)
    sys.exit(run())


if __name__ == "__main__":
    main()
