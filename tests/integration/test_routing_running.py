"""`keyshared routing show`, `routing assign` and `routing filter` of an instance that runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import Ended, in_process
from tests.support.live_cluster import Member, client_conf, group_name, write

WAIT = 60.0
HALF = SLOTS // 2
RANGES = {"worker-0": f"0-{HALF - 1}", "worker-1": f"{HALF}-60000", "later": "60001-60009"}
LOW = next(key for n in range(99) if slot_of(key := b"low-%d" % n) < HALF)


class Held:
    """A handler that is in its first record until it may go on."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.ran: list[tuple[str, bytes]] = []

    def __call__(self, record: Any) -> None:
        self.began.set()
        self.go_on.wait(WAIT)
        self.ran.append((threading.current_thread().name, record.value()))


@pytest.fixture
def handler() -> Held:
    return Held()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    return path


@pytest.fixture
def member(
    embedded_cluster: Cluster, topic: str, handler: Held, token: Path, eventually: Eventually
) -> Iterator[Member]:
    """Two workers with ranges, a third of which nobody is there for, and one record that runs."""
    embedded_cluster.create_topic(topic, 1)
    found = Member(
        client_conf(embedded_cluster, group_name()),
        [topic],
        handler,
        workers=2,
        routing="sticky",
        ranges=RANGES,
        filters={"worker-1": ["low-*", "high-*"]},
        on_unmatched="hold",
        http_port=0,
        http_token_file=str(token),
    ).start()
    write(embedded_cluster, topic, [(LOW, b"0"), (LOW, b"1")])
    eventually(handler.began.is_set, WAIT)
    eventually(lambda: found.app.http is not None, WAIT)
    yield found
    handler.go_on.set()
    assert found.stop() == 0


def address(member: Member) -> str:
    assert member.app.http is not None
    return member.app.http.url


def shown(capsys: pytest.CaptureFixture[str], member: Member) -> Any:
    ended = in_process(capsys, "routing", "show", "--status-url", address(member), "--json")
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


def assign(capsys: pytest.CaptureFixture[str], member: Member, *words: object) -> Ended:
    return in_process(capsys, "routing", "assign", *words, "--status-url", address(member))


def test_who_has_what_is_shown_and_who_holds_up_a_slot_that_moves(  # noqa: PLR0917 - fixtures
    member: Member,
    handler: Held,
    topic: str,
    token: Path,
    capsys: pytest.CaptureFixture[str],
    eventually: Eventually,
) -> None:
    first = shown(capsys, member)
    rows = {row["name"]: row for row in first["workers"]}
    assert (first["routing"], first["on_unmatched"], first["draining"]) == ("sticky", "hold", [])
    assert {name: (row["ranges"], row["state"]) for name, row in rows.items()} == {
        "worker-0": (f"0-{HALF - 1}", "running"),
        "worker-1": (f"{HALF}-60000", "idle"),
        "later": ("60001-60009", "away"),
    }
    assert rows["worker-1"]["filters"] == ["low-*", "high-*"]
    assert rows["worker-0"]["slots"] == HALF
    low = f"0-{HALF - 1}"
    words = (low, "worker-1", "--take-over", "--token-file", token, "--timeout", 0.2, "--execute")
    late = assign(capsys, member, *words)
    assert late.status == 1
    assert f"assign_range(0, {HALF - 1}, 'worker-1'): not done within 0.2 s" in late.err
    assert "given up" not in late.err
    assert "the rest follows by itself: it waits for 1 running record" in late.err
    (drains,) = shown(capsys, member)["draining"]
    assert (drains["slot"], drains["holder"], drains["owner"]) == (
        slot_of(LOW), "worker-0", "worker-1",
    )  # fmt: skip
    assert (drains["pending"], drains["blocked"]) == (1, 1)
    assert drains["records"] == [f"{topic}-0@0 (runs)"]
    table = in_process(capsys, "routing", "show", "--status-url", address(member))
    assert table.status == 0
    assert "1 slots drain" in table.out
    assert "worker-1" in table.out
    handler.go_on.set()
    eventually(lambda: len(handler.ran) == 2, WAIT)
    assert ["worker-1" in name for name, _ in handler.ran] == [False, True]
    after = shown(capsys, member)
    assert (after["draining"], after["drained"]) == ([], 1)
    assert {row["name"]: row["ranges"] for row in after["workers"]} == {
        "worker-0": "",
        "worker-1": "0-60000",
        "later": "60001-60009",
    }


