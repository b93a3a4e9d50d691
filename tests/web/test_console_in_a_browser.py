"""The console in a real browser, over a running instance: every screen, by day and by night."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from kafka_keyshared.cli.settings import typed_key
from kafka_keyshared.hashing import SLOT_FUNCTIONS
from kafka_keyshared.observability.web.admin.app import ASSETS
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.browser import AXE, CUT_OFF, SERIOUS, TOO_WIDE, live_page, until
from tests.web.console import HOSTILE, Scene, scene

# A browser has much to do, and a machine may be slow.
pytestmark = pytest.mark.timeout(300)

log = logging.getLogger(__name__)

SCREENS = {
    "overview": "Overview",
    "ring": "Ring",
    "workers": "Workers",
    "partitions": "Partitions",
    "draining": "Draining",
    "stuck": "Slow and stuck",
    "errors": "Errors",
    "dlq": "Dead letters",
    "rebalances": "Rebalances",
    "doctor": "Doctor and settings",
}

LOOKS = [("light", 1280), ("dark", 1120), ("light", 360), ("dark", 360)]

# What a screen has to say of the scene: the screens are of live data.
SAYS = {
    "overview": "is blocked by",
    "ring": "slot draining now",
    "workers": "hold-",
    "partitions": "received end",
    "draining": "worker-7",
    "stuck": "blocked",
    "errors": "BadAddressError",
    "dlq": ".dlq",
    "rebalances": "assigned",
    "doctor": "fetch.max.bytes",
}


@pytest.fixture(scope="module")
def looked_at(embedded_cluster: Cluster) -> Iterator[Scene]:
    with scene(embedded_cluster, f"console-{uuid.uuid4().hex[:8]}") as made:
        yield made


TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def ordered(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An instance over a real broker that takes orders: four workers, and nothing that waits."""
    token = tmp_path_factory.mktemp("console") / "token"
    token.write_text(TOKEN)
    options = {"workers": 4, "http_token_file": str(token)}
    topic = f"console-{uuid.uuid4().hex[:8]}"
    with scene(real_cluster, topic, busy=False, **options) as made:
        made.until(lambda: len(made.status().partitions) == 6)
        yield made


