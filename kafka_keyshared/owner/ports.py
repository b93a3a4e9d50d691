"""The world, as far as the loop may touch it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol, TypeAlias

from kafka_keyshared.client.port import Client
from kafka_keyshared.core import events as ev
from kafka_keyshared.pools.port import Pool

Mail: TypeAlias = ev.Report | ev.DeadLettered | ev.CommitAnswered | None
"""What is posted to the owner; None only wakes it."""

ANSWERS = (ev.DeadLettered, ev.CommitAnswered)
"""The mail that comes from the broker; all other is the pool's."""


class Publisher(Protocol):
    """The port through which the loop writes dead letters."""

    def publish(self, publish: ev.Publish) -> None:
        """Send a dead letter; the broker's answer is posted to the mailbox."""

    def serve(self) -> None:
        """Let the answers in."""

    def pending(self) -> int:
        """Return how many dead letters the broker has not answered."""

    def close(self, timeout: float) -> None:
        """Wait for what is on the way, and close."""


@dataclass
class Ports:
    """The world, as far as the loop may touch it.

    ``clock`` is monotonic, in seconds; ``wall`` gives the seconds since 1970, for metrics only.
    """

    client: Client
    pool: Pool
    mailbox: SimpleQueue[Mail]
    clock: Callable[[], float]
    publisher: Publisher | None = None
    wall: Callable[[], float] = time.time