def test_a_plan_is_printed_and_nothing_moves_without_execute(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = assign(capsys, member, "60001-60020", "worker-0", "--take-over")
    assert ended.status == 0
    assert "60001-60009" in ended.out
    assert "later" in ended.out or "away" in ended.out
    assert ended.err == "nothing has changed; add --execute to make the change\n"
    ended = assign(capsys, member, "61000-61009", "worker-0", "--json")
    assert json.loads(ended.out) == {
        "moves": [{"slots": "61000-61009", "before": "unassigned", "after": "worker-0"}]
    }
    rows = shown(capsys, member)["workers"]
    assert rows[0]["ranges"] == f"0-{HALF - 1}"


def test_with_execute_it_is_done_and_the_ranges_of_then_are_printed(
    member: Member, handler: Held, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.go_on.set()
    words = ("61000-61009", "worker-0", "--token-file", token, "--execute", "--json")
    ended = assign(capsys, member, *words)
    assert ended.status == 0, ended.err
    assert json.loads(ended.out) == {
        "later": "60001-60009",
        "worker-0": f"0-{HALF - 1},61000-61009",
        "worker-1": f"{HALF}-60000",
    }


def test_slots_are_given_to_nobody_shown_so_and_given_to_somebody_again(
    member: Member, handler: Held, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.go_on.set()
    assert shown(capsys, member)["unassigned"] == "60010-65535"
    ended = assign(capsys, member, "59000-61000", "--unassign", "--json")
    assert json.loads(ended.out) == {
        "moves": [
            {"slots": "59000-60000", "before": "worker-1", "after": "unassigned"},
            {"slots": "60001-60009", "before": "away", "after": "unassigned"},
        ]
    }
    everything = ("0-65535", "--unassign", "--token-file", token, "--execute", "--json")
    ended = assign(capsys, member, *everything)
    assert ended.status == 0, ended.err
    assert json.loads(ended.out) == {}
    after = shown(capsys, member)
    assert after["unassigned"] == "0-65535"
    assert {row["name"]: (row["ranges"], row["slots"]) for row in after["workers"]} == {
        "worker-0": ("", 0),
        "worker-1": ("", 0),
    }
    table = in_process(capsys, "routing", "show", "--status-url", address(member))
    assert "without a worker: 0-65535; on_unmatched='hold'" in table.err
    ended = assign(capsys, member, "0-99", "worker-1", "--json")
    assert json.loads(ended.out) == {
        "moves": [{"slots": "0-99", "before": "unassigned", "after": "worker-1"}]
    }
    words = ("0-65535", "worker-0", "--token-file", token, "--execute", "--json")
    assert json.loads(assign(capsys, member, *words).out) == {"worker-0": "0-65535"}
    assert shown(capsys, member)["unassigned"] == ""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("5-9", "worker-1"), 1, "range 0..32767 of worker 'worker-0' and 5..9 of worker "
         "'worker-1' overlap in 5..9: a slot has one owner; shorten one of them, or take the slots "
         "over; --take-over takes them"),
        (("5-9", "nobody"), 1, "range 5..9 is for worker 'nobody', and there is none; give one of"),
        (("5-9",), 2, "routing assign 5-9: give either a WORKER or --unassign"),
        (("5-9", "worker-1", "--unassign"), 2, "assign 5-9: give either a WORKER or --unassign"),
        (("9-5", "worker-1"), 2, "the range 9-5 is inverted"),
        (("0-65536", "worker-1"), 2, "the range 0-65536 is out of bounds"),
        (("", "worker-1"), 2, "a range is empty"),
        (("0-1,3-4", "worker-1"), 2, "routing assign 0-1,3-4: give one range, such as 0-1"),
        (("61000-61009", "worker-1", "--execute"), 2, "assign --execute: give --token-file"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_both_parties_before_anything_is_asked_for(
    member: Member,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    ended = assign(capsys, member, *words)
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err
    assert shown(capsys, member)["workers"][0]["ranges"] == f"0-{HALF - 1}"


def filtering(capsys: pytest.CaptureFixture[str], member: Member, *words: object) -> Ended:
    return in_process(capsys, "routing", "filter", *words, "--status-url", address(member))


def takes(capsys: pytest.CaptureFixture[str], member: Member) -> dict[str, list[str]]:
    return {row["name"]: row["filters"] for row in shown(capsys, member)["workers"]}


def test_filters_are_planned_and_with_execute_given_while_it_runs(
    member: Member, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"worker-0": [], "worker-1": ["low-*", "high-*"], "later": []}
    assert takes(capsys, member) == before
    ended = filtering(capsys, member, "worker-0", "ship-*", "high-?", "--json")
    assert ended.status == 0, ended.err
    rows = {row["worker"]: row for row in json.loads(ended.out)["workers"]}
    assert rows["worker-0"]["takes"] == []
    assert rows["worker-0"]["would_take"] == ["ship-*", "high-?"]
    assert rows["worker-1"]["takes"] == rows["worker-1"]["would_take"] == ["low-*", "high-*"]
    table = filtering(capsys, member, "worker-0", "ship-*")
    assert (table.status, "nothing has changed; add --execute to make the change" in table.err) == (
        0,
        True,
    )
    assert takes(capsys, member) == before
    words = ("worker-0", "ship-*", "--token-file", token, "--execute", "--json")
    ended = filtering(capsys, member, *words)
    assert json.loads(ended.out) == {"worker-0": ["ship-*"], "worker-1": ["low-*", "high-*"]}
    assert takes(capsys, member)["worker-0"] == ["ship-*"]
    every = ("worker-0", "--every-key", "--token-file", token, "--execute", "--json")
    ended = filtering(capsys, member, *every)
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["worker-0"] == []
    assert takes(capsys, member) == before


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("worker-7", "a*"), 1, "there is no worker 'worker-7'; give one of "
         "worker-0, worker-1, later, or let it join first"),
        (("worker-0",), 2, "routing filter worker-0: give either patterns or --every-key"),
        (("worker-0", "a*", "--every-key"), 2, "give either patterns or --every-key"),
        (("worker-0", "a*", "--execute"), 2, "routing filter --execute: give --token-file"),
    ],
)  # fmt: skip
def test_filters_that_cannot_be_are_refused_by_name(
    member: Member,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    ended = filtering(capsys, member, *words)
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err


def test_a_wrong_token_is_refused_by_the_instance(
    member: Member, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("fedcba9876543210\n")
    words = ("61000-61009", "worker-0", "--token-file", wrong, "--execute")
    ended = assign(capsys, member, *words)
    assert ended.status == 1
    assert "this needs 'Authorization: Bearer' with the instance's token" in ended.err
    assert shown(capsys, member)["workers"][0]["ranges"] == f"0-{HALF - 1}"


def test_who_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (("show",), ("assign", "0-9", "worker-0"), ("filter", "worker-0", "a*")):
        ended = in_process(capsys, "routing", *verb, "--status-url", "http://127.0.0.1:9")
        assert ended.status == 1
        assert "http://127.0.0.1:9/status" in ended.err
        assert "no answer: " in ended.err
    ended = in_process(capsys, "routing", "assign", "0-9", "worker-0")
    assert ended.status == 2
    assert "give --status-url" in ended.err


def test_where_a_record_of_a_key_runs_is_said_with_its_home(
    embedded_cluster: Cluster,
    topic: str,
    handler: Held,
    capsys: pytest.CaptureFixture[str],
    eventually: Eventually,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], handler, workers=2, http_port=0).start()
    try:
        write(embedded_cluster, topic, [(LOW, b"0"), (LOW, b"1")])
        eventually(handler.began.is_set, WAIT)
        eventually(lambda: member.app.http is not None, WAIT)

        def where() -> Any:
            url = address(member)
            ended = in_process(
                capsys, "routing", "where", LOW.decode(), "--status-url", url, "--json"
            )
            assert ended.status == 0, ended.err
            return json.loads(ended.out)

        # Another record of the key waits for it: so it is detached.
        eventually(lambda: [each["state"] for each in where()["now"]] == ["detached"], WAIT)
        told = where()
        (now,) = told["now"]
        assert (now["record"], now["waiting"]) == (f"{topic}-0@0", 1)
        assert {told["worker"], now["worker"]} <= {"worker-0", "worker-1"}
        assert "by the ring; workers share waiting records" in told["why"]
        handler.go_on.set()
        eventually(lambda: where()["now"] == [], WAIT)
    finally:
        handler.go_on.set()
        assert member.stop() == 0
