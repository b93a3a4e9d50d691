"""What an app is ordered while it does not run, and for a subscription that it does not have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.instance_view import InstanceView
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0

Order = Callable[[KeyShared], object]

ORDERS: dict[str, Order] = {
    "closed_keys": lambda app: app.closed_keys(),
    "unblock": lambda app: app.unblock(b"a"),
    "drop": lambda app: app.drop(b"a"),
    "dead_letter": lambda app: app.dead_letter(b"a"),
    "lift_dlq_limit": lambda app: app.lift_dlq_limit(),
    "flush": lambda app: app.flush(),
    "pause": lambda app: app.pause(),
    "resume": lambda app: app.resume(),
    "scale": lambda app: app.scale(2),
    "set_filters": lambda app: app.set_filters("worker-0", ["a*"]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_app_that_does_not_run_refuses_every_order_in_the_same_words(name: str) -> None:
    app = KeyShared(CONF, ["orders"])
    with pytest.raises(OrderRefusedError) as refused:
        ORDERS[name](app)
    assert str(refused.value) == f"{name}: the app does not run"


NAMING: dict[str, Callable[[KeyShared, str], object]] = {
    "unblock": lambda app, name: app.unblock(b"a", subscription=name),
    "drop": lambda app, name: app.drop(at="orders-0@0", subscription=name),
    "dead_letter": lambda app, name: app.dead_letter("a", subscription=name),
    "assign_range(0, 9, 'worker-0')": lambda app, name: app.assign_range(
        0, 9, "worker-0", subscription=name
    ),
    "assign_range(0, 9, None)": lambda app, name: app.assign_range(0, 9, None, subscription=name),
    "scale(2)": lambda app, name: app.scale(2, subscription=name),
    "set_filters('worker-0')": lambda app, name: app.set_filters(
        "worker-0", ["a*"], subscription=name
    ),
}


def test_an_order_names_its_subscription_and_unknown_ones_are_refused() -> None:
    refused: dict[str, list[str]] = {"audit": [], "default": []}
    there = threading.Event()

    def ask() -> None:
        assert there.wait(WAIT)
        for name, said in refused.items():
            for order in NAMING.values():
                try:
                    order(app, name)
                except KeySharedError as error:
                    said.append(str(error))
        app.stop()

    def stepped(_view: InstanceView) -> None:
        there.set()

    broker = OfflineBroker(record(0), stepped=stepped)
    ranges = {"worker-0": "10-65535", "worker-1": "0-9"}
    app = KeyShared(
        CONF, ["orders"], workers=1, routing="sticky", ranges=ranges, on_unmatched="hold",
        hooks=broker.hooks,
    )  # fmt: skip
    app.handler(lambda record: None)
    asker = threading.Thread(target=ask)
    asker.start()
    assert app.run() == 0
    asker.join()
    unknown = "there is no subscription 'audit'; there is 'default'"
    assert refused["audit"] == [f"{name}: {unknown}" for name in NAMING]
    *lanes, overlap = refused["default"]
    assert all("is closed" in each for each in lanes)
    assert len(lanes) == 3
    assert "overlap" in overlap


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_topics_that_are_not_read_and_what_names_nothing_are_refused(name: str) -> None:
    app = KeyShared(CONF, ["orders", "^pay-.*"])
    give: Any = getattr(app, name)
    unknown = "the app does not read 'ordesr'; it reads 'orders', '^pay-.*'"
    for named in ({"topics": ["orders", "ordesr"]}, {"partitions": [("ordesr", 0)]}):
        with pytest.raises(OrderRefusedError) as refused:
            give(**named)
        assert str(refused.value) == f"{name}: {unknown}"
    with pytest.raises(ConfigError, match=rf"{name}\(topics='orders'\): give a list of names"):
        give(topics="orders")
    for wrong in ([("orders", -1)], [("orders", "3")], ["orders-3"], [3], 3):
        with pytest.raises(ConfigError, match=r"give pairs such as \('orders', 3\)"):
            give(partitions=wrong)
    for known in (["orders"], ["pay-pal"]):
        with pytest.raises(OrderRefusedError, match=f"{name}: the app does not run"):
            give(topics=known)


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_a_handler_may_not_wait_for_the_owner(name: str) -> None:
    raised = list[str]()

    def handle(_: object) -> None:
        try:
            getattr(app, name)()
        except ConfigError as error:
            raised.append(str(error))
        app.stop()

    app = KeyShared(CONF, ["orders"], workers=1, hooks=OfflineBroker(record(0)).hooks)
    app.handler(handle)
    assert app.run() == 0
    assert raised[0].startswith(f"{name}() is called inside a handler")
