"""How the dashboard's server is started."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket
import sys
from pathlib import Path

from kvsim.errors import ConfigError

APP = Path(__file__).with_name("app.py")
RUNS_VARIABLE = "KVSIM_DASHBOARD_RUNS"
"""Tells the pages, which run in another process, the folder of runs."""
MOST_UPLOADED = 64
"""Megabytes of an uploaded file."""
NEEDED = ("streamlit", "plotly", "pandas")


def require_packages() -> None:
    """ConfigError if the packages of the extra are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the dashboard needs {', '.join(missing)}: pip install 'kvsim[dashboard]'"
        )


def is_private(host: str) -> bool:
    """Whether an address is this machine's own, which nobody else can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_free(host: str, port: int) -> None:
    """ConfigError if the server could not listen there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"--host {host} --port {port}: cannot listen: {reason}") from None


def settings(host: str, port: int) -> dict[str, str]:
    """Streamlit's options: nothing leaves the machine, nothing is told to strangers."""
    return {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.maxUploadSize": str(MOST_UPLOADED),
        "browser.gatherUsageStats": "false",
        "client.showErrorDetails": "none",
        "client.toolbarMode": "viewer",
        "runner.magicEnabled": "false",
        "theme.light.primaryColor": "#0072b2",
        "theme.dark.primaryColor": "#56b4e9",
    }


def command(host: str, port: int) -> list[str]:
    """The server's command line."""
    flags = [f"--{name}={value}" for name, value in settings(host, port).items()]
    return [sys.executable, "-m", "streamlit", "run", str(APP), *flags]


def serve(runs: Path | None, host: str, port: int) -> None:
    """Become the server; does not return."""
    environment = dict(os.environ)
    environment.pop(RUNS_VARIABLE, None)
    if runs is not None:
        environment[RUNS_VARIABLE] = str(runs.resolve())
    sys.stdout.flush()
    line = command(host, port)
    os.execve(line[0], line, environment)
