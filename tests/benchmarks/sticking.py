"""From opening the console to the cause: what an operator reads on Overview alone, and how soon.

Five instances are made to stand still, each in its own way, with the times of the rules as they
are, and left alone with nobody who looks. Then a real browser opens the console, and the time runs
until Overview names the cause first, with the record or the worker that it is about.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page

from kafka_keyshared import KeyShared
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.browser import chromium, live_page, until
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, write
from tests.support.odd_records import ODD, RECORDS, Gate, fails, key_unread, nothing

ALONE = 20.0
"""Seconds that an instance stands still before anybody looks."""

TOPIC = "orders"


def _refuse_letters(cluster: EmbeddedCluster) -> None:
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1_000)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of standing still: how it is made, the cause to be named, and what with it."""

    what: str
    code: str
    says: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    handler: Callable[[], Callable[[Any], None]] = lambda: nothing
    plant: Callable[[EmbeddedCluster], None] = lambda _: None


WAYS = {
    "blocked": Way(
        'a handler fails for one key (`on_exhausted="block"`)',
        "key-blocked",
        (f"key 'odd' is blocked by {TOPIC}-", "ValueError", "no such address"),
        {"retry": {"attempts": 1}, "on_exhausted": "block"},
        handler=lambda: fails,
    ),
    "stuck": Way(
        "a call in a handler does not return (`ack_timeout=1`)",
        "handler-stuck",
        ("(key 'odd') is stuck: on worker-",),
        {"ack_timeout": 1.0},
        handler=lambda: Gate(ODD),
    ),
    "unreadable": Way(
        "the registry that keys are read with is away",
        "key-unreadable",
        (f"the key of {TOPIC}-", "OSError: the registry is away"),
        {"key": key_unread},
    ),
    "refused": Way(
        "nobody may write to the dead-letter topic",
        "dlq-refusing",
        (f"the dead letter of {TOPIC}-", "(key 'odd') was refused", "authorization failed"),
        {"retry": {"attempts": 1}, "on_exhausted": "dead_letter", "dlq": f"{TOPIC}.dlq"},
        handler=lambda: fails,
        plant=_refuse_letters,
    ),
    "absent": Way(
        "a worker that ranges were declared for was not started",
        "worker-absent",
        (f"records from {TOPIC}-", "wait for worker-9"),
        {
            "routing": "sticky",
            "on_unmatched": "hold",
            "ranges": {"worker-0": "0-29999", "worker-1": "30000-39999", "worker-9": "40000-65535"},
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Read:
    """What Overview said of the cause, how long after it was opened, and the page's own faults."""

    seconds: float
    text: str
    faults: list[str]


def measure(repeat: int | None) -> dict[str, Any]:
    """Return of each way the longest time to its cause, in seconds, and what was read last."""
    found: dict[str, Any] = {}
    with chromium() as browser:
        for name, way in WAYS.items():
            every = [read_cause(way, browser, ALONE) for _ in range(repeat or 1)]
            found[f"{name}_s"] = round(max(each.seconds for each in every), 1)
            found[name] = {"what": way.what, "says": every[-1].text}
    return found


def read_cause(way: Way, browser: Browser, alone: float) -> Read:
    """Let an instance stand still for so long; then open its console and read until it is named."""
    faults: list[str] = []
    with EmbeddedCluster() as cluster, _standing_still(way, cluster) as app:
        assert app.admin is not None
        threading.Event().wait(alone)
        begun = time.monotonic()
        page = live_page(browser, f"{app.admin.url}/#/overview", faults, "light", 1280)
        try:
            until(page, lambda: _names(page, way), f"{way.code} is named")
            seconds = time.monotonic() - begun
            text = page.locator("article.finding:visible .sentence").first.inner_text()
        finally:
            page.context.close()
    return Read(seconds, text, faults)


@contextmanager
def _standing_still(way: Way, cluster: EmbeddedCluster) -> Iterator[KeyShared]:
    cluster.create_topic(TOPIC, 2)
    cluster.create_topic(f"{TOPIC}.dlq", 1)
    write(cluster, TOPIC, RECORDS)
    way.plant(cluster)
    handler = way.handler()
    options = {
        "workers": 2,
        "http_port": 0,
        "console_port": 0,
        "show_keys": True,
        "stop_timeout": 1,
    }
    app = KeyShared(client_conf(cluster, group_name()), [TOPIC], **(options | way.options))
    app.handler(handler)
    with running(app):
        try:
            yield app
        finally:
            if isinstance(handler, Gate):
                handler.open()


def _names(page: Page, way: Way) -> bool:
    """Say whether the first finding is the cause, with all that belongs to it."""
    first = page.locator("article.finding:visible").first
    if first.count() == 0:
        return False
    text = first.inner_text()
    return way.code in text and all(each in text for each in way.says)
