"""A check that the interpreter lock is on.

Some places rely on the lock. They are marked by ``GIL`` and a colon, and listed in
``docs/internals/architecture.md``.
"""

from __future__ import annotations

import sys

from kafka_keyshared.errors import ConfigError


def refuse_without_lock(call: str) -> None:
    """Raise :class:`ConfigError` where a free-threaded Python runs without its lock."""
    enabled = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on
    if enabled is not None and not enabled():
        raise ConfigError(
            f"{call}: this Python runs without the interpreter lock, on which it rests that a "
            "record is either started or taken back; run it with PYTHON_GIL=1 or -X gil=1"
        )
