"""The package's loggers, protected from errors of the user's log handlers.

The standard library lets exceptions of a filter, or of a handler that overrides ``handle``, pass.
In the thread that owns the consumer, such an exception would end the instance over a log line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import datetime
from typing import Any

CONNECTIONS = frozenset({"FAIL", "REQTMOUT"})
"""Kinds of Kafka client lines about failed requests and connections."""

RETRIED = ("GETPID", ": retrying")
"""Kind and end of a line of a producer that starts before its broker is ready.

The broker has not loaded the producer's state yet ("Coordinator load in progress"). The producer
retries by itself.
"""

CLIENT_LINES = 3
CLIENT_EVERY = 60.0
"""Number of lines of a kind that are written per period, and the period in seconds."""


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that falls back to standard error when a line cannot be written."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the line as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line. Errors while writing do not reach the caller."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        if self.logger.disabled:
            enable_again()
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a user's code runs here
            name, text = logging.getLevelName(level), _text(msg, args)
            _on_standard_error(name, self.logger.name, text, error)


class ClientLog:
    """Passes a Kafka client's own lines to our log, a few of each kind per minute.

    A client whose broker is unreachable writes several lines a second, each with a thread's
    address. :mod:`kafka_keyshared.client.connection_log` logs the outage itself, so such lines are
    logged at debug level.
    """

    def __init__(self, log: SafeLogger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def log(self, level: int, text: str, *words: object) -> None:
        """Take a line of the client. The first of ``words`` is its kind."""
        kind = str(words[0]) if words else ""
        # The package logs real errors in its own words.
        level = min(level, logging.WARNING)
        if kind in CONNECTIONS or (kind == RETRIED[0] and str(words[-1]).endswith(RETRIED[1])):
            self._log.debug(text, *words)
            return
        now = self._clock()
        if now - self._since.get(kind, float("-inf")) >= CLIENT_EVERY:
            left = self._counts[kind] - CLIENT_LINES
            if left > 0:
                self._log.log(level, "%s more lines of the Kafka client like this: %s", left, kind)
            self._since[kind], self._counts[kind] = now, 0
        self._counts[kind] += 1
        if self._counts[kind] <= CLIENT_LINES:
            self._log.log(level, text, *words)


class JsonFormatter(logging.Formatter):
    """Formats each log line as one line of JSON, for a log collector.

    A line has ``time`` (local, in milliseconds, with the UTC offset), ``level``, ``logger`` and
    ``message``. It has a ``traceback`` for an exception, and everything logged with ``extra``. This
    package uses ``extra`` for the coordinates of a line's record (``topic``, ``partition``,
    ``offset``, ``key``), the ``worker``, and the data of a rebalance. A line that cannot be
    formatted says so.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        traceback = str(getattr(record, "traceback", "") or "")
        told: dict[str, Any] = {
            "time": in_local_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text(record.msg, record.args or ()).removesuffix(f"\n{traceback}"),
        }
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
        more = {name: each for name, each in vars(record).items() if name not in _LINE}
        told = {**more, **told, **({"traceback": traceback} if traceback else {})}
        order = [*_FIRST, *more, "traceback"]
        return json.dumps(
            {name: told[name] for name in dict.fromkeys(order) if name in told}, default=_shown
        )


_FIRST = ("time", "level", "logger", "message")
_LINE = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "traceback"})
"""Attributes that every log record has, also without ``extra``."""


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        return f"(a {type(value).__name__} that cannot be shown: {type(error).__name__})"


