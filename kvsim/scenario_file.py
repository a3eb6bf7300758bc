"""A scenario as it is written: a TOML or YAML file, flags, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.errors import ConfigError
from kvsim.scenario import COMPONENTS, Scenario, lifted, read


def load(path: Path | None, flags: Mapping[str, object]) -> Scenario:
    """A scenario from a file, if any, and flags, which win; ``a.b`` names a nested setting."""
    settings = lifted(_file(path), Scenario.model_fields) if path else {}
    for name, value in flags.items():
        _put(settings, name, value)
    return read(Scenario, settings, flags, source=path)


def _put(settings: dict[str, Any], name: str, value: object) -> None:
    """Set ``block_size``, ``allocator.fit`` or ``workload.limit``, whatever stood there."""
    family, _, option = name.partition(".")
    if not option:
        settings[name] = value
    elif option in Scenario.model_fields and family in COMPONENTS:
        settings[option] = value
    else:
        inner = settings.get(family, COMPONENTS.get(family, {}))
        inner = dict(inner) if isinstance(inner, Mapping) else {"name": inner}
        settings[family] = {**inner, option: value}


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    settings = _parsed(path, text)
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: a scenario is a table of settings, not {settings!r:.40}")
    return settings


def _parsed(path: Path, text: str) -> object:
    if path.suffix in {".yaml", ".yml"}:
        import yaml

        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: {error}") from None
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: {error}") from None
    raise ConfigError(f"{path}: a scenario file ends in .toml, .yaml or .yml")
