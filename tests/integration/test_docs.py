"""Every command and every block of code in the documents is run, or is listed here with the reason.

How a page says what is to happen with a block stands in tests/support/pages.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conftest import _require_kafka
from tests.integration.page_blocks import Reader, Shell
from tests.support import pages
from tests.support.live_cluster import write
from tests.support.pages import Block, Note, PageError

NOT_RUN: Mapping[str, str] = {
    "make demo": "test_wheel.py runs all of it, without another start of pip",
    "make test": "is what runs this test",
    "kafka-topics.sh ": "needs Kafka's own scripts; the same topics are made in Python beside it",
    "make kafka": "the test's own broker stands at its address",
    "python -m pip install ": "test_wheel.py installs the package into an environment",
    ".venv/bin/keyshared demo --console": "ended early it has judged nothing, and fails",
    "docker ": "needs a container engine; tests/helm reads the Dockerfile",
    "helm ": "needs a cluster; tests/helm renders the chart and runs what comes out",
    "kubectl ": "needs a cluster; it restarts pods",
}
"""Beginnings of commands that no page's test runs, and why. One that no page has fails below."""

PAGES = {pages.name_of(path): pages.parse(path.read_text("utf-8")) for path in pages.documents()}
RUN = sorted(page for page, items in PAGES.items() if any(isinstance(i, Block) for i in items))


class PagesBroker:
    """A broker for the documents alone: they all use the same names of topics and groups.

    A page that failed may have left a consumer behind that was killed. Its group has a member
    until the session ends, so the page after it gets another broker.
    """

    def __init__(self) -> None:
        self.cluster = RealCluster()

    def empty(self) -> RealCluster:
        """The broker, without the topics and groups of the page before, and running."""
        if not self.cluster.pids:
            self.cluster.restart()
        try:
            remove_groups_and_topics(self.cluster.bootstrap)
        except KafkaException:
            self.cluster.close()
            self.cluster = RealCluster()
        return self.cluster


def remove_groups_and_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = [each.group_id for each in admin.list_consumer_groups().result(60).valid]
    topics = [name for name in admin.list_topics(timeout=60).topics if not name.startswith("__")]
    removals = list(admin.delete_consumer_groups(groups).values()) if groups else []
    removals += list(admin.delete_topics(topics, operation_timeout=60).values()) if topics else []
    for removal in removals:
        removal.result(60)


@pytest.fixture(scope="module")
def pages_broker() -> Iterator[PagesBroker]:
    _require_kafka()
    broker = PagesBroker()
    yield broker
    broker.cluster.close()


@pytest.fixture
def empty_broker(pages_broker: PagesBroker) -> RealCluster:
    return pages_broker.empty()


