"""Who holds a lease, and whether it is still there."""

from __future__ import annotations

import os
import secrets
import socket
from typing import NamedTuple, Self


class Owner(NamedTuple):
    """Who holds a lease."""

    host: str
    pid: int
    token: str
    """Tells it from an earlier process of the same number."""

    @classmethod
    def this_process(cls) -> Self:
        """A new owner."""
        return cls(socket.gethostname(), os.getpid(), secrets.token_hex(4))

    @classmethod
    def read(cls, text: str) -> Self:
        """The owner that ``str`` wrote."""
        host, pid, token = text.rsplit(":", 2)
        return cls(host, int(pid), token)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.token}"

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended; of another host nothing is known.

        Mistakes are harmless: a process that took over the number delays until the lease expires, and
        a result of an owner that was given up too early is refused.
        """
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # of another user, hence alive
        return False
