"""Takes the pictures in ``docs/dashboard`` and measures how long pages take to be painted.

    python -m tests.benchmarks.dashboard_pictures [--out docs/dashboard] [--large RUN]

Needs Chromium and playwright. Times are of a second visit (the server warm, the browser's cache full),
from the request to the last figure. ``--large`` is a run of a million requests:

    kvsim trace generate large.jsonl.gz --preset code --requests 1000000 --seed 2
    kvsim replay large.jsonl.gz --request-rate 20 --replicas 8 --out large
"""

from __future__ import annotations

import argparse
import io
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kvsim.dashboards.samples import sample_runs

from tests.browser import dashboard, headless, settle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "compare": ("", {}),
    "run": ("run?run=paged-small-pool", {}),
    "replay": ("replay", {}),
    "memory": ("memory", {}),
    "prefix": ("prefix", {}),
    "plan": ("plan", {}),
    "sizing": ("sizing?model=deepseek-ai/DeepSeek-V3&gpu=B200-SXM-180GB", {}),
    "calibration": ("calibration?operator=decode_attention", {}),
    "memory-dark": ("memory?by=owner&rule=pow2", {"color_scheme": "dark"}),
    "compare-chinese": ("?lang=zh&focus=radix&baseline=contiguous-max", {}),
    "compare-phone": ("?focus=paged", {"viewport": {"width": 390, "height": 844}}),
}
"""Pages, and how the browser is set up for them."""
DESK = {"width": 1280, "height": 900}
TALLEST = 3_400
PLANNED = 400
"""Seconds that a plan may take."""
MANY = 50


def main() -> None:
    """Take the pictures, print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/dashboard"))
    parser.add_argument("--large", type=Path)
    parser.add_argument("--only", nargs="*", default=list(PICTURES))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        browser = stack.enter_context(headless())
        with dashboard() as address:
            for name in given.only:
                path, setting = PICTURES[name]
                picture(browser, f"{address}/{path}", setting, given.out / f"{name}.png")
        folder = Path(stack.enter_context(TemporaryDirectory()))
        measure(browser, folder, given.large)


def picture(browser: Browser, address: str, setting: dict[str, Any], out: Path) -> None:
    """A whole page."""
    from PIL import Image

    with browser.new_context(**{"viewport": DESK, **setting}) as context:
        page = context.new_page()
        page.goto(address)
        settle(page)
        if "/plan" in address:
            page.get_by_text("Command lines").wait_for(timeout=PLANNED * 1e3)
            page.get_by_text("If an assumption is wrong").wait_for(timeout=PLANNED * 1e3)
            settle(page)
        height = page.evaluate(
            "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"
        )
        width = page.viewport_size["width"] if page.viewport_size else DESK["width"]
        page.set_viewport_size({"width": width, "height": min(int(height) + 20, TALLEST)})
        page.wait_for_timeout(1_500)
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        image.save(out, optimize=True)
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


def measure(browser: Browser, folder: Path, large: Path | None) -> None:
    """Seconds until pages are painted."""
    runs = folder / "runs"
    sample_runs(folder, runs)
    some = sorted(path for path in runs.iterdir() if path.is_dir())
    for number in range(len(some), MANY):
        shutil.copytree(some[number % len(some)], runs / f"copy-{number:02}")
    if large is not None:
        shutil.copytree(large, runs / "large")
    every = "&".join(f"run={path.name}" for path in sorted(runs.iterdir()) if path.name != "large")
    with dashboard(runs) as address, browser.new_context(viewport=DESK) as context:
        page = context.new_page()
        for what, path in (("compare, 50 runs", f"?{every}"), ("a run", "run?run=paged")):
            seconds(page, f"{address}/{path}")
            print(f"{what}: {min(seconds(page, f'{address}/{path}') for _ in range(3)):.2f} s")
        if large is not None:
            print(
                f"a million requests, first visit: {seconds(page, f'{address}/run?run=large'):.2f} s"
            )
            print(f"a million requests, again: {seconds(page, f'{address}/run?run=large'):.2f} s")


def seconds(page: Page, address: str) -> float:
    """From the request to the last figure."""
    begin = time.perf_counter()
    page.goto(address)
    settle(page)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
