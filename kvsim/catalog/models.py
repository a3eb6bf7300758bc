"""The models that kvsim knows by name.

``models.json`` has one model per line: its names, where its dimensions were read, and the few fields
of its config that they follow from, so that a catalog model and a user's config.json take the same
path. (JSON and not TOML, because every start of the program reads it: 0.3 ms against 40.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from kvsim.catalog.huggingface import model_from, read_config
from kvsim.catalog.model import ModelSpec
from kvsim.errors import ConfigError, unknown

DATA = Path(__file__).with_name("models.json")


def load_model(name: str) -> ModelSpec:
    """The model with this name, alias or Hugging Face id (any case), or of a config.json.

    A folder stands for the config.json in it. Raises ConfigError for anything else.
    """
    entry = entries().get(name.lower())
    if entry is not None:
        return model_from(
            entry["config"],
            where=f"catalog entry {entry['id']}",
            name=entry["id"],
            source=entry["source"],
            date=entry["date"],
            verified=entry["verified"],
        )
    path = config_path(name)
    if path is None:
        raise unknown("model", name[:80], entries())
    return read_config(path)


def config_path(name: str) -> Path | None:
    """The config that a name points to, if it is the path of a file or folder."""
    path = Path(name)
    try:
        if name and path.is_dir():
            if not (path / "config.json").is_file():
                raise ConfigError(f"{path}: this folder has no config.json")
            return path / "config.json"
        return path if name.lower().endswith(".json") or path.is_file() else None
    except (OSError, ValueError):  # a name too long for a path, or with a null character
        return None


def model_names() -> list[str]:
    """Hugging Face ids of all models of the catalog, in its order."""
    return list(dict.fromkeys(entry["id"] for entry in entries().values()))


@cache
def entries() -> dict[str, dict[str, Any]]:
    """Every name in lower case, with its entry."""
    import orjson

    listed = orjson.loads(DATA.read_bytes())
    return {name.lower(): entry for entry in listed for name in (entry["id"], *entry["aliases"])}
