"""The loggers of this package, which a log handler of the user's cannot bring down.

The standard library lets through what a filter raises, or a handler that overrides ``handle``. In
the thread that owns the consumer that would end the instance over a line of its log.
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
"""Lines of the Kafka client about requests and connections that came to nothing."""

RETRIED = ("GETPID", ": retrying")
"""Kind and end of the line of a producer that begins before its broker has loaded who writes there
("Coordinator load in progress"): it asks again by itself."""

CLIENT_LINES = 3
CLIENT_EVERY = 60.0
"""So many lines of a kind are written in so many seconds."""


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
        if self.logger.disabled:
            enable_again()
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a user's code runs here
            name, text = logging.getLevelName(level), _text(msg, args)
            _on_standard_error(name, self.logger.name, text, error)


class ClientLog:
    """Where a Kafka client's own lines go: to our log, a few of each kind in a minute.

    A client whose broker is away writes several a second, each with the address of a thread. That
    it is away is told by :mod:`kafka_keyshared.client.outage`, so lines about that are for those
    who look for them.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def log(self, level: int, text: str, *words: object) -> None:
        """Take a line of the client's; the first of the ``words`` is its kind."""
        kind = str(words[0]) if words else ""
        # What is an error for whoever reads this, the package tells in its own words.
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
    """Makes one line of JSON of each line of the log, for a collector.

    It has ``time`` (local, to the millisecond, with how far it is from UTC), ``level``, ``logger``,
    ``message``, of an exception ``traceback``, and whatever was logged with ``extra``. This package
    says so of the one record that a line is about (``topic``, ``partition``, ``offset``, ``key``),
    of the ``worker``, and of a rebalance. A line that cannot be put into words says that.
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
"""What every record of the log has, whatever it was logged with."""


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        return f"(a {type(value).__name__} that cannot be shown: {type(error).__name__})"


def in_local_time(seconds: float) -> str:
    """Return a time since 1970 to the millisecond, with how far it is from UTC."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


class Seldom:
    """Writes the first of many lines that are alike, and then one in ``every`` seconds."""

    def __init__(
        self,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        every: float = CLIENT_EVERY,
    ) -> None:
        self._log = log
        self._clock = clock
        self._every = every
        self._since: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warning(self, kind: str, text: str) -> bool:
        """Take a warning, and say whether it was written.

        ``kind`` is what those that are alike have in common.
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
    """Return a client's settings with its lines in our log, where the user wants nothing else."""
    if "logger" in conf or "debug" in conf:
        return dict(conf)
    return {**conf, "logger": ClientLog(log_of("kafka_keyshared.client"))}


def _text(msg: object, args: Any) -> str:
    try:
        return str(msg) % args if args else str(msg)
    except Exception as error:  # noqa: BLE001 - so it does where an argument is put into words
        return f"(a line that cannot be put into words: {type(error).__name__})"


def hand_on(record: logging.LogRecord) -> None:
    """Give a line that was made elsewhere to its logger; whatever comes of it, the program goes on.

    Text only, no arguments.
    """
    try:
        logging.getLogger(record.name).handle(record)
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        _on_standard_error(record.levelname, record.name, str(record.msg), error)


def _on_standard_error(level: str, name: str, text: str, error: Exception) -> None:
    _write(f"{level} {name}: {text} (the log raised {type(error).__name__})\n")


def _write(line: str) -> None:
    # Where there is no standard error either, nobody can be told.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line)


PACKAGE = "kafka_keyshared"

_loggers: dict[str, logging.Logger] = {PACKAGE: logging.getLogger(PACKAGE)}

DISABLED_LEAST = 3
"""Disabled loggers from which on a configuration did it. A person disables one or two."""

_said: set[str] = set()


def log_of(name: str) -> Log:
    """Return the package's logger of that name."""
    _loggers[name] = logging.getLogger(name)
    return Log(_loggers[name])


def enable_again() -> bool:
    """Enable the package's loggers where a configuration has disabled them all; say whether it had.

    ``logging.config.dictConfig`` and ``fileConfig`` disable every logger that exists and that they
    do not name, unless ``disable_existing_loggers`` is False. Loggers of a package exist from its
    import on. A logger that somebody has disabled alone stays so.
    """
    disabled = [each for each in list(_loggers.values()) if each.disabled]
    if len(disabled) < DISABLED_LEAST:
        return False
    for each in disabled:
        each.disabled = False
    Log(_loggers[PACKAGE]).warning(
        "logging.config had disabled the loggers kafka_keyshared.* (disable_existing_loggers is "
        "True unless it is given): they are enabled again. To silence them set the level of the "
        "logger 'kafka_keyshared'"
    )
    return True


def check_logging() -> None:
    """See that the package can log: enable its loggers again, or say on standard error why not.

    Each reason is said once in a process. The log goes on where it is lowered on purpose, so that
    nobody takes silence for health.
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
    """Return what keeps even critical lines from being logged, "" where they are."""
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
    """Keep the package's log quiet about what is less than this level, for as long as the block."""
    logger = logging.getLogger("kafka_keyshared")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
