"""Listing and replay of a group's dead letters from a running instance.

Reading and replay work as on the command line. The progress is stored in the same place, so each
knows which dead letters the other has sent. The number of dead letters in memory is bounded,
because the instance also consumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from kafka_keyshared.config import connection_conf
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.letter import Letter, LetterPlace
from kafka_keyshared.dlq.read_timeout import ReadTimeout
from kafka_keyshared.dlq.replay import Replay, ReplayOutcome
from kafka_keyshared.dlq.replay_log import DEFAULT_ID, KafkaProgress
from kafka_keyshared.dlq.replay_plan import ReplayPlan, is_replayed
from kafka_keyshared.dlq.send import KafkaSender
from kafka_keyshared.dlq.summary import Summary
from kafka_keyshared.dlq.topic_identity import SameTopic, can_be_asked, ids_of
from kafka_keyshared.errors import ConfigError

LETTERS_MOST = 10_000
"""Maximum number of dead letters in one replay."""


class ReplayRequest(NamedTuple):
    """The scope and options of a replay.

    ``at`` is the place of a single dead letter; None means all. A record that was replayed
    ``max_replays`` times is skipped. ``rate`` is in dead letters per second.
    """

    at: LetterPlace | None = None
    max_replays: int = 3
    rate: float | None = None


class Desk:
    """Lists and replays the dead letters of ``group`` in the dead-letter topic ``topic``.

    ``conf`` is the consumer's. Every call raises the errors of :mod:`.scan`. It raises
    :class:`ConfigError` when the progress of earlier replays cannot be read.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, group: str) -> None:
        self._conf = connection_conf(conf)
        self._given = conf
        self._topic = topic
        self._group = group
        self._patience = ReadTimeout()

    def newest(self, most: int) -> list[tuple[Letter, bool]]:
        """Return at most ``most`` of the newest dead letters, and whether each was replayed.

        Only the end of each partition is read. If it also has records of other groups, the result
        has fewer dead letters.
        """
        progress = self._progress().load()
        summary = Summary(most)
        with self._reader() as consumer:
            bounds = {
                partition: (max(low, high - most), high)
                for partition, (low, high) in scan.bounds_of(consumer, self._topic).items()
            }
            choice = Choice(source_group=self._group)
            for letter in scan.letters(
                consumer, self._topic, choice, bounds, patience=self._patience
            ):
                summary.add(letter, replayed=is_replayed(letter, progress))
        return summary.newest()

    def plan(self, wanted: ReplayRequest) -> ReplayPlan:
        """Return the plan of a replay; nothing is written."""
        with self._reader() as consumer:
            bounds = scan.bounds_of(consumer, self._topic)
            return self._plan(wanted, consumer, bounds, self._progress().load())

    def replay(
        self, wanted: ReplayRequest, stopped: Callable[[], bool]
    ) -> tuple[ReplayPlan, ReplayOutcome]:
        """Replay dead letters until ``stopped`` returns true; return the plan and the outcome."""
        with self._progress() as progress, self._reader() as consumer:
            bounds = scan.bounds_of(consumer, self._topic)
            progress.open()
            progress.forget(bounds)
            ids = ids_of(self._conf, self._topic) if can_be_asked(self._conf) else None
            same = SameTopic(self._topic, ids)
            # Read the bounds again, so that the whole plan is of the topic whose id was read.
            bounds = scan.bounds_of(consumer, self._topic)
            plan = self._plan(wanted, consumer, bounds, progress)

            def ended() -> bool:
                return stopped() or progress.lost is not None or same.lost() is not None

            partitions = scan.partitions_of(consumer)
            sender = KafkaSender(self._given, None, partitions, patience=self._patience)
            replay = Replay(plan, sender, progress, rate=wanted.rate, stopped=ended)
            outcome = replay.run(
                lambda: scan.letters(
                    consumer,
                    self._topic,
                    self._choice(wanted),
                    bounds,
                    patience=self._patience,
                    stopped=ended,
                )
            )
        outcome.halted = outcome.halted or progress.lost or same.lost()
        return plan, outcome

    def _plan(
        self,
        wanted: ReplayRequest,
        consumer: Consumer,
        bounds: scan.Bounds,
        progress: KafkaProgress,
    ) -> ReplayPlan:
        found = scan.letters(
            consumer, self._topic, self._choice(wanted), bounds, patience=self._patience
        )
        return ReplayPlan(wanted.max_replays, "key", LETTERS_MOST).filled(_few(found), progress)

    def _choice(self, wanted: ReplayRequest) -> Choice:
        partition, offset = wanted.at or (None, None)
        return Choice(source_group=self._group, partition=partition, offset=offset)

    def _reader(self) -> closing[Consumer]:
        return closing(scan.connected(self._conf, self._patience))

    def _progress(self) -> KafkaProgress:
        def connect() -> Consumer:
            return scan.connected(self._conf, self._patience)

        return KafkaProgress(self._conf, connect, self._topic, DEFAULT_ID, patience=self._patience)


def _few(letters: Iterable[Letter]) -> Iterator[Letter]:
    for number, letter in enumerate(letters):
        if number == LETTERS_MOST:
            raise ConfigError(
                f"there are more than {LETTERS_MOST:,} letters, too many for the memory of an "
                "instance: replay them with `keyshared dlq replay`"
            )
        yield letter
