"""What an app is ordered while it does not run, and for a subscription that it does not have."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_keyshared.app.service import KeyShared
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.owner.orders import OrderRefusedError
from kafka_keyshared.owner.view import InstanceView
from tests.support.offline import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0

Order = Callable[[KeyShared], object]

ORDERS: dict[str, Order] = {
    "lanes": lambda app: app.lanes(),
    "release": lambda app: app.release(b"a"),
    "drop": lambda app: app.drop(b"a"),
    "dead_letter": lambda app: app.dead_letter(b"a"),
    "lift_dlq_limit": lambda app: app.lift_dlq_limit(),
    "flush": lambda app: app.flush(),
    "scale": lambda app: app.scale(2),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_app_that_does_not_run_refuses_every_order_in_the_same_words(name: str) -> None:
    app = KeyShared(CONF, ["orders"])
    with pytest.raises(OrderRefusedError) as refused:
        ORDERS[name](app)
    assert str(refused.value) == f"{name}: the app does not run"


LANE_ORDERS: list[Callable[[KeyShared, str], str]] = [
    lambda app, name: app.release(b"a", subscription=name),
    lambda app, name: app.drop(at="orders-0@0", subscription=name),
    lambda app, name: app.dead_letter("a", subscription=name),
]


def test_an_order_for_a_lane_names_its_subscription_and_unknown_ones_are_refused() -> None:
    answers: list[str] = []
    there = threading.Event()

    def ask() -> None:
        assert there.wait(WAIT)
        for order in LANE_ORDERS:
            for name in ("audit", "default"):
                try:
                    order(app, name)
                except KeySharedError as error:
                    answers.append(str(error))
        app.stop()

    def stepped(_view: InstanceView) -> None:
        there.set()

    broker = OfflineBroker(record(0), stepped=stepped)
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks)
    app.handler(lambda record: None)
    asker = threading.Thread(target=ask)
    asker.start()
    assert app.run() == 0
    asker.join()
    unknown = "there is no subscription 'audit'; there is 'default'"
    names = ("release", "drop", "dead_letter")
    assert [each for each in answers if unknown in each] == [f"{name}: {unknown}" for name in names]
    assert len(answers) == 6, "the other three were about lanes that are not closed"
    assert sum("is closed" in each for each in answers) == 3
