"""Partitions assigned, revoked and lost: what runs inside the client's rebalance callbacks.

Inside one, neither poll nor consume may be called, nothing is fetched for any partition, and the
client unassigns as soon as the callback returns. So a revoke serves the mailbox only, has one
deadline for everything, and commits asynchronously: a synchronous commit would block up to the
session timeout when the coordinator is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.metadata import TEXT_LIMIT
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.loop import Loop, names_of

log = logging.getLogger("kafka_keyshared.rebalance")

COMMITTED_TIMEOUT = 5.0
BOUNDS_TIMEOUT = 5.0
"""For all partitions of one assignment together."""

ASK_AGAIN_EVERY = 1.0
REVOKE_WAIT = 0.05

PartitionsCallback = Callable[[Sequence[TopicPartition]], None]


class Rebalancer:
    """The three callbacks, and partitions whose start is not known yet. Times are in seconds."""

    def __init__(self, loop: Loop, revoke_deadline: float) -> None:
        self._loop = loop
        self._revoke_deadline = revoke_deadline
        self._unstarted: list[TopicPartition] = []
        self._ask_at = 0.0
        self.closing = False
        self.hurried: Callable[[], bool] = lambda: False
        self.failure: BaseException | None = None
        self.observer: Callable[[str, Sequence[TopicPartition]], None] | None = None

    def subscribe(self) -> None:
        """Join the group with these callbacks."""
        guard = self._guard
        self._loop.ports.client.subscribe(
            guard(self.on_assign), guard(self.on_revoke), guard(self.on_lost)
        )

    def _guard(
        self, callback: Callable[[list[TopicPartition]], None]
    ) -> Callable[[list[TopicPartition]], None]:
        """Keep an exception from leaving the callback; the loop ends with it after the poll.

        Until then nothing is committed: what the core believes can no longer be trusted.
        """

        def guarded(partitions: list[TopicPartition]) -> None:
            if self.failure is not None:
                return
            try:
                callback(partitions)
            except BaseException as error:  # SystemExit of a key function, for one
                log.exception("%s failed", callback.__name__)
                self.failure = error
                self._loop.commits_stopped = True

        return guarded

    # --- assigned ---

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        """Start the partitions at their committed positions, with their settled sets."""
        if self.closing:
            return  # given back before anything is read; asking where would only delay the exit
        loop = self._loop
        loop.commits_stopped = False
        began = loop.ports.clock()
        self._observe("assigned", partitions)
        starts = self._starts(partitions)
        if starts is None:
            # Reading without the set could run settled records again; so hold the partitions.
            self._unstarted += partitions
            loop.withheld.update(partitions)
            loop.assign(dict.fromkeys(partitions))
            self._ask_at = loop.ports.clock() + ASK_AGAIN_EVERY
            log.warning(
                "assigned %s, but the committed positions were not answered in %g s; they are "
                "paused and asked for again",
                _names(partitions),
                COMMITTED_TIMEOUT,
            )
            return
        loop.tell(ev.Assigned(starts))
        log.info("assigned %s in %.3f s", _names(partitions), loop.ports.clock() - began)

    def step(self) -> None:
        """Ask again for committed positions that could not be had."""
        loop = self._loop
        if not self._unstarted or loop.ports.clock() < self._ask_at:
            return
        self._ask_at = loop.ports.clock() + ASK_AGAIN_EVERY
        partitions = list(self._unstarted)
        starts = self._starts(partitions)
        if starts is None:
            return
        self._unstarted.clear()
        loop.withheld.difference_update(partitions)
        for command in loop.core.handle(ev.Assigned(starts), loop.ports.clock()):
            if isinstance(command, ev.AssignAt):
                # Not a seek here: it may fail for now, and what comes before it must be dropped.
                loop.reseek.partitions.update(
                    each for each, at in command.positions.items() if at is not None
                )
            elif isinstance(command, ev.Notice):
                log.log(command.level, "%s", command.text)
        loop.hold()
        log.info("started %s after asking again", _names(partitions))

    def _starts(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ev.StartPoint] | None:
        client = self._loop.ports.client
        if not partitions:
            return {}  # a cooperative rebalance that brings nothing; it must not wait for a broker
        try:
            committed = client.committed(partitions, COMMITTED_TIMEOUT)
        except KafkaException as error:
            log.warning("committed positions: %s", error)
            return None
        starts: dict[TopicPartition, ev.StartPoint] = {}
        give_up = self._loop.ports.clock() + BOUNDS_TIMEOUT
        for partition in partitions:
            position, metadata = committed[partition]
            low = high = None
            if position is not None:
                # Asked for at every start: retention may have passed the position, and a set must
                # not be believed beyond the end of the log.
                left = max(0.0, give_up - self._loop.ports.clock())
                bounds = client.log_bounds(partition, left) if left else None
                if bounds is None:
                    return None
                low, high = bounds
            text = metadata if metadata and len(metadata) <= 2 * TEXT_LIMIT else None
            starts[partition] = ev.StartPoint(position, text, low, high)
        return starts

    # --- revoked ---

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        """Let running records of the partitions end, commit, and forget what is left."""
        loop = self._loop
        if self.closing:
            return  # the stop has drained and committed already
        self._withdraw(partitions)
        mine = [partition for partition in partitions if partition in loop.core.partitions]
        clock = loop.ports.clock
        started = clock()
        loop.tell(ev.Revoking(mine))
        left = drain(loop, mine, started + self._revoke_deadline, self.hurried)
        if not loop.commits_stopped:
            loop.commit(mine, final=True)
        self._release(partitions, mine)
        self._observe("revoked", partitions)  # nothing is committed for them from here on
        log.info(
            "revoked %s in %.3f s%s",
            _names(partitions),
            clock() - started,
            f"; {'given up' if self.hurried() else 'past the deadline'}, may run again: {left}"
            if left
            else "",
        )

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """Forget the partitions without a commit: they may have another owner already."""
        loop = self._loop
        if self.closing:
            return
        self._observe("lost", partitions)
        self._withdraw(partitions)
        held = loop.core.unsettled_count()
        mine = [partition for partition in partitions if partition in loop.core.partitions]
        loop.tell(ev.Revoking(mine))
        self._release(partitions, mine, lost=True)
        log.warning(
            "lost %s: nothing is committed for them, %d received records are let go unsettled",
            _names(partitions),
            held - loop.core.unsettled_count(),
        )

    def _withdraw(self, partitions: Sequence[TopicPartition]) -> None:
        self._unstarted = [each for each in self._unstarted if each not in partitions]
        self._loop.withheld.difference_update(partitions)

    def _release(
        self,
        partitions: Sequence[TopicPartition],
        mine: Sequence[TopicPartition],
        *,
        lost: bool = False,
    ) -> None:
        loop = self._loop
        loop.tell(ev.Forget(mine, lost))
        loop.ports.client.released(partitions)
        loop.released_in_call.update(partitions)
        loop.reseek.partitions.difference_update(partitions)

    def _observe(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        if self.observer is not None:
            self.observer(what, partitions)


def drain(
    loop: Loop,
    partitions: Sequence[TopicPartition] | None,
    deadline: float,
    hurried: Callable[[], bool],
) -> str:
    """Serve the mailbox until nothing of the partitions runs; return what was left, or ''.

    Dead letters on their way count too: they are settled when the broker has answered. ``hurried``
    turns true with the second signal, which gives up what still runs.
    """
    while True:
        running, dead_letters = loop.pending(partitions)
        if not running and not dead_letters:
            return ""
        remaining = deadline - loop.ports.clock()
        if remaining <= 0 or hurried():
            names = ", ".join(names_of(running[:5]))
            return f"{len(running)} running ({names}), {dead_letters} dead letters"
        wait = REVOKE_WAIT if not dead_letters else REVOKE_WAIT / 10
        loop.serve(min(remaining, wait))


def _names(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return "nothing"
    names = ", ".join(str(partition) for partition in sorted(partitions)[:8])
    return names + (f" and {len(partitions) - 8} more" if len(partitions) > 8 else "")
