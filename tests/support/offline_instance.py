"""A whole instance without a broker: the real client's class, told by a test what happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import Committed, CommittedOffset, LogBounds, Rebalance
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.model import Record, TopicPartition
from tests.support.loop_ports import IdsTold, LimitTold
from tests.support.records import P0

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "log_level": 0}


class OfflineBroker:
    """What one member is given, and what it sends. It accepts every commit at once.

    ``hooks`` is for the app. ``assigned`` come in the first poll, ``records`` after it.
    """

    def __init__(
        self, *records: Record, assigned: Sequence[TopicPartition] = (P0,), **hooks: Any
    ) -> None:
        self.records = list(records)
        self.assigned = list(assigned)
        self.commits: list[Commit] = []
        self.committed = threading.Condition()
        self.closed = 0
        self.hooks = Hooks(client=self._client, **hooks)

    def _client(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        answer: Callable[[CommitAnswer], None],
    ) -> KafkaClient:
        return _OfflineClient(self, conf, topics, answer)

    def positions(self) -> list[int]:
        """The positions of P0 that were sent, in order."""
        return [each.entries[P0].position for each in self.commits if P0 in each.entries]

    def wait_for(self, position: int, seconds: float = 60.0) -> bool:
        """Wait until P0 is committed up to there."""
        with self.committed:
            return self.committed.wait_for(lambda: position in self.positions(), seconds)


class _OfflineClient(KafkaClient):
    def __init__(self, broker: OfflineBroker, *made_with: Any) -> None:
        super().__init__(*made_with)
        self._broker = broker
        self._at: dict[TopicPartition, int] = {}
        self._quiet = threading.Event()

    def check_topics(self, timeout: float) -> list[str]:
        return []

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        self._on_assign: Rebalance | None = on_assign

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        return {each: CommittedOffset(0, None) for each in partitions}

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        return {each: LogBounds(0, 1_000) for each in partitions}

    def ask_topic_ids(self, topics: Collection[str]) -> Any:
        return IdsTold({})

    def ask_metadata_limit(self) -> Any:
        return LimitTold(None)

    def log_ends(self) -> dict[TopicPartition, int]:
        return {}

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        self._at.update({each: at or 0 for each, at in positions.items()})

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        return {each: at for each, at in self._at.items() if not partitions or each in partitions}

    def poll(self, timeout: float) -> Record | None:
        if self._on_assign is not None:
            on_assign, self._on_assign = self._on_assign, None
            if self._broker.assigned:
                on_assign(list(self._broker.assigned))
        if found := self.consume(1):
            return found[0]
        self._quiet.wait(timeout)  # nothing ever sets it: as long as a poll of nothing takes
        return None

    def consume(self, count: int) -> list[Record]:
        records = self._broker.records
        taken, records[:] = records[:count], records[count:]
        for each in taken:
            self._at[TopicPartition(each.topic(), each.partition())] = each.offset() + 1
        return taken

    def commit(self, commit: Commit) -> CommitAnswer:
        with self._broker.committed:
            self._broker.commits.append(commit)
            self._broker.committed.notify_all()
        return CommitAnswer(commit, CommitResult.ACCEPTED)

    def close(self, patience: float = 10.0) -> bool:
        self._broker.closed += 1
        return super().close(patience)
