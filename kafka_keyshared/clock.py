"""Time and chance, as a value: whoever needs them is given one, so that a test can make them up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Called, it gives monotonic seconds. Without arguments it is the real one.

    ``monotonic`` is the same, for who calls it often; ``wall`` gives seconds since 1970; ``chance``
    draws from [0, 1); ``cpu`` gives the seconds of CPU that this process has used.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    cpu: Callable[[], float] = time.process_time

    def __call__(self) -> float:
        """Return monotonic seconds."""
        return self.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(self.wall() * 1000)

    def jitter(self) -> float:
        """Draw from [-1, 1)."""
        return 2 * self.chance() - 1
