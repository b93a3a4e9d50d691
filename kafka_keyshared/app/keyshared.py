"""``KeyShared``: a handler with its settings and topics, ready to run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self, TypeVar, Unpack

import confluent_kafka
from confluent_kafka import KafkaException

from kafka_keyshared.app.async_run import awaited_run, refuse_in_a_handlers_task
from kafka_keyshared.app.banner import banner
from kafka_keyshared.app.commands import Orderable
from kafka_keyshared.app.dlq_setup import publisher, refuse_own, seen_by
from kafka_keyshared.app.error_rules import error_rules
from kafka_keyshared.app.group import refuse_own_topic
from kafka_keyshared.app.handler_binding import Handling
from kafka_keyshared.app.hooks import NO_HOOKS, Hooks
from kafka_keyshared.app.http_commands import acting_on
from kafka_keyshared.app.http_servers import Looked, Served, check_served
from kafka_keyshared.app.members import PullMember
from kafka_keyshared.app.pools import own_pool, pull_pool
from kafka_keyshared.client.consumer import Callback, Subscribed
from kafka_keyshared.client.consumer_takeover import Wrapped, take_over
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.patterns import topics_meant
from kafka_keyshared.clock import Clock
from kafka_keyshared.config import (
    Layers,
    Options,
    check_deadlines,
    client_conf,
    make_options,
    overlay,
)
from kafka_keyshared.config.core_settings import commit_policy, subscription_settings
from kafka_keyshared.config.error_classes import by_path
from kafka_keyshared.config.option_types import GivenOptions
from kafka_keyshared.config.properties import ALIASES
from kafka_keyshared.config.show import program_layers
from kafka_keyshared.config.worker_options import PROCESS
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.coroutines.event_loop import CallersLoop, Host
from kafka_keyshared.executors.handling.decoding import Deserializer
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.former_names import RefusesFormerNames
from kafka_keyshared.logs import check_logging, log_of
from kafka_keyshared.platform import gc_tuning
from kafka_keyshared.platform.green import refuse_green_threads
from kafka_keyshared.platform.reentry_guard import refuse_inside_handler, refuse_to_begin
from kafka_keyshared.platform.signals import stop_signals
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.runtime.ports import Ports
from kafka_keyshared.runtime.rights import Subject, user_in
from kafka_keyshared.runtime.run_guard import Ending
from kafka_keyshared.runtime.shutdown import StopReport
from kafka_keyshared.runtime.status_board import (
    MAX_POLL_INTERVAL_MS,
    Observer,
    StatusBoard,
    chained,
)

log = log_of("kafka_keyshared")

H = TypeVar("H", bound=Callable[..., Any])
START_TIMEOUT = 8.0

CLOCK = Clock()
"""The clock and the random numbers of everything below."""


class KeyShared(Handling, Orderable, Looked, RefusesFormerNames):
    """Runs a handler over topics of a consumer group: each key in order, many keys at once.

    - ``conf`` is the dict that ``confluent_kafka.Consumer`` takes.
    - ``options`` are the fields of :class:`kafka_keyshared.config.Options`. ``key`` may also be a
      function of the record (see :mod:`kafka_keyshared.config.keys`).
    - ``dead_letter_on`` names exceptions that skip the remaining attempts.
    - ``on_assign``, ``on_revoke`` and ``on_lost`` are called as by the client, after this package
      has done its own part. Exceptions they raise are caught.
    - ``key_deserializer`` and ``value_deserializer`` are what a ``DeserializingConsumer`` takes.
      Handlers then get decoded records.

    Raises :class:`ConfigError` for settings that cannot work, before anything is consumed.

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
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        hooks: Hooks = NO_HOOKS,
        **options: Unpack[GivenOptions],
    ) -> None:
        refuse_green_threads("KeyShared()")
        self.dead_letter_on = dead_letter_on
        self.serdes = (key_deserializer, value_deserializer)
        self.hooks = hooks
        self._callbacks = (on_assign, on_revoke, on_lost)
        self._of_a_consumer = False
        self.layers: Layers | None = None
        self.instance: Instance | None = None
        self.report: StopReport | None = None
        self._configure(conf, topics, options)

    def _configure(
        self, conf: Mapping[str, Any], topics: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        """Apply settings; raise :class:`ConfigError` for settings that cannot work."""
        self._given = given = {**options}
        values, classes = by_path(given)
        key = values.pop("key") if callable(values.get("key")) else None
        self.options: Options = make_options(values)
        self.conf = client_conf(conf)
        check_deadlines(self.options, self.conf)
        if isinstance(topics, str) or not topics:
            raise ConfigError(f"topics={topics!r}: give a list with at least one topic name")
        self.topics = list(topics)
        self.subscription = subscription_settings(self.options)
        if key is not None:
            # it imports Avro, which most programs do not need
            from kafka_keyshared.config.keys import key_function

            self.subscription = replace(self.subscription, key_of=key_function(key))
        if self.subscription.dlq:
            refuse_own(self.options, self.topics)
        self.rules = error_rules(self.options, self.dead_letter_on, classes)
        self._commit_policy = commit_policy(self.options)
        self._wrapped = Wrapped(self.conf, Subscribed(topics, *self._callbacks))
        self.workers_unsaid = "workers" not in given
        self._pull = pull_pool(self.options, self.subscription.name, CLOCK, self.serdes)
        self._ending = Ending(self.options.stop_timeout, CLOCK)
        self._board = StatusBoard(
            CLOCK,
            keys=self.options.show_keys,
            unready_when_unauthorized=self.options.unready_when_unauthorized,
            unready_on_outage=self.options.unready_on_outage,
        )
        check_served(self.options)
        refuse_own_topic(self.options, self.topics)
        self._served = Served(self.options, self._board)

    def override(self, layers: Layers, origin: str) -> None:
        """Override the app's settings by those of a file and the environment; before :meth:`run`.

        A deployment thereby decides brokers, group, ports and workers of an app whose handler and
        key functions are code. ``origin`` names the source of the app's own settings, for reports
        of the effective settings. In a table such as ``retry`` each setting is overridden
        separately.

        Raises :class:`ConfigError` for settings that do not fit together. Raises it also for an app
        that runs or has members. An app made from a consumer keeps the consumer's settings and is
        refused too.
        """
        if self.instance is not None:
            raise ConfigError(f"{origin}: settings can be overridden only before the app runs")
        if self._of_a_consumer or (self._pull is not None and self._pull.cells):
            raise ConfigError(
                f"{origin}: an app with members, or around a consumer, keeps the settings that it "
                "was made with; make it from kafka_keyshared.config.layered() instead"
            )
        own = program_layers(self.options, self.conf, self.topics, origin)
        called, batches = self.called, self.batches
        self._configure(
            overlay(
                {ALIASES.get(name, name): value for name, value in own.conf.items()}, layers.conf
            ),
            layers.topics or self.topics,
            overlay(self._given, layers.options),
        )
        if called is not None and batches is not None:
            self.batch_handler(**batches._asdict())(called)
        elif called is not None:
            self.handler(called)
        in_force = program_layers(self.options, self.conf, self.topics, origin)
        self.layers = replace(in_force, origins={**own.origins, **layers.origins})

    @classmethod
    def wrap(
        cls,
        consumer: confluent_kafka.Consumer,
        *,
        conf: Mapping[str, Any] | None = None,
        topics: Sequence[str] | None = None,
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
        dead_letter_on: tuple[type[BaseException], ...] = (),
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **options: Unpack[GivenOptions],
    ) -> Self:
        """Return an app with a consumer's settings and topics; it must not have polled yet.

        A :class:`kafka_keyshared.Consumer` knows its settings, topics and callbacks. A plain
        ``confluent_kafka.Consumer`` needs ``conf``, the same dict again, ``topics``, and the
        callbacks that ``subscribe`` would get. ``options`` are what :class:`KeyShared` takes.

        The app runs a client of its own with these settings. The consumer stays yours. While the
        app runs it joins no group and refuses calls that would disturb the app. It may be closed
        after :meth:`run`.

        Raises :class:`ConfigError` for a consumer that would commit unfinished records, or that has
        joined its group.
        """
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        refuse_green_threads("KeyShared.wrap()")
        wrapped = take_over(consumer, conf, topics, callbacks)
        app = cls(
            wrapped.conf,
            wrapped.subscribed.topics,
            dead_letter_on=dead_letter_on,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        app._wrapped, app._of_a_consumer = wrapped, True
        wrapped.take(None)
        return app

    def join(
        self,
        name: str,
        *,
        filters: Sequence[str | bytes] | None = None,
        ranges: str | Sequence[tuple[int, int]] | None = None,
    ) -> PullMember:
        """Add a member that asks for records, under a name of its own; before :meth:`run`.

        The app needs ``workers="pull"`` and no handler. A record that a member holds for longer
        than ``ack_timeout`` (30 s by default) counts as a failed attempt. A member that closes
        returns its records, and they run again, in order, at the remaining members. ``filters`` are
        patterns of the keys that it accepts, by default every key. ``ranges`` are its slots with
        ``routing="sticky"``: ``"0-99,200-299"``, or pairs of first and last one.
        """
        routing = self.subscription.routing.with_member(name, filters, ranges)
        cell = self.join_cell(name)
        self.subscription = replace(self.subscription, routing=routing)
        return PullMember(cell)

    def join_cell(self, name: str) -> Cell:
        """Add a member's cell, the basis of :meth:`join` and ``split``."""
        if self._pull is None:
            raise ConfigError(
                f"join({name!r}): the app has workers={self.options.workers!r}, which need a "
                "handler; make it with workers='pull'"
            )
        if self.instance is not None:
            raise ConfigError(f"join({name!r}): members join before the app runs")
        if not name or name in self._pull.names():
            raise ConfigError(f"join({name!r}): give each member a name of its own")
        return self._pull.join(name)

    def stop(self) -> None:
        """Ask the running instance to stop, from any thread. A second call hurries it."""
        self._ending.ask()

    @property
    def callbacks(self) -> tuple[str, ...]:
        """The names of the rebalance callbacks that the app was given."""
        given, names = self._wrapped.subscribed, ("on_assign", "on_revoke", "on_lost")
        return tuple(name for name in names if getattr(given, name) is not None)

    def banner(self) -> str:
        """Return one line that describes the app."""
        group = str(self.conf["group.id"])
        return banner(group, self.topics, self.options, self.subscription)

    def run(self) -> int:
        """Run until stopped (SIGTERM, SIGINT or :meth:`stop`); return the exit status.

        - 0: every running record was drained and committed.
        - 1: the stop timeout passed, the last commit was not acknowledged, the group was not left,
          or the instance had to halt.

        It returns within ``stop_timeout`` plus one second of the stop request, even if a call
        hangs. A hanging handler or callback is named in the log and abandoned on its thread, which
        ends with the program.
        """
        refuse_inside_handler("run()")
        return self._until_over(self._begin("run()"), stop_signals(self.stop))

    async def run_async(self) -> int:
        """Run until stopped, on the event loop that awaits this; return the exit status.

        Coroutines run on that loop, next to its other tasks. Everything else, including the status,
        is as in :meth:`run`. Cancelling the awaiting task stops the app as SIGTERM would, and then
        ``CancelledError`` is raised. A second cancellation hurries the stop. SIGTERM and SIGINT
        stay with an existing handler. Raises the error that the run failed with.
        """
        refuse_in_a_handlers_task("run_async()")
        ending, host = self._begin("run_async()"), CallersLoop()

        async def leave() -> None:
            pool = None if ending.instance is None else ending.instance.ports.pool
            if isinstance(pool, TaskPool):
                await pool.quit()

        return await awaited_run(
            lambda: self._until_over(ending, nullcontext(), host), ending.ask, leave
        )

    def _begin(self, call: str) -> Ending:
        refuse_to_begin(call)
        check_logging()
        self._check_workers()
        ending = self._ending
        ending.take()
        self.report = None
        return ending

    def _until_over(
        self, ending: Ending, signals: AbstractContextManager[None], host: Host | None = None
    ) -> int:
        try:
            with signals, gc_tuning.in_flight(self.subscription.window_records):
                status = ending.run(lambda: self._run_client(ending, host))
                if ending.clean:
                    self._served.part(ending.over)
                return status
        finally:
            self.report = ending.report
            if ending.instance is not None:
                ending.instance.refuse_orders()  # also when the owner was abandoned
                if ending.given_up and self.options.pool == PROCESS:
                    # kills the processes, since the owner cannot
                    ending.instance.ports.pool.stop(0.0)
            self._board.phase = "stopped"
            self._wrapped.give_back()
            if self._pull is not None:
                self._pull.stop(0.0)  # also after a failed start, so that no member waits for ever
            self._served.close(wait=not ending.given_up, clean=ending.clean)
            self._ending = ending.next()  # a stop request for this run must not stop the next

    def _run_client(self, ending: Ending, host: Host | None) -> int:
        mailbox: Mailbox[Mail] = Mailbox() if self._pull is None else self._pull.mailbox
        try:
            client = self.hooks.client(self.conf, self.topics, mailbox.put)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client refuses its settings: {error}") from error
        try:

            def take() -> None:
                self._wrapped.take(client.consumer, client.calls)
                users = self._wrapped.callbacks(client.consumer, client.calls, client.admin)
                client.users = ending.among(users)

            client.renewed = take
            take()
            status = self._run(client, mailbox, ending, host)
        finally:
            patience = ending.leaving(sys.exception() or client.ending)
            ending.left_group(left=client.close(patience))
        if client.ending is not None:
            raise client.ending
        return status

    def _check_workers(self) -> None:
        if self._pull is None:
            if self.called is None:
                raise ConfigError("there is no handler: put @app.handler on a function or a class")
            return
        if self.called is not None:
            raise ConfigError(
                f"workers={self.options.workers!r} and a handler: members ask for records and "
                "settle them themselves; leave one of the two out"
            )
        if not self._pull.cells:
            raise ConfigError("workers='pull' and no member: join() at least one before run()")
        if self.instance is not None:
            raise ConfigError("an app with members runs once: make another one")
        self.subscription = replace(self.subscription, workers=self._pull.names())
        self.subscription.check()

    def _connect(self, instance: Instance, client: KafkaClient, topics: Sequence[str]) -> None:
        """Connect the instance with the app's data, and the client with the instance."""
        if self._pull is not None and self._pull.ascending:
            instance.loop.ends.deliver = self._pull.end_of_partition
        client.start_at = instance.rebalancer.start_at
        client.withhold = instance.rebalancer.withhold
        instance.loop.rights.subject = Subject(
            topics,
            str(self.conf["group.id"]),
            user_in(self.conf),
            self.options.authorization_timeout,
        )

    def _run(
        self, client: KafkaClient, mailbox: Mailbox[Mail], ending: Ending, host: Host | None
    ) -> int:
        file, keys = self.options.http_token_file, self.options.show_keys
        acting = acting_on(self, file, keys=keys)
        made = program_layers(self.options, self.conf, self.topics, "the program")
        self._served.start(acting, self.layers or made, self.conf)
        topics = topics_meant(self.topics, client.check_topics(START_TIMEOUT))
        letters = None
        if self.subscription.dlq:
            refuse_own(self.options, self.topics, topics)
            post = seen_by(self.hooks.dead_lettered, mailbox.put)
            letters = publisher(self.conf, self.options, topics, post, START_TIMEOUT)
        specs = self.worker_specs(self.hooks.called, self.hooks.outputs)
        pool = self._pull or own_pool(
            self.options, specs, mailbox, CLOCK, self.hooks.pool, host=host, batches=self.batches
        )
        ports = Ports(client, pool, mailbox, CLOCK, letters)
        checked = self.options.check_invariants
        core = Dispatcher(
            [self.subscription], self._commit_policy, check_invariants=checked, careful=True
        )
        if self.waits is not None:
            self.waits.learn(core.meters.arrivals.at, core.lanes(self.subscription.name))
        deadline = self.options.revoke_deadline
        self.instance = instance = Instance(core, ports, revoke_deadline=deadline)
        ending.instance = instance
        self._connect(instance, client, topics)
        instance.start()
        observer = Observer(
            instance.loop,
            self._board,
            group=str(self.conf["group.id"]),
            pool=self.options.pool,
            interval_ms=int(self.conf.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)),
            topics=topics,
            standstill=ending.standstill,
        )
        instance.watcher = observer
        instance.rebalancer.observer = chained(observer.rebalanced, self.hooks.rebalanced)
        instance.rebalancer.hurried = ending.over
        instance.rebalancer.turning = self._board.turning
        instance.loop.on_dropped = self.hooks.dropped
        if ending.given_up:  # while it was starting: no later call would stop it
            return 1
        instance.join()
        log.info("started: %s", self.banner())
        stepped, view = self.hooks.stepped, InstanceView(instance.loop)
        try:
            observer.enter("running")
            instance.run(
                lambda: ending.asked or client.ending,
                None if stepped is None else lambda: stepped(view),
            )
            observer.enter("stopping")
            return ending.finish(instance)
        except BaseException as error:
            # The core's state can no longer be trusted, so nothing more is committed.
            log.critical("stopping without a commit: %s: %s", type(error).__name__, error)
            pool.stop(0.0)
            raise
        finally:
            instance.close()
