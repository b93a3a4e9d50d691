"""Dead letters in a simulation: some fail, some arrive without an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import cast

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.member_events import LetterReconnected
from kafka_keyshared.lab.simulator.records import SimRecord

IDLE_AFTER = 1.0
"""Seconds without a letter after which the producer's connection may have been closed."""

RECONNECTED_IN = 0.5
"""Mean seconds until the producer has noticed it and is connected again."""

FAILS = 0.3
"""The share of such letters that are reported as timed out, and not stored."""


@dataclass(frozen=True, slots=True)
class LetterFaults:
    """Shares of the dead letters: ``refused`` ones, and ``unheard`` ones that are stored.

    Of the first letters after :data:`IDLE_AFTER` seconds, ``closed`` is the share that finds its
    connection closed, by the broker or the network.
    """

    refused: float = 0.2
    unheard: float = 0.05
    slow: float = 0.05
    closed: float = 0.5

    def healed(self) -> LetterFaults:
        """Return the faults that remain when faults have stopped: none."""
        return replace(self, refused=0.0, unheard=0.0, slow=0.0, closed=0.0)


class SimPublisher:
    """The dead-letter port of one process."""

    def __init__(
        self,
        site: Site,
        faults: Callable[[], LetterFaults],
        chance: Random,
        post: Callable[[ev.DeadLetterAnswer], None],
    ) -> None:
        self._member, self._process, self._history = site
        self._faults = faults
        self._chance = chance
        self._post = post
        self._unanswered = 0
        self._last = 0.0

    def publish(self, publish: cmd.Publish) -> None:
        """Send a dead letter. The answer is posted when it is due."""
        record = cast("SimRecord", publish.record)
        sent = was.LetterSent(self._member, publish.subscription, *record.came)
        self._history.tell(sent)
        self._unanswered += 1
        chance, faults = self._chance, self._faults()
        roll = chance.random()
        seconds = chance.expovariate(1 / (2.0 if chance.random() < faults.slow else 0.005))
        now = self._process.timeline.now
        if now - self._last >= IDLE_AFTER and chance.random() < faults.closed:
            self._history.tell(LetterReconnected(self._member))
            seconds += chance.expovariate(1 / RECONNECTED_IN)
            if chance.random() < FAILS:
                faults = replace(faults, refused=1.0)
        # There is one producer, so a letter that is sent later arrives later.
        self._last = max(self._last, now + seconds)
        self._process.timeline.at(self._last, lambda: self._arrive(publish, sent, roll, faults))

    def _arrive(
        self, publish: cmd.Publish, sent: was.LetterSent, roll: float, faults: LetterFaults
    ) -> None:
        history = self._history
        refused = roll < faults.refused
        error = "leader not available" if refused else ""
        if not refused:
            history.tell(was.LetterStored(*sent))
            if roll > 1 - faults.unheard:
                error = "no answer in time"
        if self._process.alive:
            self._unanswered -= 1
            history.tell(was.LetterTold(*sent, error))
            self._post(ev.DeadLetterAnswer(publish, error or None, "" if error else "sim.dlq-0@0"))

    def serve(self) -> None:
        """Do nothing: answers come by the timeline."""

    def unanswered(self) -> int:
        """Return the number of unanswered dead letters."""
        return self._unanswered

    def close(self, timeout: float) -> None:
        """Wait for the letters in flight."""
        self._process.wait(timeout, lambda: not self._unanswered)
