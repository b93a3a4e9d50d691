"""Log lines for a diagnosis, written when it changes and rate limited.

A high failure rate gets its own line when it begins and another when it ends. Both are logged even
when no status is read, and next to other findings.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

import msgspec

from kafka_keyshared.logs import log_of
from kafka_keyshared.model import in_words
from kafka_keyshared.observability.diagnosis import causes
from kafka_keyshared.observability.diagnosis.findings import Diagnosis, Finding
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.status import Status

log = log_of("kafka_keyshared.diagnosis")

RATES = frozenset({causes.MOST_ATTEMPTS_FAIL.code, causes.DEAD_LETTERING.code})
"""Causes that are logged once when they begin and once when they end."""

AGAIN_WITHIN = 60.0
"""Seconds after its end during which the same high rate is not logged again."""

SELF_LOGGED = RATES | {causes.LOOP_HELD.code, causes.DEPENDENCY_WAITING.code}
"""Causes that have a log line of their own elsewhere."""

STEADY = 2.0
"""Seconds for which the first finding must stay the same before it is logged."""

LINE_EVERY = 10.0
"""Minimum seconds between two lines."""


class DiagnosisLog:
    """Logs the first finding when it changes, and logs when no finding is left.

    ``keys`` says whether the lines may name keys. Times are monotonic, in seconds.
    """

    def __init__(self, *, keys: bool) -> None:
        self._keys = keys
        self._told: tuple[object, ...] | None = None
        self._seen: tuple[object, ...] | None = None
        self._seen_at = self._told_at = float("-inf")
        # Rates that were logged as high, and until when a rate that ended is not logged again.
        self._rates: dict[Place, Finding] = {}
        self._quiet_until: dict[Place, float] = {}

    def note(self, status: Status, now: float) -> None:
        """Take a status and log its first finding if that has changed."""
        if status.phase != "running":
            return
        every = diagnose(status, keys=self._keys).findings
        self._note_rates([each for each in every if each.code in RATES], now)
        diagnosis = Diagnosis(
            findings=tuple(each for each in every if each.code not in SELF_LOGGED)
        )
        first = diagnosis.first
        what = None if first is None else _which(first)
        if what != self._seen:
            self._seen, self._seen_at = what, now
        news = what != self._told and now - self._seen_at >= STEADY
        if not news or now - self._told_at < LINE_EVERY:
            return
        self._told, self._told_at = what, now
        if first is None:
            log.info("no finding is left")
            return
        _log(first, diagnosis.text)

    def _note_rates(self, findings: list[Finding], now: float) -> None:
        """Log each rate when it begins and when it ends; limit the lines of a flapping rate."""
        high = {_place(each): each for each in findings}
        for place, each in high.items():
            known = self._rates.get(place)
            worse = known is not None and known.level != each.level == "fail"
            if worse or (known is None and now >= self._quiet_until.get(place, now)):
                self._rates[place] = each
                _log(each, each.sentence)
        for place, known in self._rates.items():
            # Keep the level that was logged, so a level that goes up and down is not logged each
            # time.
            self._rates[place] = msgspec.structs.replace(high.get(place, known), level=known.level)
        for place in self._rates.keys() - high.keys():
            _log_end(self._rates.pop(place))
            self._quiet_until[place] = now + AGAIN_WITHIN


Place: TypeAlias = tuple[str, str, str, int | None]


def _place(finding: Finding) -> Place:
    return finding.code, finding.subscription, finding.topic, finding.partition


def _log_end(finding: Finding) -> None:
    """Log that a rate is no longer high, with its last known figures."""
    at = finding.topic or f"subscription {finding.subscription}"
    if finding.partition is not None:
        at = f"{finding.topic}-{finding.partition}"
    attempts = finding.code == causes.MOST_ATTEMPTS_FAIL.code
    text = "%s: records are done again after %s; %s were dead-lettered or dropped until then [%s]"
    if attempts:
        text = "%s: attempts succeed again after %s; %s failed or were delayed until then [%s]"
    seconds, count = in_words(finding.seconds or 0.0), f"{finding.count:,}"
    extra = {"code": finding.code, "number": finding.number, "page": finding.page}
    log.warning(text, at, seconds, count, finding.code, extra=extra)


def _log(finding: Finding, text: str) -> None:
    level = logging.ERROR if finding.level == "fail" else logging.WARNING
    extra = {"code": finding.code, "number": finding.number, "page": finding.page}
    line = "%s [%s]; %s. To do: %s"
    log.log(level, line, text, finding.code, finding.cause, finding.cure, extra=extra)


def _which(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.subscription, finding.topic, finding.partition, finding.offset
