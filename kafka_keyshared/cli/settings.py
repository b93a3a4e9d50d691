"""Parsing of command-line values."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from traceback import TracebackException
from typing import Any

from kafka_keyshared.cli.output import write_note
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.platform.reentry_guard import importing, load_file
from kafka_keyshared.platform.stack_frames import is_users

HEX = "hex:"

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_BEHIND_THE_NAME = re.compile(r"(?<=[^\w.-]).+", re.DOTALL)


def client_settings(pairs: Iterable[str], flag: str = "-X") -> dict[str, str]:
    """Return ``-X key=value`` pairs as a dict; raise :class:`ConfigError` for one without '='."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            # The text behind the name may be a password.
            shown = _BEHIND_THE_NAME.sub("…", pair)
            raise ConfigError(f"{flag} {shown}: give KEY=VALUE, such as -X security.protocol=SSL")
        settings[name.strip()] = value.strip()
    return settings


def file_here() -> Path | None:
    """Return the settings file of this folder, if the environment names no other."""
    from kafka_keyshared.config.environment import config_file

    here = Path("keyshared.toml")
    return here if config_file(os.environ) is None and here.is_file() else None


def typed_key(text: str) -> bytes:
    """Return the bytes of a typed key; raise :class:`ConfigError` for broken hex."""
    if not text.startswith(HEX):
        # Bytes from a shell that are no valid UTF-8 arrive as surrogates, and are restored here.
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text.removeprefix(HEX))
    except ValueError as error:
        raise ConfigError(
            f"key {text!r}: {error}; after {HEX} give two hexadecimal digits per byte, such as "
            f"{HEX}00ff"
        ) from error


def typed_time(flag: str, text: str | None) -> int | None:
    """Return a typed time in milliseconds since 1970; None if no time was given.

    The text is a date with or without a time, in UTC unless it has a zone, or how long ago.
    """
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            seconds = float(ago[1]) * _SECONDS[ago[2]]
            moment = datetime.now(UTC) - timedelta(seconds=seconds)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{flag} {text}: give a time such as 2026-01-31T12:00Z (UTC by default), "
            "or how long ago: 90s, 15m, 2h, 7d"
        ) from error


def load_object(spec: str, app_dir: Path) -> Any:
    """Return the object that ``module:attribute`` or ``path/file.py:attribute`` names.

    ``app_dir`` is put first on ``sys.path``. Raises :class:`ConfigError` naming the part that
    failed.
    """
    place, colon, attribute = spec.rpartition(":")
    if not colon or not place or not attribute:
        raise ConfigError(f"{spec!r}: give MODULE:ATTR or path/file.py:ATTR, such as app:handle")
    sys.path.insert(0, str(app_dir.resolve()))
    load = _load_file if place.endswith(".py") else _load_module
    with importing(spec):
        module = load(place, spec)
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
        _show(error)
        raise ConfigError(
            f"{spec!r}: module {name!r} cannot be imported: {_named(error)}; "
            "check the spelling, or give its folder with --app-dir"
        ) from error


def _load_file(place: str, spec: str) -> Any:
    path = Path(place)
    if not path.is_file():
        raise ConfigError(
            f"{spec!r}: there is no file {path} in {Path.cwd()}; --app-dir is for modules, such as "
            "app:handle"
        )
    # Never under the name of another module: handlers in a queue.py must not hide the real one.
    name = path.stem if path.stem not in sys.modules else f"handlers_in_{path.stem}"
    try:
        module = load_file(name, path)
    except (Exception, SystemExit) as error:
        _show(error)
        raise ConfigError(f"{spec!r}: {path} cannot be imported: {_named(error)}") from error
    if module is None:
        raise ConfigError(f"{spec!r}: {path} cannot be loaded as Python")
    return module


def _named(error: BaseException) -> str:
    from kafka_keyshared.executors.handling.failure import text_of

    return f"{type(error).__name__}: {text_of(error)}"


def _show(error: BaseException) -> None:
    """Print the user's part of the traceback of a failed import, if there is one.

    An error that this package raises itself already has all details.
    """
    if isinstance(error, KeySharedError):
        return
    shown = TracebackException.from_exception(error)
    at = next((at for at, frame in enumerate(shown.stack) if is_users(frame.filename)), None)
    if at is not None:
        shown.stack[:] = shown.stack[at:]
    elif isinstance(error, SyntaxError):
        shown.stack.clear()
    else:
        return
    write_note("".join(shown.format()).rstrip())
