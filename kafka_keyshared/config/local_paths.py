"""Paths of this machine, given as a path or a ``file:`` URI.

A URI of another file system, taken for a path, would silently become a folder such as
``./s3a:/bucket``. On a cluster each executor would have its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from kafka_keyshared.errors import ConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=[/\\])")
_SHARE = "\\\\"
"""Prefix of a path to another machine on Windows."""

FOLDER = "a folder of this machine, or one that is mounted on it"


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URI in lower case; None for a path. A Windows drive counts as one.

    One slash is enough: ``dbfs:/x`` is a URI too.
    """
    found = _SCHEME.match(text)
    return None if found is None else found[1].lower()


def local_path(option: str, given: str | Path, instead: str = FOLDER) -> Path:
    """Return the path of this machine that a user has given for an option.

    ``instead`` names the allowed values in an error. Raises :class:`ConfigError` for a URI of
    another file system or machine, and for a Windows path on another system.
    """
    text = str(given)
    scheme = scheme_of(text)
    if scheme == "file":
        return _of_file_uri(option, text, instead)
    if (scheme is None and not text.startswith(_SHARE)) or (
        _is_windows(scheme) and os.name == "nt"
    ):
        return Path(given)
    if _is_windows(scheme):
        raise ConfigError(f"{option} {text}: that is a path of Windows; give {instead}")
    raise ConfigError(f"{option} {text}: {scheme}: is not supported here; give {instead}")


def _is_windows(scheme: str | None) -> bool:
    return scheme is None or len(scheme) == 1


def _of_file_uri(option: str, text: str, instead: str) -> Path:
    rest = text[len("file:") :]
    if rest.startswith("//"):
        machine, _, path = rest[2:].partition("/")
        if machine.lower() not in {"", "localhost"}:
            raise ConfigError(
                f"{option} {text}: names the machine {machine!r}; give file:///PATH, or {instead}"
            )
        rest = f"/{path}"
    return Path(unquote(rest))
