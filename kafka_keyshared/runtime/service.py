"""``KeyShared``: the handler, the settings and the topics, put together and run."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from kafka_keyshared.config import Options, check_deadlines, client_conf, make_options
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.events import CommitAnswered, DeadLettered
from kafka_keyshared.core.status import Status
from kafka_keyshared.dlq.publish import DeadLetterPublisher
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.handlers import maker
from kafka_keyshared.runtime.kafka import KafkaClient
from kafka_keyshared.runtime.loop import Loop, Mail, Ports
from kafka_keyshared.runtime.mailbox import Mailbox
from kafka_keyshared.runtime.observe import MAX_POLL_INTERVAL_MS, Board, Observer, chained
from kafka_keyshared.runtime.patterns import topics_meant
from kafka_keyshared.runtime.rebalance import Rebalancer
from kafka_keyshared.runtime.stopping import StopReport, stop
from kafka_keyshared.runtime.threads import ThreadPool, WorkerSpec
from kafka_keyshared.web.metrics import Exposition, StatusCollector
from kafka_keyshared.web.server import HttpServer, Probes

log = logging.getLogger("kafka_keyshared")

H = TypeVar("H", bound=Callable[..., Any])
START_TIMEOUT = 8.0
HANDLER_CLOSE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Hooks:
    """For tools that watch an instance from inside: demo, bench and tests.

    ``client`` and ``pool`` are made in place of :class:`KafkaClient` and :class:`ThreadPool`;
    ``rebalanced`` is told of partitions that come and go; ``dead_lettered`` of every answer for a
    dead letter; ``stepped`` runs after every step of the loop.
    """

    client: Callable[..., KafkaClient] = KafkaClient
    pool: Callable[..., ThreadPool] = ThreadPool
    dead_lettered: Callable[[DeadLettered], None] | None = None
    rebalanced: Callable[[str, Sequence[Any]], None] | None = None
    stepped: Callable[[Loop], None] | None = None


class KeyShared:
    """Runs a handler over topics of a consumer group: each key in order, many keys at once.

    ``conf`` is the dict that ``confluent_kafka.Consumer`` takes. ``options`` are the fields of
    :class:`kafka_keyshared.config.Options`. ``dead_letter_on`` names exceptions that skip the
    attempts. Raises :class:`ConfigError` for what cannot work, before anything is consumed.

    Example::

        app = KeyShared({"bootstrap.servers": "localhost:9092", "group.id": "billing"},
                        topics=["orders"], workers=16)

        @app.handler
        def handle(record): ...

        app.run()
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        *,
        dead_letter_on: tuple[type[BaseException], ...] = (),
        hooks: Hooks = Hooks(),
        **options: Any,
    ) -> None:
        self.options: Options = make_options(options)
        self.conf = client_conf(conf)
        check_deadlines(self.options, self.conf)
        if isinstance(topics, str) or not topics:
            raise ConfigError(f"topics={topics!r}: give a list with at least one topic name")
        self.topics = list(topics)
        self._settings = self.options.subscription()
        if self._settings.dlq:
            self._refuse_own_dead_letters()
        self._commit_policy = self.options.commit_policy()
        self._dead_letter_on = dead_letter_on
        self._hooks = hooks
        self._handler: Callable[..., Any] | None = None
        self._signals = 0
        self._board = Board()
        self.http: HttpServer | None = None
        self.loop: Loop | None = None
        self.report: StopReport | None = None

    def _refuse_own_dead_letters(self, there: Sequence[str] = ()) -> None:
        """Refuse to read what is written here; ``there`` are topics that patterns may mean."""
        for topic in topics_meant(self.topics, there):
            dlq = self.options.dlq_topic(topic)
            if dlq in topics_meant(self.topics, [dlq]):
                raise ConfigError(
                    f"dlq: the dead letters of {topic!r} would go to {dlq!r}, which is consumed "
                    "here too, and come back without end; name another topic"
                )

    def handler(self, handler: H) -> H:
        """Use this function, or this class with ``handle(record)``, for every record.

        Raises :class:`ConfigError` when it cannot be called with one record.
        """
        maker(handler)
        self._handler = handler
        return handler

    def stop(self) -> None:
        """Ask the running instance to stop, from any thread. A second call makes it hurry."""
        self._signals += 1

    def status(self) -> Status | None:
        """Return what the instance looks like now, from any thread; None before it runs.

        It is at most a second old, or as old as the rebalance that the owner is in.
        """
        return self._board.read()

    def collector(self) -> StatusCollector:
        """Return the metrics for a ``prometheus_client`` registry of your own."""
        return StatusCollector(self.status, partitions=self.options.partition_metrics)

    def banner(self) -> str:
        """Return one line that says what runs."""
        options = self.options
        dlq = ", ".join(sorted({options.dlq_topic(topic) for topic in self.topics}))
        return (
            f"group {self.conf['group.id']} · topics {', '.join(self.topics)} · "
            f"{len(self._settings.workers)} threads · order per key and {options.order_scope} · "
            f"commit every {options.commit_interval:g} s · "
            f"{options.retry.attempts} attempts, then {self._settings.poison}"
            + (f" to {dlq}" if self._settings.dlq else "")
        )

    def run(self) -> int:
        """Run until stopped (SIGTERM, SIGINT or :meth:`stop`); return the exit status.

        0: everything that ran was drained and committed. 1: the stop timeout passed, the last
        commit was not acknowledged, or the instance had to halt.
        """
        if self._handler is None:
            raise ConfigError("there is no handler: put @app.handler on a function or a class")
        mailbox: Mailbox[Mail] = Mailbox()

        def answer(answered: CommitAnswered) -> None:
            mailbox.put(answered)

        try:
            client = self._hooks.client(self.conf, self.topics, answer)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client refuses its settings: {error}") from error
        try:
            return self._run(self._handler, client, mailbox)
        finally:
            client.close()
            if self.http is not None:
                self.http.close()
                self.http = None
            self._signals = 0  # the next run is not stopped by what stopped this one

    def _run(self, handler: Callable[..., Any], client: KafkaClient, mailbox: Mailbox[Mail]) -> int:
        self._serve_http()
        there = client.check_topics(START_TIMEOUT)
        publisher = self._publisher(mailbox, there)
        pool = self._hooks.pool(self._specs(handler), mailbox)
        ports = Ports(client, pool, mailbox, time.monotonic, publisher)
        self.loop = loop = Loop(Dispatcher([self._settings], self._commit_policy), ports)
        pool.start()
        rebalancer = Rebalancer(loop, self.options.revoke_deadline)
        observer = Observer(
            loop,
            self._board,
            group=str(self.conf["group.id"]),
            pool="thread",
            interval_ms=int(self.conf.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)),
        )
        rebalancer.observer = chained(observer.rebalanced, self._hooks.rebalanced)
        rebalancer.hurried = lambda: self._signals > 1
        rebalancer.subscribe()
        log.info("started: %s", self.banner())
        with _signals(self.stop):
            try:
                observer.enter("running")
                self._loop_until_stopped(loop, rebalancer, observer)
                observer.enter("stopping")
                report = stop(loop, self.options.stop_timeout, lambda: self._signals > 1)
            except BaseException as error:
                # What the core believes can no longer be trusted, so nothing more is committed.
                log.critical("stopping without a commit: %s: %s", type(error).__name__, error)
                pool.stop(0.0)
                raise
            finally:
                rebalancer.closing = True
            self.report = report
            if publisher is not None:
                publisher.close(0.0)
            running = pool.stop(HANDLER_CLOSE_TIMEOUT if report.clean else 0.2)
            observer.enter("stopped")
            log.info("%s", report.line())
        if running:
            log.error("handlers still running at exit: %s", ", ".join(running))
        return 0 if report.clean and loop.halted is None and not running else 1

    def _serve_http(self) -> None:
        if self.options.http_port is None:
            return
        exposition = Exposition(self.status, partitions=self.options.partition_metrics)
        probes = Probes(self._board.live, self._board.ready)
        server = HttpServer(self.options.http_host, self.options.http_port, exposition, probes)
        if server.start():
            self.http = server

    def _loop_until_stopped(self, loop: Loop, rebalancer: Rebalancer, observer: Observer) -> None:
        stepped = self._hooks.stepped
        while not self._signals and loop.halted is None:
            loop.step()
            rebalancer.step()
            observer.step()
            if rebalancer.failure is not None:
                raise rebalancer.failure
            if stepped is not None:
                stepped(loop)

    def _specs(self, handler: Callable[..., Any]) -> list[WorkerSpec]:
        make = maker(handler)
        return [
            WorkerSpec(
                self._settings.name,
                index,
                name,
                make,
                self._settings.order_scope,
                self._dead_letter_on,
            )
            for index, name in enumerate(self._settings.workers)
        ]

    def _publisher(
        self, mailbox: Mailbox[Mail], there: Sequence[str]
    ) -> DeadLetterPublisher | None:
        if not self._settings.dlq:
            return None
        self._refuse_own_dead_letters(there)
        sources = topics_meant(self.topics, there)
        wanted = sorted({self.options.dlq_topic(topic) for topic in sources})
        require_topics(self.conf, wanted, create=self.options.dlq_create, timeout=START_TIMEOUT)

        def post(answered: DeadLettered) -> None:
            if self._hooks.dead_lettered is not None:
                self._hooks.dead_lettered(answered)
            mailbox.put(answered)

        return DeadLetterPublisher(self.conf, self.options.dlq_topic, post)


class _signals:  # noqa: N801 - reads as a statement: with _signals(...)
    """Turns SIGTERM and SIGINT into calls while it is open; does nothing off the main thread."""

    def __init__(self, stop_now: Callable[[], None]) -> None:
        self._stop_now = stop_now
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def received(_number: int, _frame: FrameType | None) -> None:
            self._stop_now()

        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, received)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
