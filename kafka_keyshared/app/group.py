"""The group view of an app: sending and reading reports.

All of it runs on its own threads with its own clients. A failure there causes one log line and one
line of the group view.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from confluent_kafka import KafkaError

from kafka_keyshared.client.bounds import Moment, ReadingBound
from kafka_keyshared.client.log_reader import LogReader
from kafka_keyshared.client.patterns import topics_meant
from kafka_keyshared.client.report_writer import ReportWriter
from kafka_keyshared.client.standalone import outsider
from kafka_keyshared.client.topics import sizes_of
from kafka_keyshared.config import Options, connection_conf
from kafka_keyshared.core.status.environment import ReportCounts
from kafka_keyshared.dlq.topics import make_topic
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import partition_of
from kafka_keyshared.observability.web.group.pull_reports import AddressesEar
from kafka_keyshared.observability.web.group.report import (
    InstanceReport,
    UnreadableReportError,
    Who,
    key_of,
    packed,
    report_of,
    unpacked,
)
from kafka_keyshared.observability.web.group.subscribe import GroupListener, News, ReportSource
from kafka_keyshared.observability.web.group.view import FORGOTTEN, Looker
from kafka_keyshared.status import Status

log = log_of("kafka_keyshared.group")

LAST_WORD_WITHIN = 3.0
"""Seconds that a stop waits for the last message. Without it others see the instance as silent."""

FIRST_WORD_WITHIN = 10.0
"""Seconds to wait for the first write of a report, which creates the topic if asked to."""

SAID_EVERY = 600.0
"""Seconds between two log lines about the same failure."""

TOPIC_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "3600000",
    "segment.ms": "600000",
}
"""Settings of a created topic. Reports older than FORGOTTEN are never read."""
CLEANUP = f"cleanup.policy={TOPIC_CONFIG['cleanup.policy']}"


def refuse_own_topic(options: Options, topics: Sequence[str]) -> None:
    """Refuse to consume the topic of the group view."""
    topic = options.group_view_topic
    if topic is not None and topic in topics_meant(topics, [topic]):
        raise ConfigError(
            f"group_view_topic={topic!r} is consumed here too, so the handler would get every beat "
            "as a record; name another topic"
        )


class ReportSender:
    """Sends this instance's report to the group at intervals, on its own thread."""

    def __init__(
        self,
        report: Callable[[], InstanceReport | None],
        writer: ReportWriter,
        key: bytes,
        every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._writer = writer
        self._key = key
        self._every = every
        self._clock = clock
        self._seldom = Seldom(log, clock, SAID_EVERY)
        self._said = False
        self.tried = threading.Event()
        self._ended = threading.Event()
        self._stopped_cleanly = False
        self._written = self._failed = 0
        self._failing: tuple[float, str] | None = None
        self._thread = threading.Thread(target=self._run, name="keyshared-group", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reports(self) -> ReportCounts:
        """Return the counts of written and failed reports; any thread may call it."""
        failing = self._failing
        since, error = (None, "") if failing is None else failing
        return ReportCounts(
            written=self._written,
            failed=self._failed,
            failing_seconds=None if since is None else self._clock() - since,
            error=error,
        )

    def trouble(self) -> str:
        """Return why other instances get no reports of this one; empty while they do."""
        failing = self._failing
        return (
            ""
            if failing is None
            else f"the other instances get no reports of this one: {failing[1]}"
        )

    def close(self, *, clean: bool) -> None:
        """Stop sending reports. After a clean stop a last message tells that the instance left."""
        self._stopped_cleanly = clean
        self._ended.set()
        self._thread.join(LAST_WORD_WITHIN)

    def _run(self) -> None:
        told = False
        while not self._ended.is_set():
            report = self._report()
            if report is not None:
                self._tell(packed(report))
                told = True
                self.tried.set()
            self._ended.wait(self._every if told else min(1.0, self._every))
        if told and self._stopped_cleanly:
            self._tell(None)

    def _tell(self, word: bytes | None) -> None:
        try:
            self._writer.write(self._key, word)
        except Exception as error:  # noqa: BLE001 - the thread has to go on
            # A failure here must not affect the instance: consuming matters more than the view.
            reason = str(error) if isinstance(error, KeySharedError) else repr(error)
            self._failed += 1
            since = self._clock() if self._failing is None else self._failing[0]
            self._failing = since, reason
            self._said |= self._seldom.warning(
                reason,
                f"the report of this instance was not written: {reason}. Records are still "
                f"consumed, and the write is retried every {self._every:g} s (group_view_topic)",
            )
            return
        self._written += 1
        self._failing = None
        if self._said:
            log.info("the reports of this instance are written again")
            self._said = False


class TopicEar:
    """Reads recent reports from a topic, and then new ones."""

    def __init__(self, conf: Mapping[str, Any], topic: str, group: str) -> None:
        self._group = f"{group}/".encode()
        since = Moment(int((time.time() - FORGOTTEN) * 1000))
        bounds = (ReadingBound("group_view", since), None)
        self._log = LogReader(connection_conf(conf), [topic], bounds, log.debug, time.monotonic)
        try:
            self._behind = set(self._log.open())
        except BaseException:
            self._log.close()
            raise
        self.troubles: tuple[str, ...] = ()

    @property
    def caught_up(self) -> bool:
        """Return whether the end of the log was reached."""
        return not self._behind

    def hear(self, timeout: float) -> Iterable[News]:
        """Return the news received."""
        found, events = [], []
        for record in self._log.take(timeout):
            error = record.error()
            if error is None:
                news = self._news(record)
                if news is not None:
                    found.append(news)
                continue
            events.append(record)
            if error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(partition_of(record))
        self._log.heard(events)
        return found

    def _news(self, record: Any) -> News | None:
        key, value = record.key(), record.value()
        if not isinstance(key, bytes) or not key.startswith(self._group):
            return None  # of another group
        if value is None:
            return News(key, None)
        try:
            report = unpacked(value)
        except UnreadableReportError as error:
            self.troubles = (f"{key.decode('utf-8', 'replace')[:200]} is not understood: {error}",)
            return None
        if key_of(report.group, report.instance) != key:
            return None  # the key names another instance than the report
        _, milliseconds = record.timestamp()
        ago = 0.0 if self.caught_up else max(0.0, time.time() - milliseconds / 1000)
        return News(key, report, ago)

    def close(self) -> None:
        """Stop reading."""
        self._log.close()


class GroupLink:
    """The group connection of one run: the view in :attr:`group`, and the sent reports.

    ``glance`` returns the status, ``url`` the address of the console. ``token`` is presented to the
    configured addresses.
    """

    def __init__(
        self,
        options: Options,
        conf: Mapping[str, Any],
        glance: Callable[[], Status | None],
        url: Callable[[], str],
        token: str | None,
    ) -> None:
        self._options = options
        self._conf = conf
        self._glance = glance
        self._url = url
        self._host = host = socket.gethostname()
        self._instance = f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        name = str(conf["group.id"])
        self.telling: ReportSender | None = None
        place: ReportSource | None = None
        topic = options.group_view_topic
        if topic is not None:
            writer = ReportWriter(conf, topic, self._make)
            key, every = key_of(name, self._instance), options.group_view_interval
            self.telling = ReportSender(self.report, writer, key, every)
            place = ReportSource("topic", topic, lambda: self._ear(topic, name))
        elif addresses := options.group_view_addresses:
            place = ReportSource(
                "addresses",
                ", ".join(addresses),
                lambda: AddressesEar(addresses, name, token, self._instance),
            )
        self.group = GroupListener(
            self.report,
            place,
            Looker(name, self._instance, host),
            sizes=self._sizes,
            trouble=lambda: "" if self.telling is None else self.telling.trouble(),
            seldom=Seldom(log, every=SAID_EVERY),
        )

    def start(self) -> None:
        """Start sending reports, if that is configured."""
        if self.telling is not None:
            self.telling.start()

    def part(self, over: Callable[[], bool]) -> None:
        """Wait briefly so that instances polling this one learn of the stop, unless ``over``."""
        self.group.part(over)

    def close(self, *, clean: bool) -> None:
        """End. ``clean`` says whether others are informed that the instance has stopped."""
        self.group.close()
        if self.telling is not None:
            self.telling.close(clean=clean)

    def reports(self) -> ReportCounts:
        """Return the counts of the reports sent."""
        return ReportCounts() if self.telling is None else self.telling.reports()

    def report(self) -> InstanceReport | None:
        """Return this instance's report; None before there is a status."""
        status = self._glance()
        if status is None:
            return None
        who = Who(
            instance=self._instance,
            name=str(self._conf.get("group.instance.id") or self._host),
            host=self._host,
            pid=os.getpid(),
            url=self._options.console_url or self._url(),
            software=version("kafka-keyshared"),
        )
        return report_of(status, who, self._options.group_view_interval)

    def _ear(self, topic: str, group: str) -> TopicEar:
        if self.telling is not None:
            self.telling.tried.wait(FIRST_WORD_WITHIN)
        return TopicEar(self._conf, topic, group)

    def _make(self) -> None:
        topic = str(self._options.group_view_topic)
        if not self._options.group_view_create:
            raise TopicMissingError(
                f"topic {topic!r} does not exist, or this user may not see it: create it, with "
                f"{CLEANUP}, or set group_view_create; and allow WRITE and READ on topic {topic}"
            )
        try:
            make_topic(self._conf, topic, TOPIC_CONFIG)
        except TopicMissingError as error:
            raise TopicMissingError(
                f"{str(error).rstrip('.')}; create it, with {CLEANUP}, or allow CREATE on topic "
                f"{topic}; and allow WRITE and READ on topic {topic}"
            ) from error

    def _sizes(self, topics: Sequence[str]) -> Mapping[str, int]:
        consumer = outsider(connection_conf(self._conf), [])
        try:
            return sizes_of(consumer, topics)
        finally:
            consumer.close()
