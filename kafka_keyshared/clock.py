"""Time and random numbers as an injected value, replaceable in tests."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock; calling it returns monotonic seconds. Without arguments it is the real one.

    ``monotonic`` is the same function, for frequent callers. ``wall`` returns seconds since 1970.
    ``chance`` draws from [0, 1). ``cpu`` returns the CPU seconds that this process has used.
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
