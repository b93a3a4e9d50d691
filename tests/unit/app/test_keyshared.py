"""What ``KeyShared`` refuses before anything is consumed, and what it says of itself."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared.app.banner import banner
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.clock import Clock
from kafka_keyshared.config import Options, RetryOptions
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.runtime.instance_view import InstanceView
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record


@pytest.mark.parametrize(
    ("conf", "options", "named"),
    [
        ({"group.id": None}, {}, r"'group\.id' is missing"),
        ({"group.id": ""}, {}, r"'group\.id' is missing"),
        ({"bootstrap.servers": ""}, {}, r"'bootstrap\.servers' is missing"),
        ({"enable.auto.commit": True}, {}, r"'enable\.auto\.commit' is True"),
        ({"enable.auto.commit": "true"}, {}, r"'enable\.auto\.commit' is 'true'"),
        ({"enable.auto.offset.store": 1}, {}, r"'enable\.auto\.offset\.store'"),
        ({}, {"workers": 0}, "workers=0"),
        ({}, {"workers": "thread:0"}, "workers='thread:0'"),
        ({}, {"workers": "fibre:3"}, "workers='fibre:3'"),
        ({}, {"workers": -4}, "workers=-4"),
        (
            {},
            {"on_exhausted": "dead_letter"},
            "on_exhausted='dead_letter' needs a dead-letter topic",
        ),
        ({}, {"on_exhausted": "ignore"}, "on_exhausted"),
        ({}, {"revoke_deadline": 200.0}, r"revoke_deadline=200 s is above 149\.5 s"),
        (
            {"max.poll.interval.ms": 10_000, "session.timeout.ms": 6_000},
            {"revoke_deadline": 4.6},
            r"above 4\.5 s",
        ),
        ({}, {"revoke_deadline": -1.0}, "revoke_deadline=-1"),
        ({}, {"stop_timeout": 0.0}, "stop_timeout=0"),
        ({}, {"commit_interval": 0.0}, r"commit_interval=0\.0"),
        ({}, {"retry": {"attempts": 0}}, r"retry\.attempts=0"),
        ({}, {"retry": {"jitter": 1.5}}, r"retry\.jitter=1\.5"),
        ({}, {"retry": {"tries": 3}}, "tries"),
        ({}, {"prefetch_records": 0}, "prefetch_records=0"),
        ({}, {"one_in_flight_per_key": 2}, "one_in_flight_per_key=2: give true or false"),
        ({}, {"order_scope": "galaxy"}, "order_scope"),
        ({}, {"wokers": 3}, "wokers"),
        ({}, {"dlq": "orders"}, "dlq: the dead letters of 'orders' would go to 'orders'"),
    ],
)
def test_what_cannot_work_is_refused_by_the_name_of_the_setting(
    conf: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        KeyShared({**CONF, **conf}, ["orders"], **options)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("topics", [[], "orders"])
def test_topics_are_a_list_with_something_in_it(topics: Any) -> None:
    with pytest.raises(ConfigError, match="topics="):
        KeyShared(CONF, topics)


class Keeping:
    """A handler class, which may keep something of its records."""

    def handle(self, record: Any) -> None: ...


def test_functions_share_all_keys_and_a_handler_class_and_members_have_keys_of_their_own() -> None:
    assert KeyShared(CONF, topics=["orders"]).subscription.shares
    assert KeyShared(CONF, topics=["orders"], workers="asyncio:100").subscription.shares
    assert KeyShared(CONF, topics=["orders"], workers="process:2").subscription.shares
    app = KeyShared(CONF, topics=["orders"])
    app.handler(Keeping)
    assert not app.subscription.shares
    app.handler(Keeping().handle)
    assert app.subscription.shares
    assert not KeyShared(CONF, topics=["orders"], workers="pull").subscription.shares
    assert not KeyShared(CONF, topics=["orders"], workers="split:4").subscription.shares
    assert not KeyShared(CONF, topics=["orders"], new_workers_wait=True).subscription.shares


def test_a_run_without_a_handler_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no handler"):
        KeyShared(CONF, ["orders"]).run()


def test_a_setting_that_the_client_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.msec.*'fetch\.wait\.max\.ms'"):
        KeyShared({**CONF, "fetch.wait.max.msec": 3}, ["orders"])


@pytest.mark.parametrize("value", [0, "false", False])
def test_auto_commit_that_is_off_is_accepted(value: object) -> None:
    conf = KeyShared({**CONF, "enable.auto.commit": value}, ["orders"]).conf
    assert conf["enable.auto.commit"] == value
    assert conf["enable.auto.offset.store"] is False


def test_the_banner_names_what_runs() -> None:
    app = KeyShared(CONF, ["orders"], workers=3, dlq=True)
    assert "group billing" in app.banner()
    assert "3 threads" in app.banner()
    assert "dead_letter to orders.dlq" in app.banner()


class Watched(ThreadPool):
    """A pool that tells which workers were running at its end."""

    stopped: list[list[str]]

    def stop(self, timeout: float) -> list[str]:
        self.stopped.append(super().stop(timeout))
        return self.stopped[-1]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_broken_rule_ends_the_run_without_a_commit_and_starts_nothing_more(breaks: bool) -> None:
    """What was done is committed by a stop, and not by the end of an instance that is in doubt."""

    class Pool(Watched):
        stopped: list[list[str]] = []  # noqa: RUF012 - one class per test

    def stepped(view: InstanceView) -> None:
        if view.settled() < 2:
            return
        if breaks:
            raise InvariantError("planted")
        app.stop()

    broker = OfflineBroker(record(0), record(1), pool=Pool, stepped=stepped)
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks, workers=1, commit_interval=3_600.0)
    handled: list[int] = []

    def handle(record: Record) -> None:
        # Its owner may stand between two steps until both records are done: one commit, of both.
        assert broker.wait_for(0)
        handled.append(record.offset())

    app.handler(handle)
    if breaks:
        with pytest.raises(InvariantError, match="planted"):
            app.run()
    else:
        assert app.run() == 0
    assert handled == [0, 1]
    # Where the partition begins is committed as soon as its first records run.
    assert broker.positions() == ([0] if breaks else [0, 2])
    assert broker.closed == 1
    assert len(Pool.stopped) == 1


def test_an_exception_in_a_rebalance_callback_ends_the_run_after_the_poll() -> None:
    def broken(_what: str, _partitions: Sequence[TopicPartition]) -> None:
        raise InvariantError("planted")

    broker = OfflineBroker(rebalanced=broken)
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks)
    app.handler(lambda record: None)
    with pytest.raises(InvariantError, match="planted"):
        app.run()
    assert broker.closed == 1


def test_a_stop_before_the_first_record_is_clean() -> None:
    app = KeyShared(CONF, ["orders"], hooks=OfflineBroker(record(0)).hooks)
    app.handler(lambda record: None)
    app.stop()
    assert app.run() == 0
    assert app.report is not None
    assert app.report.line().endswith(
        "0 records received and left undone (they run at the next start)"
    )


def test_an_instance_that_had_to_halt_does_not_end_as_a_success() -> None:
    def halting(_view: InstanceView) -> None:
        assert app.instance is not None
        app.instance.loop.halted = "planted"

    app = KeyShared(CONF, ["orders"], hooks=OfflineBroker(stepped=halting).hooks)
    app.handler(lambda record: None)
    assert app.run() == 1
    assert app.report is not None
    assert app.report.clean, "all else went well"


def test_a_hook_is_shown_the_instance_and_gets_nothing_by_which_to_order_it_about() -> None:
    shown: list[tuple[int, set[str]]] = []

    def stepped(view: InstanceView) -> None:
        if view.settled() == 2:
            shown.append((view.held(), {name for name in dir(view) if not name.startswith("_")}))
            app.stop()

    broker = OfflineBroker(record(0), record(1), stepped=stepped)
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks, workers=1)
    app.handler(lambda record: None)
    assert app.run() == 0
    held, names = shown[0]
    assert held == 0
    counts = {"committed", "fetched", "held", "joined", "leased", "log_ends", "progress", "settled"}
    assert names == counts | {"partitions", "subscriptions"}


@pytest.mark.parametrize("end", ["stop", "halt", "break"])
def test_however_an_app_ends_whoever_waits_for_an_answer_gets_one(end: str) -> None:
    waiting: list[Future[None]] = []

    def never() -> Generator[None, None, None]:
        while True:
            yield

    def stepped(_view: InstanceView) -> None:
        assert app.instance is not None
        loop = app.instance.loop
        if not waiting:
            waiting.extend(loop.orders.post("an order", never) for _ in range(2))
        elif end == "stop":
            app.stop()
        elif end == "halt":
            loop.halt("planted")
        else:
            raise InvariantError("planted")

    app = KeyShared(CONF, ["orders"], hooks=OfflineBroker(stepped=stepped).hooks)
    app.handler(lambda record: None)
    if end == "break":
        with pytest.raises(InvariantError, match="planted"):
            app.run()
    else:
        app.run()
    said = [str(each.exception(0.0)) for each in waiting]
    reason = {"stop": "is stopping", "halt": "had to halt: planted", "break": "has ended"}[end]
    assert len(said) == 2
    assert all(each.startswith("an order: ") and reason in each for each in said), said


def test_a_handler_that_cannot_be_made_ends_the_start_and_leaves_no_client_behind() -> None:
    class Handler:
        def __init__(self) -> None:
            raise OSError("no database")

        def handle(self, _record: Any) -> None: ...

    broker = OfflineBroker()
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks)
    app.handler(Handler)
    with pytest.raises(ConfigError, match="no database"):
        app.run()
    assert broker.closed == 1


def test_a_second_run_at_the_same_time_is_refused_and_the_first_goes_on() -> None:
    runs, ended = threading.Event(), threading.Event()
    refused: list[str] = []
    clients: list[KafkaClient] = []

    def client(*made_with: Any) -> KafkaClient:
        clients.append(broker.hooks.client(*made_with))
        return clients[-1]

    def again() -> None:
        assert runs.wait(60.0)
        for _ in range(2):
            with pytest.raises(ConfigError) as error:
                app.run()
            refused.append(str(error.value))
        ended.set()

    def stepped(view: InstanceView) -> None:
        runs.set()
        assert len(clients) == 1
        if ended.is_set() and view.settled() == 1:
            app.stop()

    broker = OfflineBroker(record(0), stepped=stepped)
    app = KeyShared(CONF, ["orders"], hooks=replace(broker.hooks, client=client))
    app.handler(lambda record: None)
    other = threading.Thread(target=again)
    other.start()
    assert app.run() == 0
    other.join(60.0)
    line = "run(): the app runs already, on another thread; wait until that has returned, or make "
    assert refused == [f"{line}another app"] * 2
    assert app.report is not None
    clients.clear()
    app.stop()
    assert app.run() == 0, "when it has ended it may run again"


def test_every_worker_of_a_pool_has_its_own_thread() -> None:
    specs = [WorkerSpec("s", n, f"worker-{n}", lambda: Made(print)) for n in range(3)]
    pool = ThreadPool(specs, SimpleQueue(), Clock())
    pool.start()
    names = {cell.thread.name for cell in pool.cells.values() if cell.thread is not None}
    assert names == {f"keyshared-s-worker-{n}" for n in range(3)}
    assert pool.stop(30.0) == []


def test_one_thread_and_one_attempt_are_told_in_the_singular() -> None:
    options = Options(workers=1, retry=RetryOptions(attempts=1))
    line = banner("billing", ["orders"], options, subscription_settings(options))
    assert " · 1 thread · " in line
    assert line.endswith(" · 1 attempt, then block")
