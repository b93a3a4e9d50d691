"""Periodic log lines about what a stop waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, counted, name_of, named_key, some
from kafka_keyshared.runtime.loop import Loop

log = log_of("kafka_keyshared.stop")

TELL_FIRST = 1.0
TELL_EVERY = 10.0
"""Seconds until the first line, and between later ones."""

NAMED_MAX = 5


def tell_wait(seconds: float, what: str) -> None:
    """Log what a stop waits for, and for how long it will."""
    log.info(
        "stopping: waiting up to %.0f s for %s; Ctrl-C again to hurry", max(0.0, seconds), what
    )


class Talk:
    """Logs at intervals what a stop waits for, and for how long it will."""

    def __init__(self, loop: Loop, deadline: float) -> None:
        self._loop = loop
        self._deadline = deadline
        self._next = loop.ports.clock() + TELL_FIRST

    def waits_for(self, running: Sequence[Record], dead_letters: int) -> None:
        """Log if it is time. With neither, the stop waits for the last commit's answer."""
        now = self._loop.ports.clock()
        if now < self._next:
            return
        self._next = now + TELL_EVERY
        waited = []
        if running:
            known = _known(self._loop, now)
            names = some((_told(self._loop, each, known) for each in running), NAMED_MAX)
            waited.append(f"{counted(len(running), 'running record')} ({names})")
        if dead_letters:
            waited.append(f"{counted(dead_letters, 'dead letter')} on the way")
        tell_wait(self._deadline - now, " and ".join(waited) or "the last commit's answer")


def _known(loop: Loop, now: float) -> dict[str, str]:
    """Return how long and where each record has been running, as far as that was seen."""
    found = {}
    for watch in loop.core.watches.values():
        for known in watch.running.values():
            where = loop.ports.pool.where(*known.whose)
            words = f"{now - known.since:.0f} s so far" + (f", now {where}" if where else "")
            found[name_of(known.record)] = words
    return found


def _told(loop: Loop, record: Record, known: Mapping[str, str]) -> str:
    keys = (sub.keys for sub in loop.core.subscriptions.values())
    # It may run in several subscriptions, and use a key other than its own in one of them.
    key = next((each.key(record) for each in keys if each.knows(record)), None)
    name = name_of(record)
    return ", ".join(filter(None, [name, named_key(key), known.get(name)]))
