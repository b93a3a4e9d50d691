"""What a diagnosis makes of a status: one test for each cause, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.observability.diagnosis import hot, judge
from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.observability.diagnosis.findings import Diagnosis, Finding
from kafka_keyshared.observability.diagnosis.judge import diagnose
from tests.support.doctor_survey import blocked, instance, partition, rate, worker

AT = {"topic": "orders", "partition": 1, "offset": 17}
KEY = {"key": "customer-7", "slot": 0x3F2A}


def lane(state: str, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    counts = {"attempts": 3, "archived": False, "waiting": 2, "due_seconds": 4.0}
    error = "TimeoutError at app.py:9: no answer"
    told = {"subscription": "default", "state": state, "seconds": seconds, "error": error}
    return AT | KEY | counts | told | more


def running(seconds: float, **more: Any) -> dict[str, Any]:
    run = AT | KEY | {"seconds": seconds, "where": "at app.py:14", "stack": "  File app.py\n"}
    return worker(0, 17, seconds) | {"running": run, "runs": 1} | more


def held_back(reason: Reason, seconds: float) -> dict[str, Any]:
    return partition(0) | {"held_back": [reason], "held_seconds": [seconds]}


def lately(**more: Any) -> dict[str, Any]:
    told = {"seconds": 60.0, "partitions": 1, "backlog": 50_000, "busy": 0.0, "full": 0.0}
    return told | {"fetched": 6_000, "settled": 6_000} | more


def behind(backlog: int = 60_000) -> dict[str, Any]:
    return partition(0) | {"backlog": backlog, "lag": backlog}


STOOD = {
    "ago_seconds": 4.0,
    "seconds": 21.0,
    "process": True,
    "records": ["orders-1@17 on worker-0"],
}
DRAINING = {"slot": 7, "pending": 1, "blocked": 5, "owner": "worker-1", "seconds": judge.DRAINING}
RIGHT = {
    "topic": "orders",
    "seconds": judge.REFUSED,
    "error": "no",
    "text": "topic orders: READ refused (no). Grant READ on topic orders",
}
OUTAGE = {
    "error": "ConnectionError",
    "where": "app.py:9",
    "message": "refused",
    "seconds": 40.0,
    "probes": 9,
    "probe_in": 1.5,
}
AWAY = {"away": 12, "away_at": ["orders", 1, 17], "missing": ["worker-9"]}
UNREAD = AT | {"records": 4, "error": "OSError: registry", "seconds": judge.UNREAD}
COORDINATOR = {"coordinator": "wait-coord", "coordinator_seconds": judge.COORDINATOR}
HOT = {"records": 900, "hottest": 800, "hottest_key": "customer-7", "hottest_slot": 0x3F2A}

HOT_KEY = {
    "slot": 0x3F2A,
    "key": "customer-7",
    "partitions": [["orders", 0]],
    "waiting": 4_980,
    "share": 0.5,
    "rate": 150.0,
    "capacity": 9.5,
    "seconds": 70.0,
}


def shared(**more: Any) -> dict[str, Any]:
    """Workers that share what waits, of which there is a hot key."""
    told = {"shards": 65, "ready": 3, "held": 4, "hot": 1, "hot_keys": [HOT_KEY]}
    return {"shared": told | more, "records": 6_000}


def hot_held(seconds: float = hot.HELD, **more: Any) -> dict[str, Any]:
    """The partition of the hot key is held back because of it."""
    return {"partitions": [held_back(Reason.WAITING, seconds), partition(1)], "own": shared(**more)}


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "loop-silent": ({"silent_seconds": judge.SILENT}, "has run no round for 10 s"),
    "brokers-away": (
        {"brokers_away_seconds": judge.AWAY, "client_error": "refused"},
        "no broker has answered for 2 s (refused)",
    ),
    "coordinator-lost": ({"client": COORDINATOR}, "has not been reached for 10 s (wait-coord)"),
    "right-refused": (
        {"refused": [RIGHT]},
        "topic orders: READ refused (no). Grant READ on topic orders, for 2 s",
    ),
    "commit-failing": (
        {"commit_failures": 3, "commit_failing_seconds": 4.0, "commit_error": "too large"},
        "3 commits in a row failed, for 4 s: too large",
    ),
    "commit-unanswered": (
        {"commit_waiting_seconds": judge.UNANSWERED},
        "a commit has waited for its answer for 10 s",
    ),
    "dependency-waiting": (
        {"own": {"waiting": OUTAGE}},
        "everything waits for a dependency of the handler, for 40 s: several keys failed with "
        "ConnectionError at app.py:9: refused; 9 probes failed since",
    ),
    "most-attempts-fail": (
        {"own": {"failure_rates": [rate("attempts")]}},
        "97% of the attempts in the last 8 s failed (388 of 400); it began 40 s ago; 85% with "
        "ConnectionError at app.py:9: refused",
    ),
    "dead-lettering-much": (
        {"own": {"failure_rates": [rate("given_up", level="warn", share=0.2, count=100)]}},
        "20% of the records that settled in the last 8 s were dead-lettered or dropped "
        "(100 of 112)",
    ),
    "loop-held": (
        {"standstill": STOOD},
        "the process stood still for 21 s, until 4 s ago; orders-1@17 on worker-0 ran in that time",
    ),
    "dlq-refusing": (
        {"own": {"closed": [lane("dead_lettering", refused=judge.LETTERS, refusal="away")]}},
        "the dead letter of orders-1@17 (key 'customer-7') was refused 2 times: away",
    ),
    "dlq-limit": ({"partitions": [held_back(Reason.DLQ_LIMIT, 0.0)]}, "nothing more of orders-0"),
    "key-unreadable": (
        {"own": {"unreadable_keys": [UNREAD]}},
        "the key of orders-1@17 cannot be read, for 3 s: OSError: registry; 4 records",
    ),
    "handler-stuck": (
        {"workers": [running(9.0, stuck=1)]},
        "orders-1@17 (key 'customer-7') is stuck: on worker-0 for 9 s, at app.py:14",
    ),
    "key-blocked": (
        {"lanes": {"blocked": 2}, "blocked": [blocked(7) | {"slot": 0x3F2A}]},
        "key 'customer-7' is blocked by orders-1@7 for 12 min: KeyError at app.py:6",
    ),
    "worker-absent": (
        {"own": AWAY | {"away_seconds": judge.ABSENT}},
        "12 records from orders-1@17 on wait for worker-9, for 10 s",
    ),
    "rebalance-in-progress": (
        {"rebalance_seconds": judge.REBALANCING},
        "a rebalance has been in progress for 5 s",
    ),
    "no-partitions": (
        {"partitions": [], "started_at": 1_800_000_000.0 - judge.RESERVE},
        "this member has had no partition for 10 s",
    ),
    "handler-slow": (
        {"workers": [running(judge.SLOW)]},
        "orders-1@17 (key 'customer-7') runs long: on worker-0 for 30 s, at app.py:14",
    ),
    "key-diverted": (
        {"lanes": {"diverted": 1}, "own": {"closed": [lane("diverted")]}},
        "key 'customer-7' is diverted",
    ),
    "metadata-full": (
        {"partitions": [held_back(Reason.SET_FULL, judge.FULL)]},
        "orders-0 is fetched, for 5 s: its settled set has no room",
    ),
    "slot-draining": (
        {"workers": [running(6.0, draining=[DRAINING])]},
        "slot 0x0007 has been draining at worker-0, which runs orders-1@17 for 5 s; 5 records",
    ),
    "retry-waiting": (
        {"lanes": {"waiting": 1}, "own": {"closed": [lane("waiting", judge.RETRYING)]}},
        "key 'customer-7' waits for another attempt of orders-1@17, which has failed for 10 s "
        "(3 attempts, next try in 4 s): TimeoutError",
    ),
    "paused-by-hand": ({"partitions": [held_back(Reason.BY_HAND, 0.0)]}, "paused by hand"),
    "report-failing": (
        {"report_failing_seconds": judge.REPORTS, "report_error": "may not write"},
        "the group has had no report of this instance for 15 s: may not write",
    ),
    "hot-key": (
        {"partitions": [behind()], "lately": lately(busy=0.1, full=1.0), "own": HOT},
        "800 of the 900 held are of key 'customer-7'; 10% of the workers were busy",
    ),
    "window-full": (
        {"partitions": [behind()], "lately": lately(busy=0.1, full=1.0)},
        "a backlog of 60,000 has not fallen in 60 s at 100 records/s: the window is full",
    ),
    "workers-limit": (
        {"partitions": [behind()], "lately": lately(busy=0.97, full=1.0)},
        "97% of the workers were busy",
    ),
    "broker-limit": (
        {"partitions": [behind()], "lately": lately(busy=0.1)},
        "6,000 were fetched in that time",
    ),
}


def test_a_hot_key_is_named_when_its_partition_is_held_back_while_others_go_on() -> None:
    found = first(hot_held())
    assert found.code == "hot-key"
    assert found.sentence == (
        "key 'customer-7' has 50% of what arrives, 150 records/s, and one worker runs 9.5 "
        "records/s of it; 4,980 records of it wait, so orders-0 is held back; other partitions go "
        "on"
    )
    assert (found.topic, found.partition, found.seconds) == ("orders", 0, hot.HELD)
    assert (found.key, found.slot, found.count) == ("customer-7", 0x3F2A, 4_980)
    unknown = first(hot_held(hot_keys=[HOT_KEY | {"capacity": None}]))
    assert "150 records/s; 4,980 records of it wait" in unknown.sentence


def test_a_hot_key_is_not_named_by_its_key_without_leave() -> None:
    found = diagnose(instance(**hot_held())).first
    assert found is not None
    assert found.key is None
    assert found.sentence.startswith("a key of slot 0x3f2a has 50% of what arrives")


@pytest.mark.parametrize(
    "told",
    [
        hot_held(seconds=1.0),
        hot_held(hot_keys=[]),
        hot_held(hot_keys=[HOT_KEY | {"waiting": 100}]),
        hot_held(hot_keys=[HOT_KEY | {"partitions": [["orders", 1]]}]),
        hot_held() | {"partitions": [partition(0)]},
        hot_held() | {"partitions": [held_back(Reason.WINDOW, 60.0)]},
    ],
    ids=["a burst", "no hot key", "little of it", "of another partition", "not held", "other"],
)
def test_a_hot_key_that_holds_no_partition_back_is_no_finding(told: dict[str, Any]) -> None:
    assert diagnose(instance(**told)) == Diagnosis()


def test_behind_blocked_keys_a_partition_is_held_back_for_these_and_for_no_hot_one() -> None:
    told = {"partitions": [held_back(Reason.BLOCKED, 60.0)], "own": shared()}
    assert first(told).code == "hot-key", "its records take so long that each is detached"
    told |= {"lanes": {"blocked": 1}, "blocked": [blocked(7)]}
    assert [each.code for each in diagnose(instance(**told)).findings] == ["key-blocked"]


def test_a_hot_key_that_is_named_explains_a_window_that_is_full_and_no_busy_workers() -> None:
    for busy, codes in ((0.1, ["hot-key"]), (0.97, ["hot-key", "workers-limit"])):
        held = held_back(Reason.WAITING, 60.0) | {"backlog": 60_000, "lag": 60_000}
        told = {"partitions": [held], "lately": lately(busy=busy, full=1.0), "own": shared()}
        found = [each.code for each in diagnose(instance(**told)).findings]
        assert found == codes


def test_the_limit_of_a_hot_key_says_its_rate_and_its_capacity() -> None:
    told = dict(CASES["hot-key"][0])
    told["own"] = shared() | HOT
    assert (
        "800 of the 900 held are of key 'customer-7', which has 50% of what arrives, 150 "
        "records/s, and one worker runs 9.5 records/s of it; 10% of the workers were busy"
    ) in first(told).sentence


def test_of_a_detached_record_it_is_said_what_waits_for_it() -> None:
    of = AT | KEY | {"worker": "worker-0", "seconds": 40.0, "waiting": 12}
    told = {"workers": [running(40.0, detached=True)], "own": shared(hot_keys=[], detached=[of])}
    found = first(told)
    assert found.code == "handler-slow"
    assert found.sentence.endswith(
        ", at app.py:14; it is detached: 12 records of its key wait, other keys go on"
    )


def sentence(**more: Any) -> str:
    what = more.pop("what", "attempts")
    return first({"own": {"failure_rates": [rate(what, **more)]}}).sentence


def test_a_rate_is_said_of_where_it_is() -> None:
    assert "97% of the attempts of topic orders in" in sentence(topic="orders")
    assert "97% of the attempts of orders-3 in" in sentence(topic="orders", partition=3)
    assert "records of orders-3 that settled" in sentence(
        what="given_up", topic="orders", partition=3
    )


def test_without_a_success_the_time_without_one_is_said() -> None:
    text = sentence(ok=0, window_seconds=130.0, error_share=1.0)
    assert text.startswith("no attempt has succeeded for 2 min: 388 failed; ")
    assert "; all with ConnectionError at app.py:9: refused" in text
    assert "388 were postponed" in sentence(ok=0, put_off=True)


def test_how_bad_a_rate_is_decides_whether_the_instance_is_healthy() -> None:
    for level, healthy in (("warn", True), ("fail", False)):
        for what in ("attempts", "given_up"):
            found = diagnose(instance(own={"failure_rates": [rate(what, level=level)]}))
            assert found.healthy is healthy
            assert found.text != "healthy"


def test_a_refusal_for_good_counts_at_the_first() -> None:
    refused = lane("dead_lettering", refused=1, refusal="unknown topic", refused_for_good=True)
    found = first({"own": {"closed": [refused]}})
    assert (found.code, found.level) == ("dlq-refusing", "fail")
    assert "was refused 1 time: unknown topic" in found.sentence


def first(told: dict[str, Any]) -> Finding:
    found = diagnose(instance(**told), keys=True).first
    assert found is not None
    return found


@pytest.mark.parametrize("code", CASES)
def test_a_cause_is_named_with_what_it_is_about(code: str) -> None:
    told, sentence = CASES[code]
    found = first(told)
    assert found.code == code
    assert sentence in found.sentence
    assert (found.cause, found.cure) != ("", "")


def test_every_cause_has_a_case_and_a_number_of_its_own() -> None:
    assert {each.code for each in CAUSES} == set(CASES)
    assert len({each.number for each in CAUSES}) == len(CAUSES)
    assert 0 not in {each.number for each in CAUSES}, "which is healthy"


@pytest.mark.parametrize("code", CASES)
def test_without_leave_no_key_is_named_and_its_slot_is(code: str) -> None:
    found = diagnose(instance(**CASES[code][0])).first
    assert found is not None
    assert found.key is None
    assert "customer-7" not in found.sentence
    if first(CASES[code][0]).key is not None:
        assert "a key of slot 0x3f2a" in found.sentence
        assert found.slot == 0x3F2A


def test_the_record_stands_in_the_finding() -> None:
    found = first(CASES["handler-stuck"][0])
    assert (found.topic, found.partition, found.offset) == ("orders", 1, 17)
    assert (found.key, found.slot, found.worker) == ("customer-7", 0x3F2A, "worker-0")
    assert (found.seconds, found.stack) == (9.0, "  File app.py\n")
    assert found.page == "reference/diagnosis.md#handler-stuck"


EVERY_DAY: dict[str, dict[str, Any]] = {
    "nothing to do": {},
    "every worker busy and a backlog that falls": {
        "partitions": [behind(40_000)],
        "lately": lately(busy=1.0, full=1.0),
        "workers": [running(20.0), running(0.1)],
        "own": {"records": 10_000, "hottest": 9_000, "full_seconds": 600.0},
    },
    "a backlog that grows and is soon done": {
        "partitions": [behind(1_200)],
        "lately": lately(busy=1.0, full=1.0, backlog=900, settled=60_000),
    },
    "a backlog of which no minute is known": {"partitions": [behind()]},
    "a backlog that is another's too by now": {
        "partitions": [behind(), behind()],
        "lately": lately(busy=1.0),
    },
    "a window that is full": {"partitions": [held_back(Reason.WINDOW, 500.0)]},
    "shares of a window": {"partitions": [held_back(Reason.SHARE, 500.0)]},
    "a rebalance in order": {"rebalance_seconds": 4.0, "joined": False},
    "a broker that reconnects": {"brokers_away_seconds": 1.5},
    "a right that was missing for a moment": {"refused": [RIGHT | {"seconds": 1.0}]},
    "a commit that was refused once": {"commit_failures": 1, "commit_failing_seconds": 1.0},
    "a commit on its way": {"commit_waiting_seconds": 6.0},
    "a record that is tried again": {
        "lanes": {"waiting": 9},
        "own": {"closed": [lane("waiting", 3.0)]},
    },
    "a letter that was refused once": {"own": {"closed": [lane("dead_lettering", refused=1)]}},
    "a standstill of long ago": {"standstill": STOOD | {"ago_seconds": judge.HELD_FOR + 1}},
    "a slot that drains": {"workers": [running(2.0, draining=[DRAINING | {"seconds": 2.0}])]},
    "a slot that drains and nothing waits": {
        "workers": [running(9.0, draining=[DRAINING | {"blocked": 0}])]
    },
    "a worker that restarts": {"own": AWAY | {"away_seconds": 5.0}},
    "a key that could not be read once": {"own": {"unreadable_keys": [UNREAD | {"seconds": 1.0}]}},
    "a member that has only just come": {"partitions": []},
    "a group without a coordinator yet": {"client": {"coordinator": "init"}},
    "a coordinator that moves": {"client": COORDINATOR | {"coordinator_seconds": 5.0}},
    "a stop": {"phase": "stopping", "silent_seconds": 20.0},
}


@pytest.mark.parametrize("what", EVERY_DAY)
def test_what_happens_every_day_is_no_finding(what: str) -> None:
    assert diagnose(instance(**EVERY_DAY[what])) == Diagnosis()


def test_what_is_to_be_mended_first_stands_first() -> None:
    told: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for code in ("retry-waiting", "key-blocked", "commit-failing", "key-unreadable"):
        case = dict(CASES[code][0])
        own |= case.pop("own", {})
        told |= case
    found = diagnose(instance(**told, own=own))
    codes = ["commit-failing", "key-unreadable", "key-blocked", "retry-waiting"]
    assert [each.code for each in found.findings] == codes
    assert found.text.endswith("(and 3 more)")
    assert not found.healthy


def test_without_a_broker_nothing_is_said_of_what_follows_from_that() -> None:
    told = CASES["brokers-away"][0] | CASES["commit-failing"][0] | CASES["commit-unanswered"][0]
    assert [each.code for each in diagnose(instance(**told)).findings] == ["brokers-away"]


def test_a_coordinator_that_refuses_commits_is_what_is_lost() -> None:
    error = 'KafkaError{code=NOT_COORDINATOR,val=16,str="Broker: Not coordinator"}'
    told = CASES["commit-failing"][0] | {"commit_error": error}
    assert first(told).code == "coordinator-lost"


def test_a_limit_is_none_where_something_else_explains_the_backlog() -> None:
    told = CASES["broker-limit"][0] | {"partitions": [behind() | held_back(Reason.BY_HAND, 1.0)]}
    told["partitions"][0] |= {"backlog": 60_000}
    assert [each.code for each in diagnose(instance(**told)).findings] == ["paused-by-hand"]


def test_what_only_passes_is_still_healthy() -> None:
    assert diagnose(instance(**CASES["retry-waiting"][0])).healthy
    assert not diagnose(instance(**CASES["key-blocked"][0])).healthy
    assert diagnose(instance()).text == "healthy"
