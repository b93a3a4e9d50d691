"""Which letters were replayed, kept in Kafka beside them: in the compacted topic ``<DLQ>.replays``.

All of it is in partition 0, so that everybody sees it in one order. A key says whose record it is:
``{"keyshared": "replay", "id": ..., "run": ...}``, and of a batch of letters also its number. The
value of a batch is what a line of :mod:`.journal` is. The value of a run, without a number, says
who it is and whether it ``asks`` or ``works``; a run that ends deletes it.

Of one id one run works at a time. Who begins asks, and listens to those that asked before and have
not said that they ended. One that is there answers, and the later one is refused. One that is
silent for :data:`SILENCE` seconds was killed, and the later one takes its place; should it be only
very slow, it reads that, sends nothing more, and still writes down what it had sent.
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
from kafka_keyshared.dlq.marks import marks_in, places_in, told_of
from kafka_keyshared.dlq.patience import Patience
from kafka_keyshared.dlq.progress_record import Key, packed, read, this_run
from kafka_keyshared.dlq.topics import has_controller, make_topic
from kafka_keyshared.dlq.writing import Writer
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError

DEFAULT_ID = "default"

SILENCE = 15.0
"""Seconds for which somebody who is at work may leave a question without an answer."""

_PARTITION = 0
_WAIT = 0.2
_NEEDED = (
    "nothing was replayed, because it could not be written down. That needs READ and WRITE on this "
    "topic, and CREATE unless somebody has made it (one partition, cleanup.policy=compact)"
)
_IN_A_FILE = "keep the progress in a file with --state PATH"


def progress_topic(topic: str) -> str:
    """Return the topic that has the progress of the replays of a dead-letter topic."""
    return f"{topic}.replays"


class KafkaProgress:
    """The progress of the replays with one id of one dead-letter topic.

    :meth:`load` it to look, :meth:`open` it to add. ``connect`` makes a consumer of no group. Both
    raise what :mod:`.scan` raises, and :class:`ConfigError` where the topic cannot be used.
    ``lost`` says why this run has to stop, once another one has taken its place.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        connect: Callable[[], Consumer],
        topic: str,
        id_: str,
        *,
        patience: Patience | None = None,
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
        self._patience = patience or Patience(clock)
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
        # The broker has not taken what mattered, so it is not told of the end either.
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

    # --- looking ---

    def load(self) -> Self:
        """Read what was replayed; a topic that is not there says that nothing was."""
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
        """Take a record in; one that is not of a replay is remembered as that."""
        key, value = read(message)
        if key is None:
            self.foreign.append(f"{self.topic}-{message.partition()}@{message.offset()}")
        elif key.batch is not None:
            if value is None:
                # Its letters are gone, so what is known of them does no harm until it is, too.
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
        """Return why the broker forgets in time what is kept here, when it says that it does."""
        if not self.there:
            return None
        admin = AdminClient({**connection_conf(self._conf), "log_level": 2})
        if not has_controller(admin):
            return None  # an embedded cluster keeps no configuration
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            found = admin.describe_configs([asked], request_timeout=5)[asked].result(10)
        except (KafkaException, TimeoutError):
            return None  # not everybody may ask
        policy = found["cleanup.policy"].value
        if "delete" not in policy or found["retention.ms"].value == "-1":
            return None
        hours = int(found["retention.ms"].value) / 3_600_000
        return (
            f"{self.topic} has cleanup.policy={policy}, so after {hours:,.0f} h nothing of this is "
            "known and letters are sent again: set cleanup.policy=compact"
        )

    # --- adding ---

    def open(self, note: Callable[[str], None] = lambda _: None) -> Self:
        """Begin to write, which one run may at a time.

        ``note`` is told what takes long. Raises :class:`ConfigError` while another run with this
        id is at work, when the topic is somebody else's, and when this user may not make it, read
        it or write to it.
        """
        try:
            self._load()
            self._require_own()
            if not self.there:
                make_topic(self._conf, self.topic, {"cleanup.policy": "compact"})
            self._writer = Writer(self._conf, self.topic, _PARTITION, self._patience, self._clock)
            # The first word shows whether this user may write at all.
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
                f"{self.foreign[0]}: it seems to be somebody else's"
            )

    def _await_silence(self, consumer: Consumer, note: Callable[[str], None]) -> None:
        """Return when nobody who asked before is there any more."""
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
        """Answer who asks, and see whether somebody has taken this run's place."""
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
                        f"silent for {self._silence:g} s; what it had sent is written down"
                    )
        finally:
            consumer.close()

    def _answered(self, message: Message) -> tuple[Key | None, dict[str, Any] | None]:
        """Return what a record says, after telling who asks in it that this run is there."""
        key, value = read(message)
        if (
            key is not None
            and (key.id, key.batch) == (self.id, None)
            and key.run != self._run
            and value is not None
            and value.get("state") == "asks"
        ):
            state = "works" if self._works else "asks"
            # Whoever gets no answer takes this run's place, and it hears of that.
            with suppress(KeySharedError):
                self._say({"state": f"{state}, too", "who": self._who})
        return key, value

    def _say(self, value: dict[str, Any]) -> int:
        """Write what this run is doing, and return where that stands."""
        return self._write(Key(self.id, self._run, None), value)

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Keep for good that these letters were replayed."""
        marks = dict(letters)
        self._number += 1
        try:
            self._write(Key(self.id, self._run, self._number), told_of(marks))
        except KeySharedError as error:
            self._mute = True
            raise KeySharedError(
                f"{error}; what was replayed last could not be written down and will be replayed "
                f"again. If this goes on, {_IN_A_FILE}"
            ) from error
        self._marks.update(marks.values())

    def forget(self, bounds: scan.Bounds) -> int:
        """Delete the batches of which no letter is there any more; return how many."""
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
        """Say that this run has ended, and let go."""
        self._done.set()
        if self._listener is not None:
            self._listener.join()
            self._listener = None
        if self._writer is None:
            return
        if self._asked_at is not None and not self._mute:
            # Without it, the next run listens whether this one is there before it begins.
            with suppress(KeySharedError):
                self._write(Key(self.id, self._run, None), None, patient=False)
        self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
