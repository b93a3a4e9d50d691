"""Settings for failed attempts: retries, and the policy for poison records.

:mod:`kafka_keyshared.core.failures.decision` applies them to a failure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

from kafka_keyshared.errors import ConfigError

PoisonPolicy: TypeAlias = Literal["drop", "dead_letter", "block", "block_and_dlq", "divert"]

NEED_DLQ: Collection[PoisonPolicy] = ("dead_letter", "block_and_dlq", "divert")
"""The policies that write into a dead-letter topic."""

WHERE_ORDER_IS_REQUIRED: Collection[PoisonPolicy] = ("block", "block_and_dlq")
"""The policies after which no record behind the poison record runs out of order."""


def refuse_for_exclusive(on_exhausted: PoisonPolicy, where: str) -> None:
    """Raise :class:`ConfigError` for a policy that an exclusive routing does not allow.

    Exclusive routing requires order: the whole subscription is one lane, and a blocked record stops
    it. Running records behind a dropped or moved record would break that order. Celeriant refuses
    these policies at start-up too. ``where`` is the start of the error message.
    """
    if on_exhausted not in WHERE_ORDER_IS_REQUIRED:
        raise ConfigError(
            f"{where}: on_exhausted={on_exhausted!r} goes on behind a record that was not done, "
            f"and the routing 'exclusive' requires order; give "
            f"{' or '.join(map(repr, WHERE_ORDER_IS_REQUIRED))}"
        )


class RetryPolicy(NamedTuple):
    """How often and how soon a failed record runs again. Times are in seconds.

    With ``forever`` a failure uses up no attempt, so the record runs again until it succeeds or
    fails in another way.
    """

    attempts: int = 5
    backoff: float = 0.1
    factor: float = 2.0
    backoff_max: float = 30.0
    jitter: float = 0.2
    forever: bool = False

    def used_up(self, failures: int) -> bool:
        """Return whether a record has no further attempt after this many failures.

        >>> RetryPolicy(attempts=3).used_up(3), RetryPolicy(forever=True).used_up(3)
        (True, False)
        """
        return not self.forever and failures >= self.attempts

    def delay(self, failures: int, jitter: float) -> float:
        """Return the delay after the given number of failures; ``jitter`` is drawn in [-1, 1].

        >>> RetryPolicy().delay(3, 0.0)
        0.4
        """
        try:
            grown = float(self.backoff) * float(self.factor) ** (failures - 1)
        except OverflowError:
            grown = self.backoff_max if self.backoff else 0.0
        return min(grown, self.backoff_max) * (1 + self.jitter * jitter)

    def check(self) -> None:
        """Raise :class:`ConfigError` for the first invalid value."""
        for name, value, least in (
            ("attempts", self.attempts, 1),
            ("backoff", self.backoff, 0),
            ("factor", self.factor, 1),
            ("backoff_max", self.backoff_max, 0),
        ):
            if not value >= least:
                raise ConfigError(f"retry.{name}={value!r}: give a number of at least {least}")
        if not 0 <= self.jitter < 1:
            raise ConfigError(f"retry.jitter={self.jitter!r}: give a share from 0 up to 1")
