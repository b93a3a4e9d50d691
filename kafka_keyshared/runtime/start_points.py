"""Start positions of assigned partitions: committed, chosen, or by reset policy."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException

from kafka_keyshared.client.port import CommittedOffset, LogBounds, refusal_of
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.offsets.commit_metadata import TEXT_LIMIT
from kafka_keyshared.core.offsets.metadata_sections import topic_id_in
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import TopicPartition, some
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.topic_ids import IdsOfTexts

log = log_of("kafka_keyshared.rebalance")

COMMITTED_TIMEOUT = 5.0
"""Seconds for the query of committed positions."""

NAMED_MAX = 8

OFFSET_TAIL_BASE = -2000
"""``RD_KAFKA_OFFSET_TAIL_BASE`` of librdkafka; the Python client has no name for it."""


class StartPoints:
    """Queries where partitions start. ``chosen`` has the positions from the user's ``on_assign``.

    A chosen position stays until its partition has started or is gone.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.chosen: dict[TopicPartition, int] = {}
        self._seldom = Seldom(log, loop.ports.clock)
        self._ids = IdsOfTexts(loop.ports.client, loop.ports.clock)

    def query(
        self, asked: dict[TopicPartition, CommittedOffset | None], timeout: float
    ) -> dict[TopicPartition, ev.StartPoint]:
        """Return the starts of those partitions for which every needed query was answered.

        ``asked`` holds the committed positions as far as they are known, and gets those answered
        now. ``timeout`` is for each query of logs.
        """
        client = self._loop.ports.client
        unknown = [partition for partition, committed in asked.items() if committed is None]
        # none in a cooperative rebalance that adds nothing: then no broker is waited for
        if unknown:
            began = self._loop.ports.clock()
            try:
                asked.update(client.committed(unknown, COMMITTED_TIMEOUT))
            except KafkaException as error:
                took = self._loop.ports.clock() - began
                refusal = refusal_of(error.args[0], None)
                if refusal is not None:
                    self._loop.note_refusals(refusal)
                else:
                    self._seldom.warning(
                        "positions",
                        f"committed positions unknown: no answer in {took:.3f} s ({error})",
                    )
        known = {each: committed for each, committed in asked.items() if committed is not None}
        wanted = [each for each, committed in known.items() if self._needs_bounds(each, committed)]
        by_id = [each for each, committed in known.items() if self._needs_id(each, committed)]
        until = self._loop.ports.clock() + timeout
        self._ids.ask(by_id)
        bounds = client.log_bounds(wanted, timeout) if wanted else {}
        ids = self._ids.answer(until - self._loop.ports.clock())
        unidentified = set(by_id).difference(ids)
        if unidentified:
            names = some(sorted(unidentified), NAMED_MAX)
            self._seldom.warning(
                "ids",
                f"{names}: topic id unknown; commit metadata is used "
                "only with it, so the partitions wait for it for a while",
            )
        return {
            partition: self._start_point(
                partition, committed, bounds.get(partition), ids.get(partition)
            )
            for partition, committed in known.items()
            if partition not in unidentified
            and (partition in bounds or not self._needs_bounds(partition, committed))
        }

    def _needs_id(self, partition: TopicPartition, committed: CommittedOffset) -> bool:
        """Return whether the known settled records name a topic id, which must be compared.

        The committed metadata may come from another cluster, or from a topic that was deleted
        since.
        """
        regained = self._loop.core.regained
        return topic_id_in(committed.metadata) is not None or regained.names_topic_id(partition)

    def _needs_bounds(self, partition: TopicPartition, committed: CommittedOffset) -> bool:
        """Return whether a partition may start only after the bounds of its log are known.

        - A settled set must not be trusted beyond the end of the log. The same holds for what this
          member had settled when it lost the partition.
        - Without a committed position the start must be one fixed offset, even if the partition is
          assigned again before it delivers anything. That offset is committed, so that a partition
          without records has a committed offset too.
        - A bare position needs no bounds. If the log does not have it, the broker says so
          (:mod:`.seeking`).
        """
        if partition in self.chosen:
            return True
        if committed.position is None:
            return not self._loop.ports.client.halts_out_of_range
        return bool(committed.metadata) or partition in self._loop.core.regained

    def _start_point(
        self,
        partition: TopicPartition,
        committed: CommittedOffset,
        bounds: LogBounds | None,
        topic_id: str | None,
    ) -> ev.StartPoint:
        position, metadata, _ = committed
        if bounds is None:
            return ev.StartPoint(position)
        if partition in self.chosen:
            at = chosen_offset(partition, self.chosen[partition], bounds)
            return ev.StartPoint(at, None, bounds.start, bounds.end, stored=False)
        if position is None:
            at_end = self._loop.ports.client.starts_at_end
            at = bounds.end if at_end else bounds.start
            if at_end and self._loop.ports.client.is_new(partition):
                # Every record of it was written after this group began to read the topic.
                at = bounds.start
                log.info(
                    "%s was added to its topic while this process ran: read from its start, %d, "
                    "although auto.offset.reset says latest",
                    partition,
                    at,
                )
            return ev.StartPoint(at, None, bounds.start, bounds.end, stored=False)
        text = metadata if metadata and len(metadata) <= 2 * TEXT_LIMIT else None
        return ev.StartPoint(position, text, bounds.start, bounds.end, topic_id=topic_id)


def chosen_offset(partition: TopicPartition, offset: int, bounds: LogBounds) -> int:
    """Return the absolute offset for a start position chosen by the user.

    An offset outside the log is moved to the nearer end, with a warning.
    """
    if offset == OFFSET_BEGINNING:
        return bounds.start
    if offset == OFFSET_END:
        return bounds.end
    # librdkafka encodes "the last n" as OFFSET_TAIL_BASE - n.
    wanted = bounds.end - (OFFSET_TAIL_BASE - offset) if offset <= OFFSET_TAIL_BASE else offset
    at = min(max(wanted, bounds.start), bounds.end)
    if offset >= 0 and at != offset:
        log.warning(
            "%s: on_assign chose offset %d, and the log has %d to %d: it starts at %d",
            partition,
            offset,
            bounds.start,
            bounds.end,
            at,
        )
    return at
