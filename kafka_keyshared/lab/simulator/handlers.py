"""Behaviour of handlers in a simulation: their durations and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple, TypeAlias

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.model import Drop

Ending: TypeAlias = Failure | Drop | None
"""The outcome of a handler call; None: the record is done."""

ATTEMPTS = (
    *(Disposition.ERROR, Disposition.RETRY),
    *(Disposition.DEAD_LETTER, Disposition.PUT_OFF),
)
ATTEMPT_WEIGHTS = (6, 2, 1, 1)


@dataclass(frozen=True, slots=True)
class Habits:
    """Behaviour of handlers, as shares of the records of their calls. Times are in seconds.

    ``poisoned`` records fail at every attempt. ``hanging`` calls take ``hang``. Among these calls,
    ``failing_late`` fail, or more. ``stuck`` records take ``stuck_for`` at every attempt, and then
    fail.
    """

    failing: float = 0.05
    poisoned: float = 0.005
    dropping: float = 0.01
    hanging: float = 0.0005
    hang: float = 20.0
    failing_late: float = 0.5
    stuck: float = 0.0
    stuck_for: float = 7.0
    at_once: float = 0.6
    typical: float = 0.004

    def healed(self) -> Habits:
        """Return them fast, without failures and hangs. Poison records are mended, too."""
        at_once, typical = max(self.at_once, 0.9), min(self.typical, 0.001)
        return replace(
            self,
            failing=0.0,
            failing_late=0.0,
            poisoned=0.0,
            stuck=0.0,
            hanging=0.0,
            at_once=at_once,
            typical=typical,
        )


class CallDuration(NamedTuple):
    """Duration of a call in seconds, and whether it hangs."""

    seconds: float
    hangs: bool = False


class Handlers:
    """Draws the duration and outcome of each handler call."""

    def __init__(self, habits: Habits, chance: Random, poison: int) -> None:
        self.habits = habits
        self._chance = chance
        self._poison = poison
        self._hung = 0
        self._hang = 0.0
        self.away: Disposition | None = None
        """The outcome of every call during an outage of the dependency."""

    def hang(self, calls: int, seconds: float) -> None:
        """Make the next ``calls`` calls take ``seconds`` each."""
        self._hung, self._hang = calls, seconds

    def call(self, partition: int, offset: int) -> CallDuration:
        """Return how long a call with that record takes."""
        if self._hung:
            self._hung -= 1
            return CallDuration(self._hang, hangs=True)
        chance, habits = self._chance, self.habits
        if self._is_one(partition, offset + 1, habits.stuck):
            return CallDuration(habits.stuck_for, hangs=True)
        roll = chance.random()
        if roll < habits.at_once:
            return CallDuration(0.0)
        if roll > 1 - habits.hanging:
            return CallDuration(habits.hang * (0.5 + chance.random()), hangs=True)
        return CallDuration(chance.expovariate(1 / habits.typical))

    def ending(self, partition: int, offset: int, *, hung: bool = False) -> Ending:
        """Return how a call with that record ends; ``hung`` says whether it hung."""
        chance, habits = self._chance, self.habits
        if self.away is not None:
            return self._failure(self.away)
        if self._is_one(partition, offset, habits.poisoned):
            return self._failure(Disposition.ERROR)
        if self._is_one(partition, offset + 1, habits.stuck):
            return self._failure(Disposition.ERROR)
        roll = chance.random()
        if roll < (max(habits.failing, habits.failing_late) if hung else habits.failing):
            return self._failure(chance.choices(ATTEMPTS, ATTEMPT_WEIGHTS)[0])
        return Drop() if roll > 1 - habits.dropping else None

    def _is_one(self, partition: int, number: int, share: float) -> bool:
        """Return whether a record belongs to that share: always the same answer for one record."""
        return (number * 7919 + partition * 104_729 + self._poison) % 10_000 < 10_000 * share

    def _failure(self, verdict: Disposition) -> Failure:
        after = None
        if verdict is Disposition.RETRY:
            after = self._chance.choice((None, 0.0, 0.5))
        elif verdict is Disposition.PUT_OFF:
            after = self._chance.choice((0.0, 0.5, 5.0))
        jitter = self._chance.uniform(-1, 1)
        return Failure(verdict, "SimulatedError", "as the seed has it", "", 0, jitter, after)