def in_local_time(seconds: float) -> str:
    """Return a time since 1970 in ISO format, to the millisecond, with the UTC offset."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


class Seldom:
    """Writes the first of many similar lines, and then one every ``every`` seconds."""

    def __init__(
        self,
        log: SafeLogger,
        clock: Callable[[], float] = time.monotonic,
        every: float = CLIENT_EVERY,
    ) -> None:
        self._log = log
        self._clock = clock
        self._every = every
        self._since: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warning(self, kind: str, text: str) -> bool:
        """Take a warning; return whether it was written.

        ``kind`` identifies similar warnings.
        """
        now = self._clock()
        if now - self._since.get(kind, float("-inf")) < self._every:
            self._left_out[kind] += 1
            return False
        self._since[kind] = now
        left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} lines like this left out)" if left_out else ""
        self._log.warning("%s%s", text, more)
        return True


def quietly(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings with its lines in our log, unless the user set otherwise."""
    if "logger" in conf or "debug" in conf:
        return dict(conf)
    return {**conf, "logger": ClientLog(log_of("kafka_keyshared.client"))}


def _text(msg: object, args: Any) -> str:
    try:
        return str(msg) % args if args else str(msg)
    except Exception as error:  # noqa: BLE001 - an argument's own code runs here
        return f"(a line that cannot be put into words: {type(error).__name__})"


def hand_on(record: logging.LogRecord) -> None:
    """Pass a finished log record to its logger; errors do not reach the caller.

    The record has text only, no arguments.
    """
    try:
        logging.getLogger(record.name).handle(record)
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        _on_standard_error(record.levelname, record.name, str(record.msg), error)


def _on_standard_error(level: str, name: str, text: str, error: Exception) -> None:
    _write(f"{level} {name}: {text} (the log raised {type(error).__name__})\n")


def _write(line: str) -> None:
    # Without a standard error either, the line is lost.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line)


PACKAGE = "kafka_keyshared"

_loggers: dict[str, logging.Logger] = {PACKAGE: logging.getLogger(PACKAGE)}

DISABLED_LEAST = 3
"""Number of disabled loggers that points to a logging configuration. A person disables fewer."""

_said: set[str] = set()


def log_of(name: str) -> SafeLogger:
    """Return the package's logger of that name."""
    _loggers[name] = logging.getLogger(name)
    return SafeLogger(_loggers[name])


def enable_again() -> bool:
    """Enable the package's loggers if a configuration disabled them all; return whether it did.

    ``logging.config.dictConfig`` and ``fileConfig`` disable every existing logger that they do not
    name, unless ``disable_existing_loggers`` is False. The package's loggers exist from its import
    on. A logger that was disabled alone stays disabled.
    """
    disabled = [each for each in list(_loggers.values()) if each.disabled]
    if len(disabled) < DISABLED_LEAST:
        return False
    for each in disabled:
        each.disabled = False
    SafeLogger(_loggers[PACKAGE]).warning(
        "logging.config had disabled the loggers kafka_keyshared.* (disable_existing_loggers is "
        "True unless it is given): they are enabled again. To silence them set the level of the "
        "logger 'kafka_keyshared'"
    )
    return True


def check_logging() -> None:
    """Enable the package's loggers again, or report on standard error why nothing is logged.

    Each reason is reported once per process. It is also reported when the level was raised on
    purpose: a silent log must not be taken for a healthy instance.
    """
    enable_again()
    why = _why_off()
    if why and why not in _said:
        _said.add(why)
        _write(
            f"kafka_keyshared: nothing is logged, not even blocked keys or a stop: {why}. "
            "keyshared status and /readyz go on saying what is wrong\n"
        )


def _why_off() -> str:
    """Return what suppresses even critical lines, "" when they are logged."""
    if logging.root.manager.disable >= logging.CRITICAL:
        return f"logging.disable({logging.root.manager.disable}) is in force"
    logger: logging.Logger | None = _loggers[PACKAGE]
    while logger is not None and not logger.level:
        logger = logger.parent
    if logger is not None and logger.level > logging.CRITICAL:
        return f"the level of the logger {logger.name!r} is {logger.level}, above CRITICAL"
    return ""


@contextlib.contextmanager
def only_from(level: int) -> Iterator[None]:
    """Suppress the package's log lines below this level while the block runs."""
    logger = logging.getLogger("kafka_keyshared")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
