"""Where a plan is written: reports, the plan as JSON, and a folder that holds all of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvsim.planning import Plan

JSON = ".json"


class Places(NamedTuple):
    """Files and a folder to write when a plan is made."""

    files: tuple[Path, ...] = ()
    """Reports, by their suffixes; ``.json``: the plan itself."""
    folder: Path | None = None

    @property
    def any(self) -> bool:
        """Whether anything is written."""
        return bool(self.files or self.folder)

    def check(self, *read: str | Path) -> None:
        """ConfigError, before any work, for what could not be written or is also ``read``."""
        from kvsim.reporting.render import RENDERERS, check_targets
        from kvsim.reporting.saved import check_folder

        check_targets("--report", self.files, (*RENDERERS, JSON), read=read)
        if self.folder is not None:
            check_folder(self.folder)

    def write(self, plan: Plan, command: str) -> None:
        """Write everything; ``command`` repeats the plan."""
        from kvsim.planning.document import document
        from kvsim.reporting.plan_data import read_plan
        from kvsim.reporting.plans import of_plan
        from kvsim.reporting.render import write_report
        from kvsim.reporting.saved import run_of, save_plan
        from kvsim.runs import write_json

        data = document(plan, command)
        if self.folder is not None:
            save_plan(data, run_of(plan), self.folder)
        for path in self.files:
            if path.suffix == JSON:
                write_json(path, data)
            else:
                write_report([of_plan(read_plan(data, "the plan"), run_of(plan))], path)
