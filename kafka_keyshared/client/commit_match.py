"""Commits in flight, matched to the client's answers.

A client callback names the committed offsets but not the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.offset_queries import epoch_of
from kafka_keyshared.client.port import classify_commit, refused_right
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.model import TopicPartition


class CommitsInFlight:
    """The commits in flight of one client. ``positions`` are the latest sent. Owner thread only."""

    def __init__(self) -> None:
        self._sent: list[Commit] = []
        self.positions: dict[TopicPartition, int] = {}

    def send(
        self, consumer: Consumer, commit: Commit, ends: Mapping[TopicPartition, ClientPartition]
    ) -> CommitAnswer | None:
        """Send a commit asynchronously. Return an answer if the client refuses it at once.

        ``ends`` are the received ends of partitions, with the leader epochs there (KIP-320).
        """
        offsets = [
            ClientPartition(
                *partition, entry.position, entry.metadata, _epoch(entry, ends.get(partition))
            )
            for partition, entry in commit.entries.items()
        ]
        self._sent.append(commit)
        self.positions |= {each: entry.position for each, entry in commit.entries.items()}
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._sent.remove(commit)
            return _answer(commit, error.args[0])
        return None

    def answered(
        self, error: KafkaError | None, partitions: list[ClientPartition]
    ) -> CommitAnswer | None:
        """Return the answer that a client callback carries; None if it matches no commit."""
        commit = commit_of(partitions, self._sent)
        if commit is None:
            return None
        self._sent.remove(commit)
        return _answer(
            commit, error or next((each.error for each in partitions if each.error), None)
        )

    def give_up(self, why: str) -> list[CommitAnswer]:
        """Return an answer for each commit that will get none, because its client has ended."""
        given_up, self._sent = self._sent, []
        return [CommitAnswer(each, CommitResult.LOST, why) for each in given_up]


def _answer(commit: Commit, error: KafkaError | None) -> CommitAnswer:
    return CommitAnswer(commit, classify_commit(error), str(error or ""), refused_right(error))


def _epoch(entry: CommitEntry, end: ClientPartition | None) -> int:
    """Return the leader epoch to commit: that of the held record, or of the received end."""
    if entry.leader_epoch >= 0:
        return entry.leader_epoch
    return epoch_of(end) if end is not None and end.offset == entry.position else -1


def commit_of(partitions: Sequence[ClientPartition], in_flight: Iterable[Commit]) -> Commit | None:
    """Return the commit that an answer with these partitions belongs to.

    Several commits may match; then it is the oldest. The client may have to repeat a commit, and
    then answers it after a later one. The later one may have the same positions with another
    settled set.
    """
    told = [(TopicPartition(each.topic, each.partition), each) for each in partitions]
    first: Commit | None = None
    for commit in in_flight:
        entries = commit.entries
        if len(entries) != len(told) or any(
            each not in entries or entries[each].position != answer.offset for each, answer in told
        ):
            continue
        if all(entries[each].metadata == (answer.metadata or "") for each, answer in told):
            return commit
        first = first or commit
    return first
