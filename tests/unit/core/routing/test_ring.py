"""The vnode ring: the table, the shares, what moves, and what is refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import kafka_keyshared.hashing
from kafka_keyshared.core.routing import ROUTING_VNODES, Unowned, VnodeRing, moved
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, fnv1a_32, murmur3_mix32, slot_of
from tests.support.records import record


def names(count: int) -> list[str]:
    return [f"worker-{i}" for i in range(count)]


def owner_by_search(workers: list[str], slot: int, vnodes: int = 100) -> str:
    """Take the first vnode at or after the slot's point, else the first of all."""
    points = [
        (murmur3_mix32(fnv1a_32(f"{name}-{i}".encode())), name)
        for name in workers
        for i in range(vnodes)
    ]
    after = [vnode for vnode in points if vnode[0] >= slot * 65536]
    return min(after or points)[1]


def test_the_table_is_the_rule_applied_to_each_slot() -> None:
    workers = names(5)
    ring = VnodeRing(workers)
    table = ring.table()
    assert len(table) == SLOTS
    for slot in [0, 1, 65534, 65535, *range(7, SLOTS, 331)]:
        assert workers[table[slot]] == owner_by_search(workers, slot) == ring.owner(slot)


def test_slots_behind_the_last_vnode_wrap_to_the_first() -> None:
    ring = VnodeRing(["a", "b"], vnodes=1)
    table = ring.table()
    assert table[65535] == table[0]
    assert [ring.workers[index] for index in table[::4096]] == [
        owner_by_search(["a", "b"], slot, vnodes=1) for slot in range(0, SLOTS, 4096)
    ]


def test_a_vnode_on_the_very_point_of_a_slot_owns_the_slot() -> None:
    # This name was found by search: its only vnode is the point of slot 0xC545.
    assert murmur3_mix32(fnv1a_32(b"w77875-0")) == 0xC545_0000
    ring = VnodeRing(["w77875", "a"], vnodes=1)
    assert ring.owner(0xC545) == "w77875"
    assert ring.workers[ring.table()[0xC545]] == "w77875"
    assert ring.owner(0xC546) == "a"
    assert ring.workers[ring.table()[0xC546]] == "a"


def test_one_worker_owns_everything() -> None:
    assert VnodeRing(["only"]).table() == [0] * SLOTS
    assert VnodeRing(["only"]).share() == {"only": 1.0}


def test_the_table_of_eight_workers_never_changes() -> None:
    assert zlib.crc32(bytes(VnodeRing(names(8)).table())) == 2361188418


def test_two_vnodes_on_one_point_go_to_the_first_name_in_any_order() -> None:
    # These two names were found by search: their only vnode is the same point.
    assert murmur3_mix32(fnv1a_32(b"ucnoab-0")) == murmur3_mix32(fnv1a_32(b"tjudct-0"))
    for workers in (["ucnoab", "tjudct"], ["tjudct", "ucnoab"]):
        ring = VnodeRing(workers, vnodes=1)
        assert {ring.workers[index] for index in ring.table()} == {"tjudct"}
        assert ring.owner(0) == "tjudct"
        assert ring.share() == {"tjudct": 1.0, "ucnoab": 0.0}


def test_a_third_worker_moves_15_to_55_percent_of_a_thousand_keys() -> None:
    two = VnodeRing(names(2))
    changed = set(moved(two, two.with_worker("worker-2")))
    keys = sum(slot_of(f"key-{i}".encode()) in changed for i in range(1000))
    assert 150 <= keys <= 550


def test_eight_workers_own_an_eighth_each_give_or_take_a_quarter() -> None:
    shares = VnodeRing(names(8)).share()
    assert list(shares) == names(8)
    assert sum(shares.values()) == 1.0
    assert all(0.75 / 8 <= share <= 1.25 / 8 for share in shares.values())


def test_an_added_worker_only_takes_and_a_removed_one_only_gives() -> None:
    before = VnodeRing(names(4))
    after = before.with_worker("worker-4")
    taken = moved(before, after)
    assert taken
    assert {after.owner(slot) for slot in taken} == {"worker-4"}
    assert moved(after, after.without_worker("worker-4")) == taken
    given = moved(before, before.without_worker("worker-1"))
    assert {before.owner(slot) for slot in given} == {"worker-1"}
    assert len(given) == round(before.share()["worker-1"] * SLOTS)


