"""What the log says of failed attempts: the first of each kind whole, the others by their number.

A *kind* is the type of an error and the place in the user's program that it came from. The first
of each is told with its traceback, so that nobody has to look for the line; after that a line in a
while says how many of which kind there were. How often and how soon a record is tried again is
decided in :mod:`.retry_policy`.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from kafka_keyshared.core.burst import Burst, Line
from kafka_keyshared.core.commands import Level, Notice
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.lanes import LaneState
from kafka_keyshared.model import About, TopicPartition, named_key

KINDS_MAX = 50
"""Kinds that are told whole and counted apart. A program may make up error types as it goes."""

WHOLE_A_SECOND = 10
"""Kinds that are told whole in one second: where everything fails at once, each in its own way,
the log is to stay readable."""

NAMED_MAX = 5
"""Kinds that one line counts apart."""

MESSAGE_CHARS = 200

Kind: TypeAlias = tuple[str, str]

OTHERS: Kind = ("others", "")


def kind_of(failure: Failure) -> Kind:
    """Return the type of the error, and where it came from."""
    return failure.error_type, failure.where


def named_kind(kind: Kind) -> str:
    """Return it in words."""
    error_type, where = kind
    return f"{error_type} at {where}" if where else error_type


def one_line(text: str) -> str:
    """Return the beginning of a text as a line that does nothing to a terminal."""
    return _printable(" ".join(text[:MESSAGE_CHARS].split()))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def in_short(failure: Failure) -> str:
    """Return how and where it failed, and what the error says, in one line."""
    return f"{named_kind(kind_of(failure))}: {one_line(failure.message)}"


def traceback_of(failure: Failure) -> str:
    """Return the lines that follow a line about the failure; none where there is nothing to see."""
    if not failure.where:
        return ""
    text = f"{failure.error_type}: {failure.message}" if failure.message else failure.error_type
    return _printable(f"Traceback (most recent call last):\n{failure.stack}{text}")


Attempt: TypeAlias = tuple[
    TopicPartition, int, bytes | None, int, int, Failure, LaneState, float | None
]
"""Where the record stands and its key; the attempt's number and how many there are; how it failed;
what becomes of its lane, and when it runs again, in seconds."""


def _line(attempt: Attempt) -> Line:
    partition, offset, key, number, most, failure, state, delay = attempt
    follows = _FOLLOWS.get(state, "it is dropped")
    if delay is not None:
        follows = f"it runs again in {delay:.3g} s"
    text = f": {one_line(failure.message)}" if failure.message else ""
    return Line(
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
    """Failed attempts of a subscription; ``whole``: with the traceback of the first of a kind."""

    def __init__(self, level: Level, plural: str, *, whole: bool = True) -> None:
        super().__init__(level, plural, _line)
        self._whole = whole
        self._known: set[Kind] = set()
        self._wholes = 0
        self._wholes_since = float("-inf")
        self._counts: Counter[Kind] = Counter()
        self._blocked: set[Kind] = set()

    def only_counted_as(self, failure: Failure, now: float) -> bool:
        """Count an attempt if nothing else is to be done, and say so: of nearly all, if many fail.

        Else :meth:`note` has to take it.
        """
        kind = failure.error_type, failure.where
        # A count for a kind is there only while something is counted.
        counted = self._counts.get(kind)
        if counted is None:
            return False
        self._counts[kind] = counted + 1
        self._count += 1
        self._last_at = now
        return True

    def note(self, attempt: Attempt, now: float) -> list[Notice]:
        """Take a failed attempt; return what is to be told of it at once."""
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
        """Say whether a kind may be told whole now; else it is counted, and told another time."""
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
        """Return the traceback if a kind of failure blocks a key for the first time, to be told."""
        kind = kind_of(failure)
        if kind in self._blocked or len(self._blocked) == KINDS_MAX:
            return ""
        traceback = traceback_of(failure)
        if not traceback or not self._one_more_whole(now):
            return ""
        self._blocked.add(kind)
        return traceback

    def due(self, now: float) -> list[Notice]:
        """Return the line for what has come together since the last one, when it is time."""
        told = super().due(now)
        if told:
            self._counts.clear()
        return told

    def _more(self) -> str:
        most = self._counts.most_common(NAMED_MAX)
        kinds = [f"{named_kind(each)} {n:,}" for each, n in most]
        left = self._counts.total() - sum(n for _, n in most)
        return f" ({', '.join([*kinds, f'others {left:,}'] if left else kinds)})"
