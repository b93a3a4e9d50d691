"""The console over snapshots that are hard to show: nothing, one of everything, much of it all."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page

from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support import console_snapshots
from tests.support.browser import AXE, SERIOUS, TOO_WIDE, live_page, until
from tests.web.console import scene

# A browser has much to do, and a machine may be slow.
pytestmark = pytest.mark.timeout(300)

# What each screen says where it has nothing to show.
EMPTY = {
    "overview": "No findings so far.",
    "ring": "No slot has an owner, because there is no worker.",
    "workers": "There is no worker, so no record runs.",
    "partitions": "No partition yet: this instance has not joined its group.",
    "draining": "No slot drains.",
    "stuck": "All records make progress",
    "errors": "No attempt has failed since the start.",
    "dlq": "There is no dead-letter topic (dlq)",
    "rebalances": "No partition has been assigned to this instance",
    "doctor": "not joined yet",
}

SCREENS = tuple(EMPTY)

# Cells with a number of which a part stands on another line.
BROKEN_NUMBERS = """() => [...document.querySelectorAll("td.number, td.brief, [data-large] dd")]
  .filter((each) => {
    const range = document.createRange();
    const text = [...each.childNodes].find((one) => one.nodeType === Node.TEXT_NODE);
    if (!text) return false;
    range.selectNode(text);
    return range.getClientRects().length > 1;
  })
  .map((each) => each.outerHTML)"""

Given = Callable[..., Page]


@pytest.fixture(scope="module")
def told(embedded_cluster: Cluster) -> Iterator[tuple[str, console_snapshots.Told]]:
    """Where a console is, and a snapshot of it that has something of everything."""
    with scene(embedded_cluster, f"console-{uuid.uuid4().hex[:8]}") as made:
        made.until(lambda: bool(made.status().subscriptions[0].errors))
        assert made.app.admin is not None
        snapshot = AdminClient(made.app.admin.url, timeout=60.0).snapshot()
        yield made.app.admin.url, msgspec.json.decode(msgspec.json.encode(snapshot))


@pytest.fixture
def faults() -> list[str]:
    return []


@pytest.fixture
def shown(
    browser: Browser, told: tuple[str, console_snapshots.Told], faults: list[str]
) -> Iterator[Given]:
    """``shown(made)`` opens the console over what ``made`` makes of the snapshot."""
    pages: list[Page] = []
    url, real = told

    def show(
        made: Callable[[console_snapshots.Told], console_snapshots.Told],
        scheme: Any = "light",
        width: int = 1280,
    ) -> Page:
        page = live_page(browser, f"{url}/#/overview", faults, scheme, width, given=made(real))
        pages.append(page)
        return page

    yield show
    for each in pages:
        each.context.close()


def go(page: Page, screen: str) -> str:
    """Go to a screen; return its text once it is there."""
    page.evaluate(f"location.hash = '#/{screen}'")
    page.wait_for_selector(f"#screen .{screen}:visible")
    return page.inner_text("#screen")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 800), ("light", 360)])
def test_much_of_everything_fits(
    scheme: str, width: int, shown: Given, faults: list[str], tmp_path: Path
) -> None:
    page = shown(console_snapshots.much, scheme, width)
    page.evaluate(AXE)
    wrong: dict[str, Any] = {}
    for screen in SCREENS:
        go(page, screen)
        page.screenshot(path=tmp_path / f"much-{screen}-{scheme}-{width}.png", full_page=True)
        looks = (TOO_WIDE, SERIOUS, BROKEN_NUMBERS)
        found = [each for look in looks for each in page.evaluate(look)]
        if found:
            wrong[screen] = found
    assert wrong == {}
    assert faults == []


def test_a_number_that_breaks_is_found(shown: Given) -> None:
    page = shown(console_snapshots.much, "light", 360)
    go(page, "rebalances")
    assert page.evaluate(BROKEN_NUMBERS) == []
    page.evaluate(
        """() => document.querySelectorAll("td.number").forEach((each) => {
          each.style = "width: 20px; white-space: normal; overflow-wrap: anywhere";
        })"""
    )
    assert page.evaluate(BROKEN_NUMBERS) != []


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 360)])
def test_where_there_is_nothing_it_says_so(
    scheme: str, width: int, shown: Given, faults: list[str], tmp_path: Path
) -> None:
    page = shown(console_snapshots.nothing, scheme, width)
    page.evaluate(AXE)
    for screen, said in EMPTY.items():
        assert said in go(page, screen), screen
        page.screenshot(path=tmp_path / f"nothing-{screen}-{scheme}-{width}.png", full_page=True)
        assert [*page.evaluate(TOO_WIDE), *page.evaluate(SERIOUS)] == [], screen
    assert faults == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"joined": True}, "more instances than partitions: run fewer"),
        ({"rebalance_seconds": 12.0}, "a rebalance has been in progress for 12.0 s"),
        ({"brokers_away_seconds": 45.0}, "no broker has answered for 45.0 s"),
    ],
)
def test_it_says_why_there_is_no_partition(
    changed: dict[str, Any], said: str, shown: Given
) -> None:
    def made(real: console_snapshots.Told) -> console_snapshots.Told:
        told = console_snapshots.nothing(real)
        told["status"] |= changed
        return told

    assert said in go(shown(made), "partitions")


def test_one_is_not_several(shown: Given) -> None:
    page = shown(console_snapshots.single)
    several = r"(?<![\d,.])1 (?:\w+ )?(records|leases|slots|keys|attempts|workers|letters|runs)\b"
    said = {screen: go(page, screen) for screen in SCREENS}
    assert "1 record running" in said["overview"]
    assert "(1 attempt)" in said["errors"]
    assert {screen: found for screen in said if (found := re.findall(several, said[screen]))} == {}


def test_hot_keys_and_shards_are_shown_where_workers_share_what_waits(shown: Given) -> None:
    page = shown(console_snapshots.much)
    said = go(page, "workers")
    assert "of 20 shards 1 ready, 1 held" in said
    assert "123,456 records of its key behind it, other keys continue" in said
    assert page.locator("table:has(caption:text-is('Hot keys')) tbody tr:visible").count() == 5
    assert "12,346/s" in said
    page = shown(console_snapshots.nothing)
    assert "Hot keys" not in go(page, "workers")


def test_a_slot_with_a_hot_key_is_followed(shown: Given) -> None:
    page = shown(console_snapshots.single)
    page.keyboard.press("/")
    for slot, said in (
        ("0x0007", "runs detached at worker-2"),
        ("0x0000", "It has a hot key: 1 record waiting, 50.0 % of what arrives"),
    ):
        page.fill("#follow", slot)
        page.wait_for_selector(f".followed:has-text('{said}')")
        assert page.locator(".followed li").count() >= 2


def test_every_chart_has_a_unit_and_says_its_numbers(shown: Given) -> None:
    page = shown(console_snapshots.single)
    until(page, lambda: page.locator(".plot:visible canvas").count() == 4, "four charts")
    units = page.locator(".chart figcaption .unit").all_inner_texts()
    assert len(units) == 4
    assert all(units)
    labels = [each.get_attribute("aria-label") or "" for each in page.locator(".plot").all()]
    assert [
        each for each, unit in zip(labels, units, strict=True) if f", {unit}: " not in each
    ] == []
    assert "attempts/s" in go(page, "errors")


def test_where_no_slot_has_an_owner_the_ring_says_why(shown: Given, faults: list[str]) -> None:
    page = shown(console_snapshots.unordered)
    said = go(page, "ring")
    assert "Routing is unordered: any worker may have any record" in said
    assert "17.9 %" not in said
    page.set_viewport_size({"width": 900, "height": 700})  # which draws anew
    page.fill("#ring-key", "customer-7")
    page.wait_for_selector(".answer:has-text('no owner')")
    assert faults == []
    assert page.get_attribute("#link", "data-state") == "live"


def test_a_screen_that_fails_is_no_lost_connection(shown: Given, faults: list[str]) -> None:
    def made(real: console_snapshots.Told) -> console_snapshots.Told:
        return {**real, "dlq": None}

    page = shown(made)
    page.evaluate("location.hash = '#/dlq'")
    page.wait_for_selector("#notice:has-text('This screen cannot be shown')")
    assert page.get_attribute("#link", "data-state") == "live"
    assert faults, "it is in the browser's own log as well"
    assert "17.9 %" in go(page, "ring")
    page.wait_for_selector("#notice", state="hidden")