def test_changes_make_new_rings_and_leave_the_old_one_alone() -> None:
    ring = VnodeRing(names(2), vnodes=7)
    table = ring.table()
    assert ring.with_worker("x").workers == ("worker-0", "worker-1", "x")
    assert ring.with_worker("x").vnodes == 7
    assert ring.with_worker("x").without_worker("x") == ring
    ring.table()[0] = 99
    assert ring.workers == ("worker-0", "worker-1")
    assert ring.table() == table
    with pytest.raises(AttributeError):
        ring.vnodes = 3  # type: ignore[misc]


def test_a_ring_travels_to_another_process() -> None:
    ring = VnodeRing(names(3))
    copy = pickle.loads(pickle.dumps(ring))
    assert copy == ring
    assert copy.table() == ring.table()


def test_the_table_does_not_depend_on_the_hash_seed() -> None:
    root = Path(kafka_keyshared.hashing.__file__).parents[1]
    code = (
        "import zlib; from kafka_keyshared.core.routing import VnodeRing; "
        "ring = VnodeRing(list({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})); "
        "print(zlib.crc32(''.join(ring.workers[index] for index in ring.table()).encode()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1")
    }
    ring = VnodeRing(["epsilon", "delta", "gamma", "beta", "alpha"])
    owners = "".join(ring.workers[index] for index in ring.table())
    assert outputs == {f"{zlib.crc32(owners.encode())}\n"}


