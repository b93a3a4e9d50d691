"""The replay progress in the compacted Kafka topic ``<DLQ>.replays``.

All records are in partition 0, so that all readers see the same order. A key names the writer of
the record: ``{"keyshared": "replay", "id": ..., "run": ...}``. The key of a batch of dead letters
also has its number. The value of a batch is the same as a line of :mod:`.replay_file`. The value of
a run, whose key has no number, identifies the process and says whether it ``asks`` or ``works``. A
run that ends deletes it.

One run of an id works at a time. A new run asks, and listens for runs that asked before and have
not deleted their record. A live run answers, and the new run is refused. A run that is silent for
:data:`SILENCE` seconds counts as killed, and the new run replaces it. If the old run was only very
slow, it reads that it was replaced. It then sends no further dead letter, but still records those
that it had sent.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
)

from kafka_keyshared.config import connection_conf
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.read_timeout import ReadTimeout
from kafka_keyshared.dlq.replay_marks import marks_in, places_in, told_of
from kafka_keyshared.dlq.replay_record import Key, packed, read, this_run
from kafka_keyshared.dlq.sync_writer import Writer
from kafka_keyshared.dlq.topics import has_controller, make_topic
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError

DEFAULT_ID = "default"

SILENCE = 15.0
"""Seconds after which a run that has not answered counts as killed."""

_PARTITION = 0
_WAIT = 0.2
_NEEDED = (
    "nothing was replayed, because the progress cannot be recorded. That needs "
    "READ and WRITE on this "
    "topic, and CREATE if it does not exist (one partition, cleanup.policy=compact)"
)
_IN_A_FILE = "keep the progress in a file with --state PATH"


def progress_topic(topic: str) -> str:
    """Return the topic with the replay progress of a dead-letter topic."""
    return f"{topic}.replays"


class KafkaProgress:
    """The progress of the replays with one id of one dead-letter topic.

    :meth:`load` it to read, :meth:`open` it to add. ``connect`` returns a consumer without a group.
    Both raise the errors of :mod:`.scan`, and :class:`ConfigError` when the topic cannot be used.
    ``lost`` is the reason why this run must stop, once another run has replaced it.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        connect: Callable[[], Consumer],
        topic: str,
        id_: str,
        *,
        patience: ReadTimeout | None = None,
        clock: Callable[[], float] = time.monotonic,
        silence: float = SILENCE,
    ) -> None:
        self.topic = progress_topic(topic)
        self.id = id_
        self.there = False
        self.lost: str | None = None
        self.others: Counter[str] = Counter()
        self.foreign: list[str] = []
        self._conf = conf
        self._connect = connect
        self._patience = patience or ReadTimeout(clock)
        self._clock = clock
        self._silence = silence
        self._marks: set[int] = set()
        self._batches: dict[Key, list[LetterPlace]] = {}
        self._runs: dict[str, str] = {}
        self._run, self._who = uuid.uuid4().hex, this_run()
        self._number = 0
        self._end = 0
        self._asked_at: int | None = None
        self._works = False
        # The broker has refused an important write, so the end of the run is not written either.
        self._mute = False
        self._writer: Writer | None = None
        self._listener: threading.Thread | None = None
        self._done = threading.Event()

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def __iter__(self) -> Iterator[int]:
        return iter(self._marks)

    def __str__(self) -> str:
        return f"topic {self.topic}, id {self.id}"

    # --- reading ---

    def load(self) -> Self:
        """Read the progress; a missing topic means that nothing was replayed."""
        try:
            return self._load()
        except ConfigError as error:
            raise ConfigError(f"{error}, or {_IN_A_FILE}") from error

    def _load(self) -> Self:
        consumer = self._connect()
        try:
            low, self._end = scan.bounds_of(consumer, self.topic)[_PARTITION]
            self.there = True
            self._read_to(consumer, low, self._end)
        except TopicMissingError:
            return self
        finally:
            consumer.close()
        return self

    def _read_to(self, consumer: Consumer, first: int, end: int) -> None:
        bounds = {_PARTITION: (first, end)}
        for message in scan.messages(consumer, self.topic, bounds, patience=self._patience):
            self._take(message)

    def _take(self, message: Message) -> None:
        """Process a record; remember the place of a foreign record."""
        key, value = read(message)
        if key is None:
            self.foreign.append(f"{self.topic}-{message.partition()}@{message.offset()}")
        elif key.batch is not None:
            if value is None:
                # Its dead letters are deleted. Their marks may stay in memory, where they do no
                # harm.
                self._batches.pop(key, None)
            else:
                places = places_in(value)
                self.others[key.id] += len(places)
                if key.id == self.id:
                    self._marks.update(marks_in(value))
                    self._batches[key] = places
        elif key.id == self.id:
            if value is None:
                self._runs.pop(key.run, None)
            else:
                self._runs[key.run] = str(value.get("who"))

    def forgotten(self) -> str | None:
        """Return a warning if retention will delete the stored progress, else None."""
        if not self.there:
            return None
        admin = AdminClient({**connection_conf(self._conf), "log_level": 2})
        if not has_controller(admin):
            return None  # an embedded cluster keeps no configuration
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            found = admin.describe_configs([asked], request_timeout=5)[asked].result(10)
        except (KafkaException, TimeoutError):
            return None  # this user may lack the right to query it
        policy = found["cleanup.policy"].value
        if "delete" not in policy or found["retention.ms"].value == "-1":
            return None
        hours = int(found["retention.ms"].value) / 3_600_000
        return (
            f"{self.topic} has cleanup.policy={policy}, so the progress is lost after "
            f"{hours:,.0f} h and letters are sent again: set cleanup.policy=compact"
        )

    # --- adding ---

    def open(self, note: Callable[[str], None] = lambda _: None) -> Self:
        """Open for writing, by one run at a time.

        ``note`` is called with a text before a long wait. Raises :class:`ConfigError` while another
        run with this id is at work, and when the topic has foreign records. Raises it also when
        this user may not create, read or write the topic.
        """
        try:
            self._load()
            self._require_own()
            if not self.there:
                make_topic(self._conf, self.topic, {"cleanup.policy": "compact"})
            self._writer = Writer(self._conf, self.topic, _PARTITION, self._patience, self._clock)
            # The first write shows whether this user may write at all.
            self._asked_at = self._say({"state": "asks", "who": self._who})
        except ConfigError as error:
            self.close()
            raise type(error)(f"{error}; {_NEEDED}; or {_IN_A_FILE}") from error
        consumer = self._connect()
        try:
            self._read_to(consumer, self._end, self._asked_at)
            consumer.assign([ClientPartition(self.topic, _PARTITION, self._asked_at + 1)])
            self._await_silence(consumer, note)
        except BaseException:
            consumer.close()
            self.close()
            raise
        self._works = True
        self._say({"state": "works", "who": self._who})
        for gone in self._runs:
            self._write(Key(self.id, gone, None), None)
        self._listener = threading.Thread(target=self._listen, args=(consumer,), daemon=True)
        self._listener.start()
        return self

    def _require_own(self) -> None:
        if self.foreign:
            raise ConfigError(
                f"{self.topic} has records that are no replay's progress, such as "
                f"{self.foreign[0]}: another program seems to use it"
            )

    def _await_silence(self, consumer: Consumer, note: Callable[[str], None]) -> None:
        """Wait until no run that asked before is alive."""
        if not self._runs:
            return
        first = next(iter(self._runs.values()))
        note(f"{first} has not said that its replay ended: listening {self._silence:g} s for it")
        until = self._clock() + self._silence
        while self._runs and self._clock() < until:
            message = consumer.poll(_WAIT)
            if message is None or message.error() is not None:
                continue
            key, value = self._answered(message)
            if key is None or key.id != self.id or key.run not in self._runs:
                continue
            if value is None and key.batch is None:
                del self._runs[key.run]
            elif value is not None:
                raise ConfigError(
                    f"another replay of this topic with the id {self.id!r} is at work "
                    f"({self._runs[key.run]}): wait for its end"
                )

    def _listen(self, consumer: Consumer) -> None:
        """Answer runs that ask, and detect a run that has replaced this one."""
        try:
            while not self._done.is_set() and self.lost is None:
                message = consumer.poll(_WAIT)
                if message is None or message.error() is not None:
                    continue
                key, value = self._answered(message)
                if key is None or value is None or key.batch is not None or key.id != self.id:
                    continue
                if key.run != self._run and value.get("state") == "works":
                    self.lost = (
                        f"{value.get('who')} took this replay's place, because this one was "
                        f"silent for {self._silence:g} s; its progress is recorded"
                    )
        finally:
            consumer.close()

    def _answered(self, message: Message) -> tuple[Key | None, dict[str, Any] | None]:
        """Parse a record; if another run asks in it, answer that this run is there."""
        key, value = read(message)
        if (
            key is not None
            and (key.id, key.batch) == (self.id, None)
            and key.run != self._run
            and value is not None
            and value.get("state") == "asks"
        ):
            state = "works" if self._works else "asks"
            # Without an answer the other run replaces this one, and this run reads that.
            with suppress(KeySharedError):
                self._say({"state": f"{state}, too", "who": self._who})
        return key, value

    def _say(self, value: dict[str, Any]) -> int:
        """Write the state of this run, and return the offset of the record."""
        return self._write(Key(self.id, self._run, None), value)

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Record durably that these dead letters were replayed."""
        marks = dict(letters)
        self._number += 1
        try:
            self._write(Key(self.id, self._run, self._number), told_of(marks))
        except KeySharedError as error:
            self._mute = True
            raise KeySharedError(
                f"{error}; the last replayed letters could not be recorded and will be replayed "
                f"again. If this goes on, {_IN_A_FILE}"
            ) from error
        self._marks.update(marks.values())

    def forget(self, bounds: scan.Bounds) -> int:
        """Delete the batches whose dead letters are all deleted; return their number."""
        gone = [
            key
            for key, places in self._batches.items()
            if all(at.offset < bounds.get(at.partition, (0, 0))[0] for at in places)
        ]
        for key in gone:
            self._write(key, None)
            del self._batches[key]
        return len(gone)

    def _write(self, key: Key, value: dict[str, Any] | None, *, patient: bool = True) -> int:
        """Write a record, and return its offset once the broker has acknowledged it."""
        if self._writer is None:
            raise ValueError("the progress is not open")
        return self._writer.write(key.packed(), packed(value), patient=patient)

    def close(self) -> None:
        """Write that this run has ended, and stop its threads."""
        self._done.set()
        if self._listener is not None:
            self._listener.join()
            self._listener = None
        if self._writer is None:
            return
        if self._asked_at is not None and not self._mute:
            # Without this record, the next run waits for an answer of this one before it begins.
            with suppress(KeySharedError):
                self._write(Key(self.id, self._run, None), None, patient=False)
        self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
