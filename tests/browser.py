"""A dashboard's server and a headless browser in front of it, for tests and pictures."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60
SETTLED = """() => {
  const count = query => document.querySelectorAll(query).length;
  return count('h1') && !count('[data-testid=stSkeleton]') && !count('[data-testid=stSpinner]')
    && count('.js-plotly-plot') >= count('[data-testid=stPlotlyChart]')
    && document.querySelector('[data-testid=stApp]').dataset.testScriptState != 'running';
}"""
"""Whether a page has run and all its figures are drawn."""


def browser_path() -> str | None:
    """A browser of the system."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def dashboard(runs: Path | None = None) -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "kvsim", "dashboard", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*line, *([str(runs)] if runs else [])], env=os.environ, **quiet)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/_stcore/health")
        yield address
    finally:
        server.terminate()
        server.wait(PATIENCE)


def wait_for(address: str) -> None:
    """Until somebody answers there."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def headless() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = browser_path()
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def settle(page: Page) -> None:
    """Wait until a page has run and all its figures are drawn."""
    page.wait_for_timeout(300)
    page.wait_for_function(SETTLED, timeout=PATIENCE * 1e3)