def orders(count: int) -> list[tuple[bytes, bytes]]:
    """Records as the pages speak of them: orders of 20 customers, in JSON."""
    return [
        (
            b"customer-%d" % (number % 20),
            b'{"order": %d, "customer": "customer-%d", "amount": %d}'
            % (number, number % 20, number * 7 % 100),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(page: str, empty_broker: RealCluster, tmp_path: Path) -> None:
    address = empty_broker.bootstrap

    def make_topic(name: str, count: int) -> None:
        empty_broker.create_topic(name, 4)
        write(empty_broker, name, orders(count))

    def broker(what: str) -> None:
        {"goes": empty_broker.kill, "comes": empty_broker.restart}[what]()

    ports = dict(zip(("8787", "8788"), map(str, free_ports(2)), strict=True))
    instead = {"localhost:9092": address, "127.0.0.1:9092": address, **ports}
    with Reader(
        page,
        tmp_path,
        instead=instead,
        not_run=list(NOT_RUN),
        make_topic=make_topic,
        broker=broker,
    ) as reader:
        reader.read(PAGES[page])
    assert reader.done == len(PAGES[page])


def unused(not_run: Iterable[str], items: Iterable[Note | Block]) -> list[str]:
    """The beginnings with which no command of these blocks begins."""
    shell = [each for each in items if isinstance(each, Block) and each.language == "sh"]
    commands = [line for block in shell for line in block.text.splitlines()]
    return [start for start in not_run if not any(line.startswith(start) for line in commands)]


def test_every_command_that_is_not_run_stands_in_a_page() -> None:
    everything = [item for items in PAGES.values() for item in items]
    assert unused(NOT_RUN, everything) == [], "strike them from NOT_RUN"
    assert all(len(reason.split()) > 3 for reason in NOT_RUN.values())


# --- that it would be noticed ---


def test_a_page_that_leaves_a_member_behind_costs_the_next_page_nothing(
    pages_broker: PagesBroker,
) -> None:
    before = pages_broker.empty()
    before.create_topic("orders", 1)
    conf = {"bootstrap.servers": before.bootstrap, "group.id": "billing"}
    left_behind = Consumer(conf | {"auto.offset.reset": "earliest"})
    joined = threading.Event()
    left_behind.subscribe(["orders"], on_assign=lambda _consumer, _partitions: joined.set())
    while not joined.is_set():
        left_behind.poll(0.1)
    after = pages_broker.empty()
    left_behind.close()
    assert "orders" not in AdminClient({"bootstrap.servers": after.bootstrap}).list_topics().topics


def read(text: str, tmp_path: Path, *not_run: str) -> Reader:
    with Reader("page.md", tmp_path, instead={"here:1": "there:2"}, not_run=not_run) as reader:
        reader.read(pages.parse(text))
    return reader


def fenced(language: str, text: str, note: str = "") -> str:
    above = f"<!-- run: {note} -->\n" if note else ""
    return f"# Page\n\n{above}```{language}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (fenced("python", "x = 1\nraise ValueError(x)"), 'page.md", line 5'),
        (fenced("python", "def f(:", "file app.py"), "page.md:5: not python"),
        (fenced("python", "import os\nos._exit(3)"), "the interpreter ended"),
        (fenced("sh", "true\nfalse\ntrue"), "page.md:4: ended with 1 and not with 0"),
        (fenced("sh", "exit 2", "exit 3"), "ended with 2 and not with 3"),
        (fenced("sh", "exit 0", "exit 3"), "ended with 0 and not with 3"),
        (fenced("sh", "no-such-command"), "no-such-command: command not found"),
        (fenced("sh", "echo caught down", "until 'caught up'"), "'caught up' did not come"),
        (fenced("sh", "echo ready; exit 1", "until ready"), "ended"),
        (fenced("sh", "echo ready; exec sleep 600", "until ready"), "ended with -2"),
        (fenced("sh", "echo ready; exec sleep 600", "beside until ready"), "ended with -2"),
        (fenced("toml", "wrokers = 8"), "wrokers"),
        (fenced("toml", "workers ="), "not TOML"),
        (fenced("toml", "a =", "file pyproject.toml"), "page.md:5: not toml"),
        (fenced("json", "{'a': 1}"), "page.md:4: not json"),
        (fenced("yaml", "a: [1"), "page.md:4: not yaml"),
        (fenced("text", "anything", "output"), "nothing ran"),
        (fenced("rust", "fn main() {}"), "a block of rust: nobody checks it"),
        (fenced("", "anything"), "a block of no language"),
        ("<!-- run: topic orders 5 -->\n", "page.md:1: there is no broker"),
        ("<!-- run: broker goes until away -->\n", "page.md:1: there is no broker"),
    ],
)
def test_a_planted_broken_block_is_found(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PageError) as failure:
        read(text, tmp_path)
    assert said in str(failure.value)


def test_a_planted_entry_that_no_page_needs_is_found() -> None:
    items = pages.parse(fenced("sh", "make test\nmake docs") + fenced("text", "helm install x"))
    assert unused(["make test", "helm install", "test"], items) == ["helm install", "test"]


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("settled 20", True),
        ("settled … lag 0", False),
        ("first\nsettled 20", True),
        ("first\n…\nlast, 3 s", True),
        ("first\n…\nlast, …", True),
        ("first\nlast, 3 s", False),
        ("irst", False),
        ("settled", False),
    ],
)
def test_an_output_is_compared_with_what_came(shown: str, same: bool, tmp_path: Path) -> None:
    text = fenced("sh", "echo first\necho settled 20 >&2\necho last, 3 s") + fenced(
        "text", shown, "output"
    )
    if same:
        read(text, tmp_path)
    else:
        with pytest.raises(PageError, match=r"page\.md:12: what came was another text"):
            read(text, tmp_path)


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("done: 1,000 orders in 3.2 s (310/s), 4 failed", True),
        ("done: 1,000 orders in 3.2 s (1,310/s), 4 failed", True),
        ("done: 1,000 orders in 3 s (310/s), 4 failed", False),
        ("done: 1,001 orders in 3.2 s (310/s), 4 failed", False),
        ("done: 1,000 orders in 3.2 s (310/s), 5 failed", False),
    ],
)
def test_measured_numbers_are_others_each_time(shown: str, same: bool, tmp_path: Path) -> None:
    text = fenced("sh", "echo 'done: 1,000 orders in 20.75 s (48/s), 4 failed'")
    text += fenced("text", shown, "output measured")
    if same:
        read(text, tmp_path)
    else:
        with pytest.raises(PageError, match="what came was another text"):
            read(text, tmp_path)


