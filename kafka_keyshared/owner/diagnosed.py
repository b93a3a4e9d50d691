"""What the log says of a diagnosis: a line when it changes, and never many."""

from __future__ import annotations

import logging

from kafka_keyshared.diagnosis.findings import Finding
from kafka_keyshared.diagnosis.judge import diagnose
from kafka_keyshared.logs import log_of
from kafka_keyshared.status import Status

log = log_of("kafka_keyshared.diagnosis")

STEADY = 2.0
"""Seconds for which it has to be the same before it is told."""

LINE_EVERY = 10.0
"""Seconds between two lines."""


class Diagnosed:
    """Tells what is to be mended first when that changes, and that nothing is any more.

    ``keys`` says whether keys may be named. Times are monotonic, in seconds.
    """

    def __init__(self, *, keys: bool) -> None:
        self._keys = keys
        self._told: tuple[object, ...] | None = None
        self._seen: tuple[object, ...] | None = None
        self._seen_at = self._told_at = float("-inf")

    def note(self, status: Status, now: float) -> None:
        """Take a status, and tell of what it shows if that is news."""
        diagnosis = diagnose(status, keys=self._keys)
        first = diagnosis.first
        what = None if first is None else _which(first)
        if what != self._seen:
            self._seen, self._seen_at = what, now
        news = what != self._told and now - self._seen_at >= STEADY
        if not news or now - self._told_at < LINE_EVERY:
            return
        self._told, self._told_at = what, now
        if first is None:
            log.info("nothing is wrong any more")
            return
        level = logging.ERROR if first.level == "fail" else logging.WARNING
        text = "%s [%s]; %s. To do: %s"
        extra = {"code": first.code, "number": first.number, "page": first.page}
        log.log(level, text, diagnosis.text, first.code, first.cause, first.cure, extra=extra)


def _which(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.subscription, finding.topic, finding.partition, finding.offset
