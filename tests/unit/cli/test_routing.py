"""`keyshared routing`: where a key goes, how even the ring is, what a resize moves."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml

from kafka_keyshared.core.routing import ROUTING_VNODES, VnodeRing
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOTS, murmur3_mix32, slot_of
from tests.support.cli import as_user, in_process


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    ended = in_process(capsys, *arguments, "--json")
    assert ended.status == 0, ended.err
    assert ended.err == ""
    return json.loads(ended.out)


def test_a_key_goes_where_the_package_would_send_it(capsys: pytest.CaptureFixture[str]) -> None:
    ring = VnodeRing([f"worker-{index}" for index in range(8)], ROUTING_VNODES)
    for number in range(20):
        key = f"order-{number}"
        found = printed(capsys, "routing", "where", key, "--workers", 8)
        assert found["slot"] == slot_of(key.encode()) == found["hash"] & 0xFFFF
        assert found["worker"] == ring.owner(found["slot"])
        name, _, vnode = found["vnode"].rpartition("-")
        assert name == found["worker"]
        # The vnode named is that worker's, and none stands between the slot and it.
        assert 0 <= int(vnode) < ROUTING_VNODES
        assert ring.vnode(found["slot"]).point == found["vnode_point"]


def test_the_vnode_of_a_slot_is_the_first_at_or_after_it() -> None:
    from kafka_keyshared.hashing import fnv1a_32

    ring = VnodeRing(["a", "b", "c"], vnodes=7)
    points = {
        murmur3_mix32(fnv1a_32(f"{name}-{number}".encode())): (name, number)
        for name in "abc"
        for number in range(7)
    }
    for slot in [*range(0, SLOTS, 977), SLOTS - 1]:
        after = [point for point in points if point >= slot << 16]
        point = min(after or points)
        assert ring.vnode(slot) == (*points[point], point)
    with pytest.raises(IndexError, match=str(SLOTS)):
        ring.vnode(SLOTS)


@pytest.mark.parametrize(
    ("function", "cut"),
    [
        ("mmh3", lambda number: number & 0xFFFF),
        ("fnv1a", lambda number: number >> 16),
        ("pulsar", lambda number: number % SLOTS),
    ],
)
def test_the_slot_is_cut_out_of_the_hash_that_is_shown(
    capsys: pytest.CaptureFixture[str], function: str, cut: Any
) -> None:
    assert function in SLOT_FUNCTIONS
    for key in ("", "a", "ключ", "hex:00ff80", *"bcdefgh"):
        found = printed(capsys, "routing", "where", key, "--slot-function", function)
        assert found["slot"] == cut(found["hash"])
        assert found["slot"] == SLOT_FUNCTIONS[function](bytes.fromhex(found["bytes"]))
        assert found["slot_function"] == function
        assert 0 <= found["hash"] < (1 << 31 if function == "pulsar" else 1 << 32)


def test_a_key_of_sixteen_bytes_has_the_slot_of_celeriant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("routing", "where", "--slot-function", "blake3_u16")
    found = printed(capsys, *asked, "hex:" + "ff" * 16)
    assert (found["slot"], found["hash"]) == (34755, 0x650587C3)
    ended = in_process(capsys, *asked, "order-1")
    assert ended.status == 2
    assert "the key has 7 bytes, and has to have 16; give it as hex:0000" in ended.err
    assert "undecodable" in ended.err


def test_bytes_are_given_in_hex_and_a_null_key_has_no_slot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(capsys, "routing", "where", "hex:6f31")["bytes"] == b"o1".hex()
    assert printed(capsys, "routing", "where", "hex:6f31") == printed(
        capsys, "routing", "where", "o1"
    )
    null = printed(capsys, "routing", "where", "--null")
    assert (null["key"], null["slot"], null["worker"]) == (None, None, None)
    assert "fewest leases" in null["why"]


def test_the_shares_of_eight_workers_are_even_give_or_take_a_quarter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = printed(capsys, "routing", "show", "--workers", 8)["workers"]
    assert [row["name"] for row in rows] == [f"worker-{index}" for index in range(8)]
    assert sum(row["share"] for row in rows) == 1
    assert sum(row["slots"] for row in rows) == SLOTS
    for row in rows:
        assert 0.75 / 8 <= row["share"] <= 1.25 / 8
        assert row["slots"] == row["share"] * SLOTS
        assert row["vnodes"] == ROUTING_VNODES


def test_a_third_worker_takes_about_a_third_of_the_keys_and_the_others_keep_theirs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("routing", "simulate", "--workers", 2, "--add", 1, "--keys", 1000)
    found = printed(capsys, *arguments)
    assert 0.15 <= found["moved_ratio"] <= 0.55
    assert found["moved_ratio"] == found["moved_keys"] / 1000
    assert found["minimum_ratio"] == pytest.approx(1 / 3)
    before = [row["before"] for row in found["workers"]]
    after = [row["after"] for row in found["workers"]]
    assert sum(before) == sum(after) == 1000
    assert before[2] == 0
    assert after[2] == found["moved_keys"], "what moves, moves to the new one"
    assert printed(capsys, *arguments) == found, "the same keys each time"
    assert printed(capsys, *arguments, "--seed", 2) != found


def test_removing_what_was_added_moves_the_same_keys_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = printed(capsys, "routing", "simulate", "--workers", 2, "--add", 1)
    back = printed(capsys, "routing", "simulate", "--workers", 3, "--remove", 1)
    assert back["moved_keys"] == there["moved_keys"]
    assert back["minimum_ratio"] == there["minimum_ratio"]
    swapped = [
        {"name": row["name"], "before": row["after"], "after": row["before"]}
        for row in there["workers"]
    ]
    assert back["workers"] == swapped


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("where",), "give a key"),
        (("where", "k", "--null"), "not both"),
        (("where", "hex:0"), "two hexadecimal digits per byte"),
        (("where", "hex:zz"), "two hexadecimal digits per byte"),
        (("where", "k", "--slot-function", "md5"), "one of mmh3, fnv1a, pulsar"),
        (("where", "k", "--workers", 0), "--workers"),
        (("show", "--vnodes", 0), "--vnodes"),
        (("simulate",), "--add N or --remove N"),
        (("simulate", "--add", 1, "--remove", 1), "--add N or --remove N"),
        (("simulate", "--workers", 2, "--remove", 2), "leaves none of 2 workers"),
        (("simulate", "--add", 1, "--keys", 0), "--keys"),
    ],
)
def test_a_wrong_question_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], said: str
) -> None:
    ended = in_process(capsys, "routing", *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("where", "order-1"), ("hash", "slot", "vnode", "worker-")),
        (("where", "--null"), ("fewest leases",)),
        (("show", "--workers", 3), ("worker-2", "of even", "%")),
        (("simulate", "--add", 2), ("16 workers become 18", "worker-17", "change")),
    ],
)
def test_people_get_a_table(
    capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], shown: tuple[str, ...]
) -> None:
    ended = in_process(capsys, "routing", *arguments)
    assert ended.status == 0
    assert ended.err == ""
    for text in shown:
        assert text in ended.out


def test_yaml_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "routing", "show", "--workers", 2, "-o", "yaml")
    told = printed(capsys, "routing", "show", "--workers", 2)
    assert len(told["workers"]) == 2
    assert yaml.safe_load(ended.out) == told


def test_no_kafka_client_is_loaded() -> None:
    program = (
        "import sys\nfrom kafka_keyshared.cli import main\nstatus = main()\n"
        "print(status, {'confluent_kafka', 'msgspec', 'fastavro'} & set(sys.modules))"
    )
    ended = as_user("routing", "where", "k", "--json", command=(sys.executable, "-c", program))
    assert ended.out.splitlines()[-1] == "0 set()", ended.err


HALVES = ("--range", "worker-0=0-32767", "--range", "worker-1=32768-65535")


def test_the_way_of_a_key_by_ranges_ends_at_the_range_of_its_slot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("routing", "where", "customer-7", "--workers", 2, "--routing", "sticky")
    found = printed(capsys, *asked, *HALVES)
    assert (found["slot"], found["range"], found["worker"]) == (3580, "0-32767", "worker-0")
    found = printed(capsys, *asked, "--range", "worker-1=9-10")
    assert (found["range"], found["worker"]) == ("11-65535", None)
    assert "the slot is in no range" in found["why"]
    found = printed(capsys, *asked, "--range", "away=0-65535")
    assert "absent worker" in found["why"]
    assert "absent worker" in in_process(capsys, *asked, "--range", "away=0-65535").out


def test_a_routing_by_ranges_is_shown_with_who_has_which(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(capsys, "routing", "show", "--workers", 3, "--routing", "sticky", *HALVES[:2])
    assert [(each["name"], each["ranges"], each["slots"]) for each in found["workers"]] == [
        ("worker-0", "0-32767", SLOTS // 2),
        ("worker-1", "", 0),
        ("worker-2", "", 0),
        ("unassigned", "32768-65535", SLOTS // 2),
    ]
    found = printed(capsys, "routing", "show", "--workers", 2, "--routing", "exclusive")
    assert [each["ranges"] for each in found["workers"]] == ["0-65535", ""]
    assert "worker-1" in in_process(capsys, "routing", "show", "--routing", "auto-split").out


def test_weights_are_shown_as_what_they_give(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "routing", "show", "--workers", 2, "--weight", "worker-0=3")
    assert [each["vnodes"] for each in found["workers"]] == [600, 200]
    assert found["workers"][0]["share"] > 0.6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--routing", "hash"), "--routing hash: give ring, sticky, auto-split or exclusive"),
        (("--routing", "unordered"), "other routings assign no slots"),
        (("--range", "worker-0=0-9"), "--range is for --routing sticky, not for ring"),
        (("--routing", "exclusive", "--weight", "worker-0=2"), "--weight is for --routing ring"),
        (("--routing", "exclusive", *HALVES), "ranges are given and routing='exclusive' takes"),
        (("--routing", "sticky", "--range", "0-9"), "--range 0-9: give WORKER="),
        (("--routing", "sticky", *HALVES, *HALVES), "each worker once"),
        (("--weight", "worker-0=much"), "--weight worker-0=much: give a number above 0"),
        (("--weight", "worker-0=-1"), "has the weight -1"),
        (("--routing", "sticky", "--range", "a=0-9", "--range", "b=9-12"), "overlap in 9..9"),
    ],
)
def test_a_routing_that_cannot_be_is_refused(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = in_process(capsys, "routing", "show", *given)
    assert ended.status == 2
    assert said in " ".join(ended.err.split())
