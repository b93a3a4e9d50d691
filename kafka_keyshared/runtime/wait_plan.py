"""Plan of the owner's wait in a round, with its reason.

A round waits at most once, in one of two places. While work is under way the owner waits in its
mailbox, because the next report can free a worker. While nothing is under way it waits in the
client, because only a new record can bring work.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from kafka_keyshared.runtime.fetch_quota import FULL_POLL_EVERY

BUSY_WAIT = 0.0005
"""Seconds in the mailbox while work is under way. Records in the client wait as long."""

FULL_WAIT = 0.002
"""Seconds in the mailbox with a full window. No record in the client waits for the owner then."""

IDLE_WAIT = 0.1
"""Seconds in the client while nothing is under way. A delay that ends sooner counts as work."""

MAIL_TURNS = 64
"""Turns in a row that only serve the mailbox while the window is full.

Each waits :data:`BUSY_WAIT` at most.
"""

ANSWER_POLL_EVERY = 0.005
"""Seconds between polls of a full window while records wait for a commit's answer."""


class WaitReason(enum.Enum):
    """The reason for the length of a wait."""

    MORE_FETCHED = "the last fetch was large, so the client has more records"
    WINDOW_FULL = "the window is full, so only a report can change anything"
    LEASED = "records are leased, and their reports are awaited"
    DELAY = "a delay ends soon"
    DEAD_LETTER = "the broker's answer to a dead letter is awaited"
    ORDER = "an order is not finished"
    IDLE = "nothing is under way, so only the client can bring work"


class OwnerWait(NamedTuple):
    """A wait of so many seconds, and its reason. The reason also decides the place."""

    seconds: float
    reason: WaitReason

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self.reason is WaitReason.IDLE

    @property
    def in_mailbox(self) -> float:
        """Seconds to wait in the mailbox before the fetch."""
        return 0.0 if self.idle else self.seconds

    @property
    def in_client(self) -> float:
        """Seconds to wait in the client, or in the mailbox if the window has no room."""
        return self.seconds if self.idle else 0.0


@dataclass(frozen=True, slots=True)
class RoundState:
    """The state at the beginning of a round, as far as it decides the wait.

    ``leased`` is the number of leased records. ``due_in`` is the number of seconds until the next
    delay of the core ends, negative if it has ended, None without one. ``dead_letters`` is the
    number of dead letters without an answer. ``orders`` says that an order is not finished.
    ``more_fetched`` says that the last fetch was large. ``window_full`` says that the window had no
    room in the last round.
    """

    leased: int = 0
    due_in: float | None = None
    dead_letters: int = 0
    orders: bool = False
    more_fetched: bool = False
    window_full: bool = False


def plan_wait(state: RoundState) -> OwnerWait:
    """Return how long the owner waits in this round, and why."""
    under_way = _under_way(state)
    if under_way is None:
        return OwnerWait(IDLE_WAIT, WaitReason.IDLE)
    if state.more_fetched:
        return OwnerWait(0.0, WaitReason.MORE_FETCHED)
    if state.window_full:
        return OwnerWait(FULL_WAIT, WaitReason.WINDOW_FULL)
    return OwnerWait(BUSY_WAIT, under_way)


def _under_way(state: RoundState) -> WaitReason | None:
    """Return the first kind of work that is under way; None while there is none."""
    if state.leased:
        return WaitReason.LEASED
    if state.due_in is not None and state.due_in <= IDLE_WAIT:
        return WaitReason.DELAY
    if state.dead_letters:
        return WaitReason.DEAD_LETTER
    return WaitReason.ORDER if state.orders else None


def plan_full_poll(*, paused: bool, reserve_every: float, answer_awaited: bool) -> float:
    """Return the seconds between two polls of a full window.

    Paused partitions deliver nothing, so polls only serve callbacks. Otherwise each poll may use a
    place of the reserve, which lasts with one poll per ``reserve_every`` seconds. With
    ``answer_awaited`` records wait for the answer to a commit, which a poll delivers.
    """
    every = FULL_POLL_EVERY if paused else reserve_every
    return min(every, ANSWER_POLL_EVERY) if answer_awaited else every
