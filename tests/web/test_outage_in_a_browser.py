"""While every attempt fails the console is red, names the exception, and is green again after."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.cli.status import UNHEALTHY, status_verb
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.browser import TOO_WIDE, live_page, until
from tests.support.http_scrapes import get, running, scraped
from tests.support.live_cluster import client_conf, group_name, write

pytestmark = pytest.mark.timeout(300)

IN_TIME = 10.0
"""Seconds after which a total outage is named, by the clock of the instance."""

LOOKS = [("light", 1280), ("dark", 1120), ("light", 360), ("dark", 360)]


class Shop:
    """An app whose handler needs a dependency, and records that go on coming."""

    def __init__(self, cluster: Cluster) -> None:
        self.away = threading.Event()
        self._over = threading.Event()
        self._cluster = cluster
        self._topic = f"outage-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(self._topic, 3)
        cluster.create_topic(f"{self._topic}.dlq", 1)
        self.app = KeyShared(
            client_conf(cluster, group_name()),
            [self._topic],
            workers=4,
            dlq=f"{self._topic}.dlq",
            http_port=0,
            console_port=0,
            unready_on_outage=True,
        )
        self.app.handler(self._handle)

    def _handle(self, record: Any) -> None:
        del record
        if self.away.is_set():
            raise ConnectionError("the database refuses connections")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Run the app, and write records until the end."""
        writer = threading.Thread(target=self._write, daemon=True)
        with running(self.app):
            writer.start()
            try:
                yield
            finally:
                self._over.set()
                writer.join()

    def _write(self) -> None:
        number = 0
        while not self._over.wait(0.25):
            keys = range(number, number + 20)
            write(self._cluster, self._topic, [(b"customer-%d" % key, b"v") for key in keys])
            number += 20


def _says(part: Locator, text: str) -> bool:
    return text in part.inner_text()


def test_a_total_outage_is_red_in_the_console_and_named_everywhere_until_it_is_over(
    browser: Browser, embedded_cluster: Cluster, tmp_path: Path
) -> None:
    shop, faults = Shop(embedded_cluster), list[str]()
    with shop.open():
        app = shop.app
        assert app.admin is not None
        assert app.http is not None
        page = live_page(browser, f"{app.admin.url}/#overview", faults, "light", 1280)
        strip = page.locator("#diagnosis")
        until(page, lambda: "healthy" in (strip.text_content() or ""), "healthy at first")
        shop.away.set()
        until(page, lambda: "no attempt has succeeded" in (strip.text_content() or ""), "named")
        found = app.diagnosis()
        assert found is not None
        assert found.first is not None
        assert (found.first.code, found.healthy) == ("most-attempts-fail", False)
        assert found.first.seconds is not None
        assert found.first.seconds <= IN_TIME
        until(page, lambda: strip.get_attribute("data-kind") == "fail", "red")
        findings = page.locator("#findings").inner_text()
        assert "ConnectionError at " in findings
        assert "the database refuses connections" in findings
        assert "keyshared dlq replay --error" in findings
        for scheme, width in LOOKS:
            shot = live_page(browser, f"{app.admin.url}/#overview", faults, scheme, width)
            body = shot.locator("body")
            until(shot, partial(_says, body, "ConnectionError"), "shown")
            assert shot.evaluate(TOO_WIDE) == []
            shot.screenshot(path=tmp_path / f"outage-{scheme}-{width}.png", full_page=True)
            shot.context.close()
        url = app.http.url
        assert status_verb(f"{url}/status", OutputFormat.JSON) == UNHEALTHY
        code, _, text = get(f"{url}/readyz")
        assert (code, "no attempt has succeeded" in text) == (503, True)
        assert scraped(url)["keyshared_diagnosis", ("most-attempts-fail",)] == 1
        shop.away.clear()
        until(page, lambda: "no attempt" not in (strip.text_content() or ""), "over")
        until(page, lambda: get(f"{url}/readyz")[0] == 200, "ready")
        page.context.close()
    assert faults == []
