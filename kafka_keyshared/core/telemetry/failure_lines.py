"""Log lines of failed attempts.

A *kind* is the type of an error and the place in the user's program that it came from. The first
failure of each kind is logged with its traceback, which shows the line of code. After that, one
line per interval counts the failures of each kind.
:mod:`kafka_keyshared.core.contract.retry_policy` decides how often and how soon a record is
retried.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from kafka_keyshared.core.contract.commands import Level, Notice
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.telemetry.burst import Burst, EventLine
from kafka_keyshared.model import About, TopicPartition, named_key

KINDS_MAX = 50
"""Kinds logged in full and counted separately; a program may create error types as it runs."""

WHOLE_A_SECOND = 10
"""Kinds logged in full in one second, so that many different failures do not flood the log."""

NAMED_MAX = 5
"""Kinds that one line counts separately."""

MESSAGE_CHARS = 200

Kind: TypeAlias = tuple[str, str]

OTHERS: Kind = ("others", "")


def kind_of(failure: Failure) -> Kind:
    """Return the type of the error, and where it came from."""
    return failure.error_type, failure.where


def named_kind(kind: Kind) -> str:
    """Return the kind as text."""
    error_type, where = kind
    return f"{error_type} at {where}" if where else error_type


def one_line(text: str) -> str:
    """Return the beginning of a text as one line that a terminal only prints."""
    return _printable(" ".join(text[:MESSAGE_CHARS].split()))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def in_short(failure: Failure) -> str:
    """Return the kind and the message of a failure, in one line."""
    return f"{named_kind(kind_of(failure))}: {one_line(failure.message)}"


def traceback_of(failure: Failure) -> str:
    """Return the traceback lines of a failure; none where it has no place."""
    if not failure.where:
        return ""
    text = f"{failure.error_type}: {failure.message}" if failure.message else failure.error_type
    return _printable(f"Traceback (most recent call last):\n{failure.stack}{text}")


Attempt: TypeAlias = tuple[
    TopicPartition, int, bytes | None, int, int, Failure, LaneState, float | None
]
"""Partition, offset, key, attempt, most attempts, failure, lane state, retry delay in seconds."""


def _line(attempt: Attempt) -> EventLine:
    partition, offset, key, number, most, failure, state, delay = attempt
    follows = _FOLLOWS.get(state, "it is dropped")
    if delay is not None:
        follows = f"it runs again in {delay:.3g} s"
    text = f": {one_line(failure.message)}" if failure.message else ""
    return EventLine(
        f"{partition}@{offset} ({named_key(key)}), attempt {number} of {most}: "
        f"{named_kind(kind_of(failure))}{text}",
        About(partition, offset, key),
        f"; {follows}",
    )


_FOLLOWS = {
    LaneState.DEAD_LETTERING: "it goes to the dead-letter topic",
    LaneState.BLOCKED: "its key is blocked",
}


class Attempts(Burst[Attempt]):
    """Failed attempts of a subscription; ``whole``: the first of a kind has its traceback."""

    def __init__(self, level: Level, plural: str, *, whole: bool = True) -> None:
        super().__init__(level, plural, _line)
        self._whole = whole
        self._known: set[Kind] = set()
        self._wholes = 0
        self._wholes_since = float("-inf")
        self._counts: Counter[Kind] = Counter()
        self._blocked: set[Kind] = set()

    def only_counted_as(self, failure: Failure, now: float) -> bool:
        """Count an attempt that needs no other action, and return True; else return False.

        If False, :meth:`note` has to take it. If many attempts fail, nearly all are only counted.
        """
        kind = failure.error_type, failure.where
        # A kind has a count only while attempts are counted.
        counted = self._counts.get(kind)
        if counted is None:
            return False
        self._counts[kind] = counted + 1
        self._count += 1
        self._last_at = now
        return True

    def note(self, attempt: Attempt, now: float) -> list[Notice]:
        """Take a failed attempt; return the lines to log at once."""
        failure = attempt[5]
        kind = kind_of(failure)
        if kind not in self._known:
            if len(self._known) == KINDS_MAX:
                kind = OTHERS
            elif self._one_more_whole(now):
                return self._tell_whole(kind, attempt, now)
        told = self.add(attempt, now)
        if not told:
            self._counts[kind] += 1
        return told

    def _one_more_whole(self, now: float) -> bool:
        """Return whether a kind may be logged in full now; else it is counted and logged later."""
        if now - self._wholes_since >= 1.0:
            self._wholes_since, self._wholes = now, 0
        self._wholes += 1
        return self._wholes <= WHOLE_A_SECOND

    def _tell_whole(self, kind: Kind, attempt: Attempt, now: float) -> list[Notice]:
        self._known.add(kind)
        line = _line(attempt)
        if len(self._known) == KINDS_MAX:
            last = f" (the last of {KINDS_MAX} kinds that are told whole)"
            line = line._replace(follows=line.follows + last)
        if self._whole:
            line = line._replace(traceback=traceback_of(attempt[5]))
        return self.at_once(line, now)

    def first_block(self, failure: Failure, now: float) -> str:
        """Return the traceback to log if a kind of failure blocks a key for the first time."""
        kind = kind_of(failure)
        if kind in self._blocked or len(self._blocked) == KINDS_MAX:
            return ""
        traceback = traceback_of(failure)
        if not traceback or not self._one_more_whole(now):
            return ""
        self._blocked.add(kind)
        return traceback

    def due(self, now: float) -> list[Notice]:
        """Return the line for the attempts since the last line, when the interval is over."""
        told = super().due(now)
        if told:
            self._counts.clear()
        return told

    def _more(self) -> str:
        most = self._counts.most_common(NAMED_MAX)
        kinds = [f"{named_kind(each)} {n:,}" for each, n in most]
        left = self._counts.total() - sum(n for _, n in most)
        return f" ({', '.join([*kinds, f'others {left:,}'] if left else kinds)})"
