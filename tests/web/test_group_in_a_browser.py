"""The screen of the group in a real browser, over two live instances."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.browser import AXE, SERIOUS, TOO_WIDE, live_page, until
from tests.support.group_instances import PARTITIONS, Instances, shared, told_in

pytestmark = pytest.mark.timeout(300)

Eventually = Callable[..., None]


@pytest.fixture
def instances(embedded_cluster: Cluster, topic: str, eventually: Eventually) -> Iterator[Instances]:
    with Instances(embedded_cluster, topic, eventually) as made:
        yield made


def answering(status: int, body: str) -> Callable[[Any], None]:
    def answer(route: Any) -> None:
        route.fulfill(status=status, body=body)

    return answer


def shows(page: Page, said: str) -> Callable[[], bool]:
    return lambda: said in page.inner_text("#screen")


def test_the_group_is_shown_live_by_day_and_by_night_wide_and_narrow(
    instances: Instances, browser: Browser, tmp_path: Path
) -> None:
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    a, b = instances.start("a", "b", **told_in(instances.topic))
    instances.until(a, lambda view: shared(view, "a", "b"))
    assert a.member.app.admin is not None
    assert b.member.app.admin is not None
    faults: list[str] = []
    for scheme, width in (("light", 1280), ("dark", 360)):
        page = live_page(browser, f"{a.member.app.admin.url}/#/group", faults, scheme, width)
        page.wait_for_selector("#screen tbody tr:nth-child(2)")
        # Whoever joins last ends a rebalance for all, which is told until the group is at rest.
        until(page, shows(page, "healthy: 2 instances"), "the group is at rest")
        said = page.inner_text("#screen")
        assert f"{PARTITIONS} of {PARTITIONS}" in said
        rows = page.locator("#screen tbody tr")
        assert ["running" in each for each in rows.all_inner_texts()] == [True, True]
        link = page.locator("#screen tbody a:visible")
        assert link.get_attribute("href") == b.member.app.admin.url, "and none to itself"
        page.evaluate(AXE)
        page.screenshot(path=tmp_path / f"group-{scheme}-{width}.png", full_page=True)
        assert [*page.evaluate(TOO_WIDE), *page.evaluate(SERIOUS)] == []

    b.member.abandon()
    until(page, lambda: "silent for" in page.inner_text("#screen"), "b is silent")
    assert "b has not been heard for" in page.inner_text("#screen")
    page.screenshot(path=tmp_path / "group-silent.png", full_page=True)
    assert page.evaluate(SERIOUS) == []
    assert faults == []


def test_without_a_setting_and_without_an_answer_the_screen_says_so(
    instances: Instances, browser: Browser
) -> None:
    (a,) = instances.start("a")
    assert a.member.app.admin is not None
    faults: list[str] = []
    page = live_page(browser, f"{a.member.app.admin.url}/#/group", faults, "light", 1280)
    until(page, lambda: "set group_view_topic" in page.inner_text("#screen"), "what to set")
    assert page.locator("#screen table:visible").count() == 0
    assert faults == []
    hostile = "<img src=x onerror=\"document.title='broken into'\">"
    for status, body, said in (
        (404, "", "it is of an older release"),
        (503, hostile, hostile),
        (200, '{"version": 2}', "the instance sends layout 2 of the group"),
    ):
        page.route("**/api/v1/group", answering(status, body))
        until(page, shows(page, said), said)
        page.unroute("**/api/v1/group")
    assert page.locator("#screen img").count() == 0
    until(page, lambda: "cannot be shown" not in page.inner_text("#screen"), "it is well again")


def test_reports_that_are_refused_are_told_with_why(instances: Instances, browser: Browser) -> None:
    (a,) = instances.start("a", **told_in(instances.topic))
    assert a.member.app.admin is not None
    faults: list[str] = []
    page = live_page(browser, f"{a.member.app.admin.url}/#/group", faults, "light", 1280)
    why = (
        "the other instances get no reports of this one: topic "
        f"'{instances.topic}.status' does not exist"
    )
    until(page, shows(page, why), "why")
    assert "to be watched" in page.inner_text("#screen")
    assert "some instances may be missing" in page.inner_text("#screen")
    assert [*page.evaluate(TOO_WIDE)] == []
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    until(page, shows(page, "healthy: 1 instance"), "it is well again")
    assert why not in page.inner_text("#screen")
    assert faults == []


def test_an_address_that_is_code_is_no_link(instances: Instances, browser: Browser) -> None:
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    (a,) = instances.start("a", **told_in(instances.topic))
    view = instances.until(a, lambda view: shared(view, "a"))
    assert a.member.app.admin is not None
    (found,) = view.instances
    page = live_page(browser, f"{a.member.app.admin.url}/#/group", [], "light", 1280)
    name = f"<b>{uuid.uuid4().hex}</b>"
    script = """([view, name]) => ({ ...view, instances: [{ ...view.instances[0], here: false,
      label: name, report: { ...view.instances[0].report, url: "javascript:alert(1)" } }] })"""
    shown = page.evaluate("async () => (await fetch('/api/v1/group')).json()")
    assert shown["instances"][0]["label"] == found.label
    changed = page.evaluate(script, [shown, name])
    page.route("**/api/v1/group", lambda route: route.fulfill(json=changed))
    until(page, lambda: name in page.inner_text("#screen"), "the name as text")
    assert page.locator("#screen a[href^='javascript']").count() == 0
    assert page.locator("#screen tbody a:visible").count() == 0
