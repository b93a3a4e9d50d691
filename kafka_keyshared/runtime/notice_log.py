"""The core's notices as log lines."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.keys.key_text import KEY_CHARS
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.executors.port import Pool
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import About

log = log_of("kafka_keyshared.loop")


def log_notice(notice: Notice, pool: Pool) -> None:
    """Log the notice with the position of its worker in the user's code.

    Attributes of the log record carry more for collectors: ``traceback``, and for a notice about
    one record its ``topic``, ``partition``, ``offset`` and ``key``.
    """
    line = line_of(notice)
    where = pool.where(*line.running) if line.running else ""
    extra = {} if line.about is None else _attributes(line.about)
    lines = line.text + (f"; now {where}" if where else "")
    if line.traceback:
        extra["traceback"] = line.traceback
        lines += f"\n{line.traceback}"
    log.log(line.level, "%s", lines, extra=extra)


def _attributes(about: About) -> dict[str, Any]:
    (topic, partition), offset, key = about
    found = {"topic": topic, "partition": partition, "offset": offset}
    if key is None:
        return found
    text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
    return {**found, "key": text[:KEY_CHARS]}
