"""A whole instance without reliability: it runs, drops where it is full, and commits nothing."""

from __future__ import annotations

import threading

import pytest

from kafka_keyshared.app.banner import banner
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.run_progress import StatusLine
from kafka_keyshared.config import Options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.instance_view import InstanceView
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record


def test_a_full_worker_drops_the_newest_and_nothing_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    busy, go_on = threading.Event(), threading.Event()
    handled: list[int] = []
    lines: list[str] = []
    status = StatusLine(from_start=True, say=lines.append)

    def handle(each: object) -> None:
        busy.set()
        assert go_on.wait(60.0)
        handled.append(each.offset())  # type: ignore[attr-defined]

    def stepped(view: InstanceView) -> None:
        status(view)
        shed = sum(each.shed for each in view.subscriptions["default"].workers.values())
        if shed and busy.is_set():
            go_on.set()
        if view.settled() == 50:
            app.stop()

    broker = OfflineBroker(*(record(offset) for offset in range(50)), stepped=stepped)
    app = KeyShared(
        CONF, ["orders"], hooks=broker.hooks, workers=1, prefetch_records=5, delivery="at-most-once"
    )
    app.handler(handle)
    assert app.run() == 0
    assert len(handled) < 50, "some were dropped"
    assert handled == sorted(handled), "what is left of a key is in order"
    assert handled[:5] == [0, 1, 2, 3, 4], "the oldest stay"
    assert broker.commits == []
    assert "nothing is committed" in caplog.text
    assert "worker-0 is full: " in caplog.text


def test_what_a_handler_fails_on_is_not_tried_again() -> None:
    tried: list[int] = []

    def handle(each: object) -> None:
        tried.append(each.offset())  # type: ignore[attr-defined]
        raise ValueError("no such flight")

    def stepped(view: InstanceView) -> None:
        if view.settled() == 3:
            app.stop()

    broker = OfflineBroker(*(record(offset) for offset in range(3)), stepped=stepped)
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks, workers=1, delivery="at-most-once")
    app.handler(handle)
    assert app.run() == 0
    assert tried == [0, 1, 2]
    assert broker.commits == []


def test_it_is_refused_with_what_needs_tracking_before_anything_is_consumed() -> None:
    with pytest.raises(ConfigError, match=r"does not work with dlq=True, retry\.attempts=2: leave"):
        KeyShared(CONF, ["orders"], delivery="at-most-once", dlq=True, retry={"attempts": 2})


def test_the_banner_says_what_it_leaves_out() -> None:
    settings: SubscriptionSettings = subscription_settings(Options(delivery="at-most-once"))
    line = banner("billing", ["orders"], Options(delivery="at-most-once"), settings)
    assert line.endswith(
        "nothing is committed · failed records, and records for full workers, are dropped"
    )
