"""Ledger hooks of the demo: a reporting client, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.core.contract.commands import Commit, RecordsDropped
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, DeadLetterAnswer
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import topic_id_in
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import Ledger, Ranges


class AuditedClient(KafkaClient):
    """A client that reports every commit before it is sent, and every answer.

    ``accepted`` is called with each partition's position once the broker has accepted it.
    """

    ledger: Ledger
    accepted: Callable[[TopicPartition, int], None]

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        answer: Callable[[CommitAnswer], None],
    ) -> None:
        self._sent: dict[Commit, list[int]] = {}
        self._on_answer = answer
        super().__init__(conf, topics, self._answered)

    def commit(self, commit: Commit) -> CommitAnswer | None:
        """Report the commit, then send it."""
        self._sent[commit] = [
            self.ledger.commit_sent(
                partition.topic,
                partition.partition,
                entry.position,
                settled_in(entry.metadata, partition, entry.position),
            )
            for partition, entry in commit.entries.items()
        ]
        answer = super().commit(commit)
        if answer is not None:
            self._note(answer)
        return answer

    def _answered(self, answer: CommitAnswer) -> None:
        self._note(answer)
        self._on_answer(answer)

    def _note(self, answer: CommitAnswer) -> None:
        accepted = answer.result is CommitResult.ACCEPTED
        for number in self._sent.pop(answer.commit):
            self.ledger.commit_answered(number, accepted=accepted)
        if accepted:
            for partition, entry in answer.commit.entries.items():
                self.accepted(partition, entry.position)


def settled_in(text: str, partition: TopicPartition, position: int) -> Ranges:
    """Return the settled offsets in the metadata, as inclusive ranges."""
    at = commit_metadata.LogPosition(partition, position, topic_id_in(text))
    runs = commit_metadata.decode(text, at).sections.get(commit_metadata.DEFAULT_SUBSCRIPTION, ())
    return tuple((start, end - 1) for start, end in runs)


def audited_client(
    ledger: Ledger,
    accepted: Callable[[TopicPartition, int], None],
    base: type[AuditedClient] = AuditedClient,
) -> type[AuditedClient]:
    """Return a client class that writes to this ledger."""
    return type("LedgerClient", (base,), {"ledger": ledger, "accepted": staticmethod(accepted)})


def on_dead_letter(ledger: Ledger) -> Callable[[DeadLetterAnswer], None]:
    """Return the hook that reports acknowledged dead letters; a copy settles nothing."""

    def note(answered: DeadLetterAnswer) -> None:
        if answered.error is None and not answered.publish.copy:
            record = answered.publish.record
            ledger.dead_letter_acknowledged(record.topic(), record.partition(), record.offset())

    return note


def on_dropped(ledger: Ledger) -> Callable[[RecordsDropped], None]:
    """Return the hook that reports records settled without a result of their handler."""

    def note(dropped: RecordsDropped) -> None:
        for record in dropped.records:
            ledger.dropped(record.topic(), record.partition(), record.offset())

    return note


def on_rebalance(ledger: Ledger) -> Callable[[str, Sequence[TopicPartition]], None]:
    """Return the hook that reports assigned, revoked and lost partitions."""
    tell = {"assigned": ledger.assigned, "revoked": ledger.revoked, "lost": ledger.lost}

    def note(what: str, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            tell[what](partition.topic, partition.partition)

    return note