@pytest.fixture(scope="module")
def by_hand(embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An instance whose slots are given by hand."""
    token = tmp_path_factory.mktemp("console") / "token"
    token.write_text(TOKEN)
    ranges = {"worker-0": "0-32767", "worker-1": "32768-65535"}
    options = {
        "workers": 2,
        "routing": "sticky",
        "ranges": ranges,
        "on_unmatched": "hold",
        "http_token_file": str(token),
    }
    topic = f"console-{uuid.uuid4().hex[:8]}"
    with scene(embedded_cluster, topic, busy=False, **options) as made:
        made.until(lambda: bool(made.status().partitions))
        yield made


@pytest.fixture
def faults() -> list[str]:
    """What the page has said is wrong."""
    return []


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, looked_at: Scene, faults: list[str]) -> Iterator[Opened]:
    """``opened(screen)`` opens a live page, of another instance than ``looked_at`` if given."""
    contexts: list[BrowserContext] = []

    def open_page(
        screen: str = "overview", scheme: Any = "light", width: int = 1280, of: Scene = looked_at
    ) -> Page:
        assert of.app.admin is not None
        page = live_page(browser, f"{of.app.admin.url}/#/{screen}", faults, scheme, width)
        contexts.append(page.context)
        return page

    yield open_page
    for each in contexts:
        each.close()


def show(page: Page, screen: str) -> str:
    """Go to a screen; return its text once it shows what there is."""
    page.evaluate(f"location.hash = '#/{screen}'")
    said = (SCREENS[screen], SAYS[screen])
    until(page, lambda: all(each in page.inner_text("#screen") for each in said), str(said))
    return page.inner_text("#screen")


def snapshots(page: Page, number: int) -> None:
    """Wait until Overview has shown so many snapshots."""
    told: set[str] = set()

    def seen() -> bool:
        told.add(page.inner_text(".tiles"))
        return len(told) >= number

    until(page, seen, f"{number} snapshots")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_screen_shows_what_there_is(
    scheme: str, width: int, opened: Opened, faults: list[str], tmp_path: Path
) -> None:
    page = opened("overview", scheme, width)
    page.evaluate(AXE)
    wrong: dict[str, Any] = {}
    # Overview comes last: its lines need some snapshots.
    for screen in sorted(SCREENS, key="overview".__eq__):
        show(page, screen)
        if screen == "overview":
            snapshots(page, 4)
        page.screenshot(path=tmp_path / f"{screen}-{scheme}-{width}.png", full_page=True)
        found = [each for look in (TOO_WIDE, CUT_OFF, SERIOUS) for each in page.evaluate(look)]
        if found:
            wrong[screen] = found
    assert wrong == {}
    assert faults == []
    assert page.locator(".plot:visible canvas").count() == 4
    dark = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--dark')")
    assert dark.strip() == ("1" if scheme == "dark" else "0")


@pytest.mark.parametrize(
    ("planted", "id"),
    [
        ("<p style='color: #ccc; background: #fff'>hardly to be read</p>", "color-contrast"),
        ("<button></button>", "button-name"),
    ],
)
def test_what_cannot_be_read_is_found(planted: str, id: str, opened: Opened) -> None:
    page = opened()
    page.evaluate(AXE)
    page.evaluate("planted => document.getElementById('screen').innerHTML = planted", planted)
    assert [each.split(":")[0] for each in page.evaluate(SERIOUS)] == [id]


def test_a_name_that_is_cut_off_is_found(opened: Opened) -> None:
    page = opened("ring")
    page.wait_for_selector(".owner .name")
    assert page.evaluate(CUT_OFF) == []
    page.evaluate("() => { document.querySelector('.owner .name').style.width = '20px'; }")
    assert page.evaluate(CUT_OFF) == ["cut off: worker-0"]


def order(page: Page, button: str, within: str = "#screen") -> str:
    """Order something by click, with the token where it is asked for; return what is said of it."""
    toasts = page.locator("#toasts .toast").count()
    page.click(f"{within} button:text-is('{button}'):not([aria-disabled])")
    page.wait_for_selector(f"dialog button:text-is('{button}'), #token")
    if page.is_visible("#token"):  # a trial needs it as well
        give(page)
    page.click(f"dialog button:text-is('{button}')")
    said = page.locator("#toasts .toast")
    until(page, lambda: said.count() > toasts or page.is_visible("#token"), "an answer")
    if page.is_visible("#token"):
        give(page)
        until(page, lambda: said.count() > toasts, "an answer")
    return said.last.inner_text()


def give(page: Page) -> None:
    page.fill("#token", TOKEN)
    page.click("dialog button:text-is('Continue')")
    page.wait_for_selector("#token", state="hidden")


def test_a_blocked_key_is_named_on_overview_within_two_seconds_and_released_by_click(
    opened: Opened, ordered: Scene, faults: list[str]
) -> None:
    page = opened("overview", of=ordered)
    key = f"bad-{uuid.uuid4().hex[:8]}"
    page.evaluate(
        """key => {
          const screen = document.querySelector("#screen");
          const look = () => {
            window.seen ??= screen.textContent.includes(key) ? Date.now() : null;
          };
          new MutationObserver(look).observe(screen, { subtree: true, childList: true,
            characterData: true });
        }""",
        key,
    )
    ordered.write(key.encode(), key.encode())
    until(page, lambda: page.evaluate("window.seen ?? null") is not None, key)
    took = page.evaluate("window.seen") / 1000 - ordered.failed_at[key.encode()]
    log.info("named on Overview after %.2f s", took)
    # A machine with much to do may take longer; that it is seen by itself is what is promised.
    assert took < 30

    assert "is blocked by" in page.inner_text(".finding:not([hidden]) .sentence")
    ordered.mended.add(key.encode())
    assert "is unblocked" in order(page, "Unblock", ".finding:not([hidden])")
    until(page, lambda: "No findings." in page.inner_text("#screen"), "it is healthy")
    assert key.encode() in ordered.passed
    assert [each for each in faults if "401" not in each] == []


def test_four_workers_become_eight_by_click(opened: Opened, ordered: Scene) -> None:
    page = opened("ring", of=ordered)
    until(page, lambda: page.locator(".owner").count() == 4, "four workers")
    page.fill("#scale", "8")
    page.click("button:text-is('Preview the moves')")
    page.wait_for_selector(".answer:has-text('would move')")
    assert re.search(r"of 65,536 slots \(\d\d\.\d %\)", page.inner_text(".panel:has(#scale)"))
    assert len(ordered.status().subscriptions[0].workers) == 4, "nothing has changed"
    assert "the instance has 8 workers" in order(page, "Scale")
    until(page, lambda: page.locator(".owner").count() == 8, "eight workers")
    assert "worker-7" in str(page.get_attribute("canvas.ring", "aria-label"))
    assert len(ordered.status().subscriptions[0].workers) == 8


def test_a_range_and_a_slot_are_given_by_click(opened: Opened, by_hand: Scene) -> None:
    page = opened("ring", of=by_hand)
    ranges = page.locator(".panel:has(#first)")
    until(page, lambda: "0-32767" in ranges.inner_text(), "the ranges")
    page.select_option("#to-worker", "worker-1")
    page.fill("#first", "0x0000")
    page.fill("#last", "0x10000")
    page.click("button:text-is('Assign the range'):not([aria-disabled])")
    page.wait_for_selector(".toast:has-text('Last: enter a slot')")
    page.fill("#last", "99")
    assert "0..32767 of worker 'worker-0'" in order(page, "Assign the range")
    page.check("#take-over")
    assert "slots 0 to 99: assigned to worker-1" in order(page, "Assign the range")
    page.fill("#one", "0x7fff")
    assert "slot 32,767: assigned to worker-1" in order(page, "Move the slot")
    until(page, lambda: "0-99,32767-65535" in ranges.inner_text(), "the ranges then")
    page.select_option("#to-worker", label="no worker")
    assert "slot 32,767: without a worker" in order(page, "Move the slot")
    until(page, lambda: "no worker" in page.inner_text(".panel:has(#first) table"), "none")


def test_a_dead_letter_is_listed_and_replayed_by_click(opened: Opened, ordered: Scene) -> None:
    page = opened("dlq", of=ordered)
    mark = uuid.uuid4().hex[:8].encode()
    key = b"refused-" + mark + b"<img src=x onerror=\"document.title='broken into'\">"
    ordered.write(key)
    until(page, lambda: "1 written" in page.inner_text("#screen"), "its letter")
    page.click("button:text-is('List the newest'):not([aria-disabled])")
    page.wait_for_selector("#token")
    give(page)
    row = page.locator("tr", has_text=mark.decode())
    row.wait_for()
    assert "outstanding" in row.inner_text()
    assert key.decode() in row.inner_text(), "it is text, whatever it looks like"
    assert page.locator("#screen img").count() == 0
    ordered.mended.add(key)
    row.locator("button").click()
    page.wait_for_selector(f"dialog:has-text('1 letter would go to {ordered.topic}')")
    page.click("dialog button:text-is('Replay')")
    until(page, lambda: "1 letter sent back" in page.inner_text("#toasts"), "it is sent")
    until(page, lambda: "outstanding" not in row.inner_text(), "it is marked")
    ordered.until(lambda: key in ordered.passed)
    page.click("button:text-is('List the newest')")
    page.wait_for_selector("button:text-is('Replay all')", state="hidden")


def test_a_key_that_is_no_text_is_hex(opened: Opened, ordered: Scene) -> None:
    page = opened("stuck", of=ordered)
    key = b"bad-\xff\x00" + uuid.uuid4().bytes[:2]
    ordered.write(key)
    until(page, lambda: f"hex:{key.hex()}" in page.inner_text("#screen"), "the key")
    ordered.mended.add(key)
    assert "is unblocked" in order(page, "Unblock")
    ordered.until(lambda: key in ordered.passed)


def test_a_hostile_key_is_text(opened: Opened, looked_at: Scene, faults: list[str]) -> None:
    page = opened("overview")
    for screen in ("stuck", "errors", "overview"):
        assert HOSTILE.decode() in show(page, screen)
        assert page.locator("#screen img").count() == 0
    page.keyboard.press("/")
    page.fill("#follow", HOSTILE.decode())
    page.wait_for_selector(".followed li:nth-child(3)")
    assert HOSTILE.decode() in page.inner_text(".followed")
    assert page.locator("dialog img").count() == 0
    assert "broken into" not in page.title()
    assert faults == []


def test_a_keyboard_is_enough(opened: Opened) -> None:
    page = opened("overview")
    for key, screen in (("r", "ring"), ("w", "workers"), ("p", "partitions"), ("d", "draining")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_selector(f"#nav a[aria-current][href='#/{screen}']")
        assert page.inner_text("#screen h1") == SCREENS[screen]
    page.keyboard.press("?")
    assert "Slow and stuck" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    for name in ("light", "dark", "auto"):
        page.keyboard.press("t")
        assert page.evaluate("window.keysharedTheme.name") == name


def focused(page: Page) -> str:
    """What has the focus, as it is read to somebody who does not see it."""
    return str(
        page.evaluate(
            """() => {
              const at = document.activeElement;
              return at.getAttribute("aria-label") ?? at.innerText.trim().split("\\n")[0];
            }"""
        )
    )


def test_tab_goes_from_the_top_to_the_screen_and_shows_where_it_is(opened: Opened) -> None:
    page = opened("ring")
    reached = []
    for _ in range(18):
        page.keyboard.press("Tab")
        reached.append(focused(page).split(" /")[0])
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid", f"{reached[-1]} does not show that it has the focus"
    head = ["Skip to the content", "keyshared", "Follow a record", "Auto theme", "Help and keys"]
    screens = [*SCREENS.values()]
    screens.insert(-1, "Group")
    assert reached[: len(head)] == head
    assert reached[len(head) : -2] == screens
    assert "is blocked by" in reached[-2], "what is wrong, which leads to Overview"
    assert page.evaluate("document.activeElement.id") == "ring-key"


def test_the_content_can_be_skipped_to(opened: Opened) -> None:
    page = opened("workers")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.inner_text("#screen h1") == "Workers", "and it is the same screen"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "diagnosis"


def test_escape_closes_a_dialog_and_the_focus_goes_back(opened: Opened) -> None:
    page = opened("overview")
    page.focus("#theme")
    for key, title in (("/", "Follow a key, a slot or a record"), ("?", "Keys")):
        page.keyboard.press(key)
        assert page.inner_text("dialog h2") == title
        if key == "/":
            page.keyboard.type("customer-7")
            page.wait_for_selector(".followed li")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="hidden")
        assert page.evaluate("document.activeElement.id") == "theme"


def test_enter_drops_nothing_that_was_not_chosen(opened: Opened, ordered: Scene) -> None:
    key = f"bad-{uuid.uuid4().hex[:8]}"
    ordered.write(key.encode())
    page = opened("stuck", of=ordered)
    drop = page.locator(".finding", has_text=key).locator(
        "button:text-is('Drop'):not([aria-disabled])"
    )
    drop.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    blocked = next(each for each in ordered.status().subscriptions[0].blocked if each.key == key)
    named = f"{blocked.topic}-{blocked.partition}@{blocked.offset}"
    assert f"Drop {named}?" in page.inner_text("dialog"), "it says what of"
    assert focused(page) == "Cancel"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="hidden")
    assert [each.key for each in ordered.status().subscriptions[0].blocked] == [key]
    ordered.mended.add(key.encode())
    drop.evaluate("each => each.previousElementSibling.focus()")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # what can be taken back has the focus
    page.wait_for_selector("#token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    ordered.until(lambda: key.encode() in ordered.passed)


@pytest.mark.parametrize("function", ["mmh3", "pulsar", "fnv1a"])
def test_the_page_has_the_slots_of_the_package(function: str, opened: Opened) -> None:
    keys = ["", "a", "key-7", "customer-12345", "größer", "x" * 33, "abc", "abcd", "hex:00ff3a"]
    page = opened()
    found = page.evaluate(
        "async ([keys, name]) => { const { slotOf } = await import('/hashing.js');"
        " return keys.map(key => slotOf(key, name)); }",
        [keys, function],
    )
    assert found == [SLOT_FUNCTIONS[function](typed_key(key)) for key in keys]


def test_what_is_looked_up_is_the_workers_own(opened: Opened, looked_at: Scene) -> None:
    page = opened("ring")
    key = looked_at.key_of("worker-3", "customer-")
    page.fill("#ring-key", key.decode())
    page.wait_for_selector(".answer:has-text('worker-')")
    slot = SLOT_FUNCTIONS["mmh3"](key)
    assert page.inner_text(".answer").endswith(f"slot 0x{slot:04x} → worker-3")


def test_a_record_is_followed_by_its_place(opened: Opened, looked_at: Scene) -> None:
    page = opened("overview")
    page.keyboard.press("/")
    (blocked,) = [
        each for each in looked_at.status().subscriptions[0].blocked if each.key == "bad-7"
    ]
    told = {
        f"{blocked.topic}-{blocked.partition}@{blocked.offset}": "is blocked for",
        f"{blocked.topic} {blocked.partition} @ {blocked.offset}": "is blocked for",
        f"{blocked.topic} {blocked.partition} @ 0": "is committed",
        f"{blocked.topic} {blocked.partition} @ 999999": "beyond the end of the log",
        f"{blocked.topic} 99 @ 0": "does not have that partition",
    }
    for asked, said in told.items():
        page.fill("#follow", asked)
        page.wait_for_selector(f".followed:has-text('{said}')")
        assert page.locator(".followed li").count() == 1


def test_the_page_is_small_and_there_at_once(opened: Opened) -> None:
    assert sum(each.stat().st_size for each in ASSETS.rglob("*") if each.is_file()) <= 250_000
    page = opened("overview")
    asked = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert asked
    assert [url for url in asked if not url.startswith(page.evaluate("location.origin"))] == []
    paints = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    log.info("first paint after %d ms", paints)
    # One second is promised on a machine that is idle.
    assert paints < 20_000


def test_what_is_not_offered_is_greyed_with_the_reason(
    opened: Opened, looked_at: Scene, ordered: Scene
) -> None:
    older = opened("overview", of=ordered)
    older.route("**/openapi.json", lambda route: route.fulfill(json={"paths": {}}))
    older.reload()
    for page, why in (
        (older, "does not accept"),
        (opened("overview", of=looked_at), "runs without http_token_file"),
    ):
        page.wait_for_selector(f"button:text-is('Quiesce')[aria-disabled][title*='{why}']")
        button = page.locator("button", has_text="Quiesce").first
        button.focus()
        page.keyboard.press("Enter")
        assert why in page.inner_text("#toasts")
        assert page.locator("dialog[open]").count() == 0


def test_an_order_is_asked_for_and_its_outcome_is_told(opened: Opened, ordered: Scene) -> None:
    page = opened("overview", of=ordered)
    sent: list[tuple[str, str | None]] = []
    page.on(
        "request",
        lambda asked: (
            sent.append((asked.url.rsplit("/", 1)[1], asked.headers.get("authorization")))
            if asked.method == "POST"
            else None
        ),
    )
    page.click("button:text-is('Pause'):not([aria-disabled])")
    page.click("dialog button:text-is('Cancel')")
    assert sent == []
    page.click("button:text-is('Pause')")
    page.click("dialog button:text-is('Pause')")
    page.wait_for_selector("#token")
    assert page.inner_text("dialog p:first-of-type").startswith("The token is in the file")
    assert "null" not in page.inner_text("dialog")
    page.fill("#token", "a wrong one")
    page.click("dialog button:text-is('Continue')")
    page.wait_for_selector("dialog:has-text('The instance refused this token')")
    give(page)
    page.wait_for_selector(".toast[data-kind=ok]")
    assert f"paused by hand: {ordered.topic}-0" in page.inner_text("#toasts")
    assert sent == [
        ("pause", None),
        ("pause", "Bearer a wrong one"),
        ("pause", f"Bearer {TOKEN}"),
    ]
    assert "paused by hand: none" in order(page, "Resume")


def test_a_connection_that_is_lost_is_said_and_comes_back(opened: Opened) -> None:
    page = opened("overview")
    page.route("**/api/v1/stream", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("#link[data-state=lost]")
    assert "No snapshot has arrived yet" in page.inner_text("#notice")
    assert page.inner_text("#screen").split("\n")[-1] == "Waiting for the first snapshot…"
    page.unroute("**/api/v1/stream")
    page.wait_for_selector("#link[data-state=live]")
    assert page.is_hidden("#notice")


def test_what_an_instance_that_has_ended_showed_last_stays_and_is_said_to_be_old(
    embedded_cluster: Cluster, opened: Opened, tmp_path: Path
) -> None:
    topic = f"console-{uuid.uuid4().hex[:8]}"
    with scene(embedded_cluster, topic, busy=False) as ended:
        page = opened("overview", of=ended)
        page.evaluate(AXE)
        snapshots(page, 2)
    page.wait_for_selector("#link[data-state=lost]")
    said = page.inner_text("#notice")
    assert "The page shows the snapshot of" in said
    assert "If the instance has ended, start it again." in said
    assert "records/s" in page.inner_text(".tiles")
    assert page.locator(".stale #screen").count() == 1
    page.screenshot(path=tmp_path / "lost.png", full_page=True)
    assert page.evaluate(SERIOUS) == []


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, "", "has no stream of snapshots"),
        (503, "there are 16 streams already", "there are 16 streams already"),
        (200, 'event: snapshot\ndata: {"version": 2}\n\n', "the instance sends layout 2"),
    ],
)
def test_a_server_that_does_not_fit_is_said(
    status: int, body: str, said: str, opened: Opened
) -> None:
    page = opened("overview")
    page.route("**/api/v1/stream", lambda route: route.fulfill(status=status, body=body))
    page.reload()
    page.wait_for_selector(f"#notice:has-text('{said}')")
    assert page.locator("#screen h1").inner_text() == "Overview"


def test_a_token_is_asked_for_and_sent(opened: Opened) -> None:
    page = opened("overview")
    tokens: list[str | None] = []

    def answer(route: Any) -> None:
        token = route.request.headers.get("authorization")
        tokens.append(token)
        if token == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, body="this needs a token")

    page.route("**/api/v1/stream", answer)
    page.reload()
    page.wait_for_selector("#token")
    page.keyboard.press("Escape")
    page.click("#notice button:text-is('Enter the token')")
    page.fill("#token", "right")
    page.click("dialog button:text-is('Continue')")
    page.wait_for_selector("#link[data-state=live]")
    assert tokens[0] is None
    assert tokens[-1] == "Bearer right"
