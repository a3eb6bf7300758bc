"""The flags that say where replays are remembered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvsim.cli.common import flag_option
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.planning.archive import Archive

PANEL = "Cache"


@dataclass(frozen=True, slots=True)
class Remember:
    """Replays that were made before are not made again."""

    cache: Annotated[
        Path | None,
        flag_option(help="Folder that remembers replays, instead of the user's.", panel=PANEL),
    ] = None
    no_cache: Annotated[
        bool, flag_option("--no-cache", help="Remember no replays, and use none.", panel=PANEL)
    ] = False

    @contextmanager
    def opened(self) -> Iterator[Archive | None]:
        """The archive; the user's own is gone without where it cannot be used."""
        if self.no_cache:
            yield None
            return
        found = self._found()
        if found is None:
            yield None
            return
        with found:
            yield found

    def _found(self) -> Archive | None:
        from kvsim.planning.archive import Archive, default_folder

        try:
            return Archive(self.cache or default_folder())
        except ConfigError as error:
            if self.cache is not None:
                raise
            print(f"kvsim: note: replays are not remembered: {error}", file=sys.stderr)
            return None