@pytest.mark.parametrize(
    ("workers", "vnodes", "said"),
    [
        ([], 100, "no workers"),
        (["a", "b", "a"], 100, "'a'"),
        (["a", ""], 100, "number 1"),
        (["a"], 0, "vnodes=0"),
        (["a"], -3, "vnodes=-3"),
    ],
)
def test_a_ring_that_cannot_be_is_refused(workers: list[str], vnodes: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        VnodeRing(workers, vnodes)


def test_impossible_changes_and_slots_are_refused() -> None:
    ring = VnodeRing(["a"])
    with pytest.raises(ConfigError, match="'a'"):
        ring.with_worker("a")
    with pytest.raises(ConfigError, match="'z' is not in the ring"):
        ring.without_worker("z")
    with pytest.raises(ConfigError, match="no workers"):
        ring.without_worker("a")
    for slot in (-1, SLOTS):
        with pytest.raises(IndexError, match=str(slot)):
            ring.owner(slot)


# --- weights ---


def test_a_worker_of_twice_the_weight_has_twice_the_vnodes_and_about_twice_the_slots() -> None:
    ring = VnodeRing(names(8), weights={"worker-3": 2})
    assert [ring.count(name) for name in names(8)] == [100, 100, 100, 200, 100, 100, 100, 100]
    even = 1 / 9
    for name, share in ring.share().items():
        assert share == pytest.approx(even * (2 if name == "worker-3" else 1), rel=0.25), name


def test_a_weight_of_one_is_the_ring_without_weights() -> None:
    assert VnodeRing(names(4), weights=dict.fromkeys(names(4), 1)) == VnodeRing(names(4))
    assert VnodeRing(names(4), weights={"worker-1": 1.0}).table() == VnodeRing(names(4)).table()
    assert VnodeRing(names(4), weights={"worker-1": 2}) != VnodeRing(names(4))


def test_more_weight_only_takes_and_less_only_gives() -> None:
    light, heavy = VnodeRing(names(4)), VnodeRing(names(4), weights={"worker-1": 3})
    taken = moved(light, heavy)
    assert {heavy.owner(slot) for slot in taken} == {"worker-1"}
    half = VnodeRing(names(4), weights={"worker-1": 0.5})
    assert {light.owner(slot) for slot in moved(light, half)} == {"worker-1"}
    assert half.count("worker-1") == 50


def test_weights_stay_with_their_workers_through_changes() -> None:
    ring = VnodeRing(names(2), 10, {"worker-0": 3}).with_worker("x", 0.2)
    assert ring.weights == (3, 1, 0.2)
    assert (ring.count("x"), ring.count("worker-0")) == (2, 30)
    assert ring.without_worker("worker-1").weights == (3, 0.2)


def test_a_worker_that_comes_back_has_the_weight_that_it_had_unless_another_is_given() -> None:
    ring = VnodeRing(names(3), 10, {"worker-0": 3, "worker-2": 0.5})
    away = ring.without_worker("worker-0").without_worker("worker-2")
    assert away == VnodeRing(["worker-1"], 10), "who is away counts for nothing meanwhile"
    back = away.with_worker("x").with_worker("worker-2").with_worker("worker-0")
    assert back.weights == (1, 1, 0.5, 3)
    assert back.without_worker("x").table() == VnodeRing(back.workers[:1] + back.workers[2:], 10,
        {"worker-0": 3, "worker-2": 0.5}).table()  # fmt: skip
    assert away.with_worker("worker-0", 2).weights == (1, 2)
    again = away.with_worker("worker-0", 2).without_worker("worker-0").with_worker("worker-0")
    assert again.weights == (1, 2), "and has that from then on"
    once = VnodeRing(names(2), 10, {"worker-0": 3}).without_worker("worker-0")
    assert once.with_worker("worker-0", 1).without_worker("worker-0").with_worker(
        "worker-0"
    ).weights == (1, 1)


def test_however_small_its_weight_a_worker_has_a_vnode() -> None:
    assert VnodeRing(["a", "b"], weights={"b": 0.0001}).count("b") == 1


def test_a_vnode_of_a_heavy_worker_is_told_by_its_number() -> None:
    ring = VnodeRing(["a", "b"], 1, {"a": 50})
    numbers = {ring.vnode(slot).number for slot in range(0, SLOTS, 7)}
    assert max(numbers) > 40


@pytest.mark.parametrize("weight", [0, -1, 0.0, float("nan"), float("inf"), True, "2", None])
def test_a_weight_that_is_no_number_above_zero_is_refused_by_name(weight: object) -> None:
    with pytest.raises(ConfigError, match=r"worker 'b' of the ring has the weight .* above 0"):
        VnodeRing(["a", "b"], weights={"b": weight})  # type: ignore[dict-item]
    if weight is not None:  # none is the one that it had
        with pytest.raises(ConfigError, match="worker 'b' of the ring"):
            VnodeRing(["a"]).with_worker("b", weight)  # type: ignore[arg-type]


def test_a_weight_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"weight for 'z' and no such worker; .* a, b"):
        VnodeRing(["a", "b"], weights={"z": 2})


def test_among_some_of_its_workers_a_slot_goes_where_a_ring_of_those_would_send_it() -> None:
    ring, alone = VnodeRing(names(5)), VnodeRing(["worker-3", "worker-1"])
    some = frozenset(["worker-1", "worker-3", "who is not there"])
    for slot in [0, SLOTS - 1, *range(3, SLOTS, 211)]:
        assert ring.owner_among(slot, some) == alone.owner(slot)
    assert ring.owner_among(0, frozenset(["who is not there"])) is Unowned.AWAY


# --- where records are routed ---


@pytest.mark.parametrize("count", [2, 3, 8, 16, 20, 64])
def test_where_records_are_routed_each_worker_has_its_part_give_or_take_a_fifth(count: int) -> None:
    shares = VnodeRing(worker_names(count), ROUTING_VNODES).share()
    assert max(abs(share * count - 1) for share in shares.values()) <= 0.2


def test_records_are_routed_by_that_ring() -> None:
    settings = SubscriptionSettings(workers=worker_names(20))
    ring = VnodeRing(worker_names(20), ROUTING_VNODES)
    sub = Subscription(settings)
    keys = [b"key-%d" % number for number in range(200)]
    assert [sub.routing.owner(record(0, key)).name for key in keys] == [
        ring.owner(slot_of(key)) for key in keys
    ]
    assert list(sub.table.shares.values()) == list(ring.share().values())
