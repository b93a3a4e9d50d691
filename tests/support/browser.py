"""A real browser, and live pages of an instance's console in it."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.setup.parts import find_chromium

MILLISECONDS = 30_000.0
"""How long the browser may take for anything on a page of the console."""

STARTS_WITHIN = 180_000.0
"""Milliseconds for its start, which takes many processes and much of a busy machine's time."""

AXE = gzip.decompress(
    (Path(__file__).parents[1] / "web" / "axe" / "axe.min.js.gz").read_bytes()
).decode()

SERIOUS = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""

TOO_WIDE = """() => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("main *")]
    .filter((each) => each.getBoundingClientRect().right > root.clientWidth + 1);
  if (root.scrollWidth <= root.clientWidth) return [];
  return wide.map((each) => each.outerHTML.slice(0, 120));
}"""


CUT_OFF = """() => [...document.querySelectorAll("#screen *")]
  .filter((each) => getComputedStyle(each).textOverflow === "ellipsis")
  .filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => `cut off: ${each.textContent}`)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium; skip the test where there is none."""
    found = find_chromium()
    if found is None:
        pytest.skip("Chromium is missing: install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, timeout=STARTS_WITHIN)
        yield browser
        browser.close()


# The page's stream is this snapshot, again and again; all else is the instance's own answer.
_GIVEN = """(given) => {
  const real = window.fetch;
  const told = (at) => "event: snapshot\\ndata: "
    + JSON.stringify({ ...given, taken_at: given.taken_at + at }) + "\\n\\n";
  window.fetch = (url, ...rest) => {
    if (!String(url).endsWith("/api/v1/stream")) return real(url, ...rest);
    let number = 0;
    const body = new ReadableStream({
      start(stream) {
        const tell = () => stream.enqueue(new TextEncoder().encode(told(number++)));
        tell();
        setInterval(tell, 250);
      },
    });
    return Promise.resolve(new Response(body, { status: 200 }));
  };
}"""


def live_page(
    browser: Browser,
    url: str,
    faults: list[str],
    scheme: Any,
    width: int,
    *,
    given: dict[str, Any] | None = None,
) -> Page:
    """Open a screen in a context of its own, once it is live; ``faults`` hears its complaints.

    With ``given`` that is the snapshot which the page is told, whatever the instance's own is.
    """
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce"
    )
    context.set_default_timeout(MILLISECONDS)
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda said: faults.append(said.text) if said.type in {"error", "warning"} else None,
    )
    if given is not None:
        page.add_init_script(f"({_GIVEN})({json.dumps(given)})")
    page.goto(url)
    page.wait_for_selector("#link[data-state=live]")
    return page


def until(page: Page, condition: Callable[[], bool], what: str) -> None:
    """Wait for it. (The page's own rules forbid what ``wait_for_function`` does.)"""
    deadline = time.monotonic() + MILLISECONDS / 1000
    while not condition():
        assert time.monotonic() < deadline, f"not so: {what}; {page.inner_text('body')}"
        page.wait_for_timeout(50)
