"""Detection of stalled partitions, which are read again.

A consumer that silently reads nothing looks like an idle one. The end of the log shows the
difference. A partition is stalled when it delivers nothing for 30 s without a cause: it has unread
records, the window has room, and no hold applies. A stalled partition is logged and read again. If
that does not help, it becomes a reason to restart. Three cases look the same and are no stall:

- offsets that are never delivered: the client's position passes them;
- an open transaction: the broker, when queried, reports where the readable log ends;
- unreachable brokers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.backpressure.pause_reasons import Holds
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.pauses import Pauses
from kafka_keyshared.runtime.seeking import Reseek

log = log_of("kafka_keyshared.loop")

STALLED_AFTER = 30.0
LOOK_EVERY = 5.0
COUNTED_MOST = 2 * LOOK_EVERY
"""Most seconds between two checks that count. The process may have been stopped or suspended."""

ASK_TIMEOUT = 1.0
ASKED_AT_ONCE = 8


@dataclass(slots=True)
class Quiet:
    """Since when a partition has delivered nothing, and for how long it could have.

    ``state`` is its state at that time, ``end`` its received end. A later epoch has another state.
    """

    state: PartitionState
    end: int | None
    since: float
    waited: float = 0.0
    times: int = 0


class Watchdog:
    """Observations of each partition. Times are monotonic, in seconds.

    ``stalls`` counts, by topic, how often a partition was read again. The loop sets ``full`` when
    the window was full, since then no partition was fetched. ``unreadable`` are the partitions
    whose fetches the brokers refuse. A missing right is no stall, and no restart helps.
    """

    def __init__(
        self,
        client: Client,
        holds: Holds,
        pauses: Pauses,
        reseek: Reseek,
        *,
        unreadable: Set[TopicPartition] = frozenset(),
    ) -> None:
        self._unreadable = unreadable
        self._client = client
        self._holds = holds
        self._pauses = pauses
        self._reseek = reseek
        self.stalls: Counter[str] = Counter()
        self.full = False
        self._quiet: dict[TopicPartition, Quiet] = {}
        # Partitions that this process has read before. A restart does not help where it never
        # could.
        self._delivered: set[TopicPartition] = set()
        self._failing: dict[TopicPartition, float] = {}
        self._looked: float | None = None
        # The client's positions of all partitions, queried once per check.
        self._positions: Mapping[TopicPartition, int] = {}
        self._ask_at = float("-inf")
        self._may_ask = 0
        self._unanswered = False

    def failing(self, now: float) -> str:
        """Return the problem that a restart may cure, or ''."""
        return "; ".join(
            f"{partition}: no record delivered for {now - since:.0f} s, although it was read again"
            for partition, since in sorted(self._failing.items())[:3]
        )

    def beat(self, states: Mapping[TopicPartition, PartitionState], now: float) -> None:
        """Check, if it is time, and have stalled partitions read again."""
        looked = self._looked
        if looked is not None and now - looked < LOOK_EVERY:
            return
        self._looked = now
        passed = 0.0 if looked is None else min(now - looked, COUNTED_MOST)
        full, self.full = self.full, False
        self._may_ask = ASKED_AT_ONCE
        self._note_progress(states, now)
        self._positions = self._client.positions()
        self._delivered.update(self._positions)
        ends = self._client.log_ends()
        for partition, quiet in self._quiet.items():
            if partition in self._reseek.partitions:
                self._wait_for_seek(partition, quiet, passed, now)
                continue
            end = ends.get(partition, 0)
            held = partition in self._unreadable or self._holds.reasons(partition)
            free = not full and not held
            if not free or quiet.end is None or end <= quiet.end:
                quiet.waited = 0.0
                continue
            quiet.waited += passed
            if quiet.waited >= STALLED_AFTER and self._stalled(partition, quiet, end, now):
                self._read_again(partition, quiet, end, now)

    def _note_progress(self, states: Mapping[TopicPartition, PartitionState], now: float) -> None:
        for partition in self._quiet.keys() - states.keys():
            del self._quiet[partition]
            self._failing.pop(partition, None)
        for partition, state in states.items():
            quiet = self._quiet.get(partition)
            if quiet is not None and quiet.state is state and quiet.end == state.received_end:
                continue
            if quiet is not None and quiet.state is state and quiet.times:
                log.info("%s delivers again after %.0f s", partition, now - quiet.since)
            self._failing.pop(partition, None)
            self._quiet[partition] = Quiet(state, state.received_end, now)

    def _wait_for_seek(
        self, partition: TopicPartition, quiet: Quiet, passed: float, now: float
    ) -> None:
        """Have the partition assigned anew after the client refused a seek for too long."""
        quiet.waited += passed
        if quiet.waited >= STALLED_AFTER and partition not in self._reseek.out_of_range:
            quiet.waited = 0.0
            log.warning("%s: the client refuses to seek; assigning the partition again", partition)
            self._reseek.lost_position(partition, now)

    def _stalled(self, partition: TopicPartition, quiet: Quiet, end: int, now: float) -> bool:
        """Query the broker for the end of the readable log; return whether the partition stalls.

        A query blocks the owner. After an unanswered one, none is sent for 30 s.
        """
        reached = max(quiet.end or 0, self._positions.get(partition, 0))
        if end <= reached:
            quiet.waited = 0.0
            return False
        if now < self._ask_at or not self._may_ask:
            return False
        self._may_ask -= 1
        bounds = self._client.log_bounds([partition], ASK_TIMEOUT).get(partition)
        if bounds is None:
            self._no_answer(partition, quiet, now)
            return False
        self._unanswered = False
        if bounds.end <= reached:
            quiet.waited = 0.0
            return False
        return True

    def _no_answer(self, partition: TopicPartition, quiet: Quiet, now: float) -> None:
        quiet.waited = 0.0
        self._ask_at = now + STALLED_AFTER
        if not self._unanswered:
            self._unanswered = True
            log.warning(
                "%s: no record delivered for %.0f s, and its broker does not answer (last error of "
                "the client: %s); reading continues when the broker answers",
                partition,
                now - quiet.since,
                self._client.last_error or "none",
            )

    def _read_again(self, partition: TopicPartition, quiet: Quiet, end: int, now: float) -> None:
        quiet.waited = 0.0
        quiet.times += 1
        self.stalls[partition.topic] += 1
        if quiet.times <= 2:
            log.log(
                logging.WARNING if quiet.times == 1 else logging.ERROR,
                "%s: no record delivered for %.0f s although the log has more: received end %s, "
                "end of the log %d, the client's position %s, %s, last error of the client: %s; "
                "reading it again%s",
                partition,
                now - quiet.since,
                quiet.end,
                end,
                self._positions.get(partition, "unknown"),
                "paused" if partition in self._pauses.paused() else "not paused",
                self._client.last_error or "none",
                "" if quiet.times == 1 else " did not help; once more",
            )
        if quiet.times > 1 and partition in self._delivered:
            self._failing.setdefault(partition, quiet.since)
        self._reseek.again([partition])
        self._pauses.forget([partition])
