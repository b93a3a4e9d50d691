"""What the command line's values mean."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_keyshared.errors import ConfigError

_BEHIND_THE_NAME = re.compile(r"(?<=[^\w.-]).+", re.DOTALL)


def client_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Return ``-X key=value`` pairs as a dict; raise :class:`ConfigError` for one without '='."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            # What follows the name may be a password.
            shown = _BEHIND_THE_NAME.sub("…", pair)
            raise ConfigError(f"-X {shown}: give KEY=VALUE, such as -X security.protocol=SSL")
        settings[name.strip()] = value.strip()
    return settings


def load_object(spec: str, app_dir: Path) -> Any:
    """Return what ``module:attribute`` or ``path/file.py:attribute`` names.

    ``app_dir`` is put first on ``sys.path``. Raises :class:`ConfigError` saying which part failed.
    """
    place, colon, attribute = spec.rpartition(":")
    if not colon or not place or not attribute:
        raise ConfigError(f"{spec!r}: give MODULE:ATTR or path/file.py:ATTR, such as app:handle")
    sys.path.insert(0, str(app_dir.resolve()))
    module = _load_file(Path(place), spec) if place.endswith(".py") else _load_module(place, spec)
    try:
        target = module
        for name in attribute.split("."):
            target = getattr(target, name)
    except AttributeError as error:
        there = ", ".join(name for name in vars(module) if not name.startswith("_"))
        raise ConfigError(f"{spec!r}: {place} has no {attribute!r}; it has {there}") from error
    return target


def _load_module(name: str, spec: str) -> Any:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{spec!r}: module {name!r} cannot be imported: {type(error).__name__}: {error}; "
            "see the spelling, or give the folder it is in with --app-dir"
        ) from error


def _load_file(path: Path, spec: str) -> Any:
    if not path.is_file():
        raise ConfigError(f"{spec!r}: there is no file {path}")
    # Never in the place of another module: handlers in a queue.py must not hide the real one.
    name = path.stem if path.stem not in sys.modules else f"handlers_in_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ConfigError(f"{spec!r}: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(found)
    # Registered, because dataclasses and pickling look a module up by its name.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{spec!r}: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module
