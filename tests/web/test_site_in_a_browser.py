"""The documents in a real browser, opened from the disk, on a telephone and on a desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.support.browser import chromium
from tests.support.pages import ROOT
from tests.support.site import build

# A browser has much to do, and a machine may be slow.
pytestmark = pytest.mark.timeout(300)

WIDTHS = (390, 1280)
SECONDS = 100_000.0
"""Milliseconds, as all times there; a machine may be slow."""

REST = 5_000.0
"""For so long the page's own scripts may still be moving things about."""

# What stands beyond the right edge and cannot be reached by scrolling a box that stands within it.
_CUT_OFF = """() => {
  const width = document.documentElement.clientWidth;
  const beyond = (element) => element.getBoundingClientRect().right > width + 1;
  const scrolls = (element) =>
    ["auto", "scroll"].includes(getComputedStyle(element).overflowX) && !beyond(element);
  const found = [];
  if (document.documentElement.scrollWidth > width) found.push("the page itself");
  for (const element of document.querySelectorAll("main *")) {
    if (!element.getBoundingClientRect().width || !beyond(element)) continue;
    let box = element.parentElement;
    while (box !== document.body && !scrolls(box)) box = box.parentElement;
    if (box === document.body) found.push(element.tagName + " " + element.textContent.slice(0, 40));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("site")
    built = build(ROOT, where)
    assert built.returncode == 0, built.stderr
    return where


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(SECONDS)
    yield context.new_page()
    context.close()


def cut_off(page: Page) -> list[str]:
    """What a reader cannot see of the page, at each of the widths, once it has come to rest."""
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        try:
            page.wait_for_function(f"({_CUT_OFF})().length === 0", timeout=REST)
        except PlaywrightTimeoutError:
            found += [f"at {width}: {each}" for each in page.evaluate(_CUT_OFF)]
    return found


def test_nothing_is_wider_than_the_window_and_nothing_comes_from_elsewhere(
    page: Page, site: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # What a web server shows for a page that is not there has no place on the disk.
    pages = sorted(each for each in site.rglob("*.html") if each.name != "404.html")
    assert len(pages) > 30
    found = {}
    for each in pages:
        page.goto(each.as_uri())
        if missing := cut_off(page):
            found[each.relative_to(site).as_posix()] = missing
    assert found == {}
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:", "about:"))] == []
    assert len(asked) > 2 * len(pages), "styles and scripts were asked for as well"


@pytest.mark.parametrize(
    ("planted", "cut"),
    [
        ('<p style="width: 2000px">wide</p>', 4),
        ('<div style="overflow: auto"><p style="width: 2000px">wide</p></div>', 0),
        ('<div style="overflow: hidden"><p style="width: 2000px">wide</p></div>', 2),
        ('<p style="width: 800px">wide</p>', 2),
    ],
)
def test_a_planted_width_is_found(planted: str, cut: int, page: Page) -> None:
    page.set_content(f"<body><main>{planted}</main></body>")
    assert len(cut_off(page)) == cut


def test_the_search_finds_a_page_without_a_server(page: Page, site: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.click("input[name=query]")
    page.keyboard.type("auto.offset.reset")
    page.wait_for_selector(".md-search-result__item")
    found = page.locator(".md-search-result__item a").first
    assert (found.get_attribute("href") or "").startswith(site.as_uri())


@pytest.mark.parametrize(("wanted", "scheme"), [("light", "default"), ("dark", "slate")])
def test_the_pages_are_as_dark_as_the_reader_likes(
    wanted: str, scheme: str, browser: Browser, site: Path
) -> None:
    context = browser.new_context(color_scheme="dark" if wanted == "dark" else "light")
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_selector("body[data-md-color-scheme]")
    assert page.get_attribute("body", "data-md-color-scheme") == scheme
    context.close()
