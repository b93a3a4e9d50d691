"""The loggers of this package, which a log handler of the user's cannot bring down.

The standard library lets through what a filter raises, or a handler that overrides ``handle``. In
the thread that owns the consumer that would end the instance over a line of its log.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines go to standard error where they cannot go where they should."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave a line as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line; whatever comes of it, the program goes on."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a user's code runs here
            where = f"{logging.getLevelName(level)} {self.logger.name}"
            line = f"{where}: {_text(msg, args)} (the log raised {type(error).__name__})\n"
            # Where there is no standard error either, nobody can be told.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(line)


def _text(msg: object, args: tuple[object, ...]) -> str:
    try:
        return str(msg) % args if args else str(msg)
    except Exception as error:  # noqa: BLE001 - so it does where an argument is put into words
        return f"(a line that cannot be put into words: {type(error).__name__})"


def log_of(name: str) -> Log:
    """Return the package's logger of that name."""
    return Log(logging.getLogger(name))