def test_what_was_printed_can_be_looked_at_by_the_page(tmp_path: Path) -> None:
    text = fenced("sh", "echo took 7 s") + "<!-- run: python\nassert 'took 7 s' in printed\n-->\n"
    read(text, tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(PageError, match="AssertionError"):
        read(text.replace("took 7 s' in", "took 8 s' in"), again)


def test_blocks_of_a_page_are_one_script_and_share_a_directory(tmp_path: Path) -> None:
    page = "".join(
        [
            "<!-- run: python\nsecret = 41\n-->\n",
            fenced("python", "answer = secret + 1\nprint(answer)"),
            fenced("text", "42", "output"),
            fenced("python", "print('here:1')", "file part/app.py"),
            fenced("sh", "python part/app.py"),
            fenced("text", "there:2", "output"),
            fenced("sh", "make test\nmake \\\n  more; exit 7\necho done"),
            fenced("text", "done", "output"),
        ]
    )
    reader = read(page, tmp_path, "make ")
    assert reader.left_out == {"make "}


def test_what_stays_beside_is_heard_when_the_broker_goes_and_comes(tmp_path: Path) -> None:
    done: list[str] = []

    def broker(what: str) -> None:
        done.append(what)
        (tmp_path / what).touch()

    beside = (
        "trap 'exit 0' INT\necho ready\nuntil test -e goes; do sleep 0.05; done\necho away\n"
        "until test -e comes; do sleep 0.05; done\necho back\nwhile true; do sleep 0.05; done"
    )
    text = (
        fenced("sh", beside, "beside until ready")
        + "<!-- run: broker goes until away -->\n<!-- run: broker comes until back -->\n"
        + fenced("text", "away\nback", "output")
    )
    with Reader("page.md", tmp_path, broker=broker) as reader:
        reader.read(pages.parse(text))
    assert done == ["goes", "comes"]


def test_what_should_stay_and_ends_by_itself_is_found(tmp_path: Path) -> None:
    (item,) = pages.parse(fenced("sh", "echo ready", "until ready"))
    assert isinstance(item, Block)
    with Reader("page.md", tmp_path) as reader:
        shell = Shell(item.text, tmp_path, reader.environment)
        assert shell.wait() == 0
        with pytest.raises(PageError, match="it ended by itself"):
            reader.end(item, shell)


def test_what_stays_beside_is_stopped_at_the_end_of_the_page(tmp_path: Path) -> None:
    beside = "trap 'echo stopped > ended; exit 0' INT\necho ready\nwhile true; do sleep 0.05; done"
    text = fenced("sh", beside, "beside until ready") + fenced("sh", "test ! -e ended")
    read(text, tmp_path)
    assert (tmp_path / "ended").read_text() == "stopped\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- run: sideways -->\n", "a note begins with one of"),
        ("<!-- run: until -->\n```sh\ntrue\n```\n", "until what?"),
        ("<!-- run: beside -->\n```sh\ntrue\n```\n", "beside needs until"),
        ("<!-- run: exit 3 -->\nprose\n```sh\n```\n", "line 1: the note is not followed by"),
        ("<!-- run: exit 3 -->\n", "line 1: the note is not followed by a block"),
        ("<!-- run: exit 3 -->\n<!-- run: exit 2 -->\n```sh\n```\n", "two notes"),
        ("prose <!-- run: exit 3 -->\n", "alone on its line"),
        ("<!-- run: python -->\n", "has lines of its own"),
        ("<!-- run: broker falls until away -->\n", "broker goes until what"),
        ("<!-- run: broker goes -->\n", "broker goes until what"),
        ("<!-- run: python\nx = 1\n", "the comment does not end"),
        ("```sh\ntrue\n", "the block does not end"),
    ],
)
def test_a_note_that_nobody_understands_is_found(text: str, said: str) -> None:
    with pytest.raises(PageError, match=said):
        pages.parse(text)
