"""What a Prometheus has seen, minute by minute, and which alerts that is a case for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tests.web.labels import ENUMERATED
from tests.web.queries import BY_NAME

TARGET = {"namespace": "shop", "job": "billing", "group": "alerts-billing"}
"""The labels of every series besides the instance: those that Prometheus adds, and the group."""

INSTANCE = "instance"

Expected: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]
"""By alert, the labels that it fires with besides those of the target and its severity."""


def one_series(name: str, labels: Mapping[str, str], instance: str = "one") -> str:
    """A series as Prometheus has it."""
    shown = {**TARGET, INSTANCE: instance, **labels}
    inner = ",".join(f'{label}="{value}"' for label, value in shown.items())
    return f"{name}{{{inner}}}"


def series(name: str, instance: str = "one", **labels: str) -> str:
    """One that the package serves, as Prometheus has it; no other can be made."""
    assert labels.keys() == set(BY_NAME[name].labels), name
    for label, value in labels.items():
        assert value in ENUMERATED.get((name, label), (value,)), (name, label, value)
    return one_series(name, labels, instance)


def of_partition(name: str) -> str:
    """The series of the only partition."""
    return series(f"keyshared_{name}", topic="orders", partition="0")


STARTED = series("keyshared_start_time_seconds")
DONE = series("keyshared_records_processed_total", topic="orders", outcome="ok")
DEAD = series("keyshared_records_processed_total", topic="orders", outcome="dead_lettered")
WRITTEN = series("keyshared_dlq_writes_total", topic="orders", result="acknowledged")
REFUSED = series("keyshared_dlq_writes_total", topic="orders", result="failed")
BACKLOG = of_partition("backlog_records")
LAG = of_partition("lag_records")
LAG_SECONDS = of_partition("lag_seconds")
OLDEST = of_partition("partition_oldest_unsettled_seconds")
SAFE = of_partition("partition_safe_offset")
BY_HAND = series("keyshared_partitions_paused_by_hand")
BLOCKED = series("keyshared_closed_lanes", state="blocked")
WAITING = series("keyshared_closed_lanes", state="waiting")
CLOSED = series("keyshared_closed_lane_records")
STUCK = series("keyshared_stuck_records")
ACCEPTED = series("keyshared_commits_total", result="accepted")
AGAIN = series("keyshared_commits_total", result="retry")
POLLS = series("keyshared_poll_interval_used_ratio")
RESTARTS = series("keyshared_worker_restarts_total", worker="worker-0")
DRAINS = series("keyshared_draining_blocked_records")
DRAINED = series("keyshared_drained_slots_total")
HOTTEST = series("keyshared_hottest_key_records")
WINDOW = series("keyshared_unsettled_records")
REVOKED = series("keyshared_rebalances_total", event="revoked")
FAILURES = series("keyshared_diagnosis_failures")
FAILING = series("keyshared_diagnosis", cause="most-attempts-fail")
AWAITED = series("keyshared_diagnosis", cause="dependency-waiting")
GIVEN_UP = series("keyshared_diagnosis", cause="dead-lettering-much")

HEALTHY = {
    STARTED: "1000x90",
    DONE: "0+600x90",  # ten a second
    DEAD: "0x90",
    WRITTEN: "0x90",
    REFUSED: "0x90",
    BACKLOG: "30x90",
    LAG: "30x90",
    LAG_SECONDS: "3x90",
    OLDEST: "1x90",
    SAFE: "0+600x90",
    BY_HAND: "0x90",
    BLOCKED: "0x90",
    WAITING: "0x90",
    CLOSED: "0x90",
    STUCK: "0x90",
    ACCEPTED: "0+60x90",
    AGAIN: "0x90",
    POLLS: "0.001x90",
    RESTARTS: "0x90",
    DRAINS: "0x90",
    DRAINED: "0x90",
    HOTTEST: "4x90",
    WINDOW: "200x90",
    REVOKED: "1x90",
    FAILURES: "0x90",
    FAILING: "0x90",
    AWAITED: "0x90",
    GIVEN_UP: "0x90",
}
PARTITION = {"topic": "orders", "partition": "0"}
HELD = {"KeysharedPositionHeld": [PARTITION]}
STALLED = {"KeysharedStalled": [PARTITION]}
ALONE: Sequence[Mapping[str, str]] = [{}]
TOPIC: Sequence[Mapping[str, str]] = [{"topic": "orders"}]
ONE: Sequence[Mapping[str, str]] = [{INSTANCE: "one"}]

SCENES: Mapping[str, tuple[Mapping[str, str], Expected]] = {
    "all is well": ({}, {}),
    "nothing comes and nothing is left": (
        {DONE: "500x90", BACKLOG: "0x90", LAG: "0x90", SAFE: "500x90", ACCEPTED: "9x90"},
        {},
    ),
    "a wave that is worked off in time": ({BACKLOG: "8000x60 30x30"}, {}),
    "a wave that has only begun": ({BACKLOG: "30x55 60000x35"}, {}),
    "more comes than is done": ({BACKLOG: "0+900x90"}, {"KeysharedBehind": ALONE}),
    "nothing is done any more": (
        {DONE: "0+600x10 6000x80", SAFE: "0+600x10 6000x80", BACKLOG: "0x10 0+600x80"},
        {"KeysharedBehind": ALONE, **STALLED},
    ),
    "the oldest record is from this morning": (
        {LAG_SECONDS: "7200x90"},
        {"KeysharedLagSecondsHigh": TOPIC},
    ),
    "a dependency is away": (
        {FAILING: "0x50 1x40", GIVEN_UP: "0x50 1x40"},
        {"KeysharedMostAttemptsFail": ONE, "KeysharedDeadLetteringMuch": ONE},
    ),
    "a dependency is waited for": (
        {FAILING: "0x50 1x5 0x35", AWAITED: "0x51 1x39"},
        {"KeysharedMostAttemptsFail": ONE},
    ),
    "a dependency was away for a moment": ({FAILING: "0x50 1x1 0x39"}, {}),
    "an old record came by": ({LAG_SECONDS: "3x55 7200x2 3x33"}, {}),
    "one record hangs, the others go on": (
        {
            LAG: "30x10 0+600x80",
            BACKLOG: "30x10 99x80",
            OLDEST: "1x10 0+60x80",
            SAFE: "0+600x10 6000x80",
        },
        HELD,
    ),
    "a record that takes four minutes": ({OLDEST: "240x90"}, {}),
    "one partition is not read": ({SAFE: "0+600x30 18000x60"}, STALLED),
    "one partition has not moved for ten minutes": ({SAFE: "0+600x50 30000x40"}, {}),
    "somebody has paused it for a while": ({SAFE: "0+600x30 18000x60", BY_HAND: "0x30 1x60"}, {}),
    "somebody has paused it and gone home": (
        {SAFE: "900x90", BY_HAND: "1x90"},
        {"KeysharedPausedByHand": ALONE},
    ),
    "a key waits for its retry": ({WAITING: "1x90", CLOSED: "40x90", OLDEST: "30x90"}, {}),
    "a key is blocked": (
        {
            BLOCKED: "0x30 1x60",
            CLOSED: "0x30 0+5x60",
            LAG: "30x30 0+600x60",
            BACKLOG: "0x30 0+5x60",
            OLDEST: "1x30 0+60x60",
        },
        {"KeysharedKeysBlocked": ALONE, **HELD},
    ),
    "a key is blocked and nothing else comes": (
        {
            DONE: "500x90",
            BLOCKED: "1x90",
            CLOSED: "10x90",
            LAG: "90x90",
            BACKLOG: "10x90",
            SAFE: "410x90",
            OLDEST: "1000+60x90",
        },
        {"KeysharedKeysBlocked": ALONE, **HELD},
    ),
    "a record cannot be ended": ({STUCK: "0x30 1x60"}, {"KeysharedRecordsStuck": ONE}),
    "a record could not be ended for a moment": ({STUCK: "0x56 1x3 0x31"}, {}),
    "the first dead letter ever": (
        {DEAD: "0x55 1x35", WRITTEN: "0x55 1x35"},
        {"KeysharedDeadLetters": TOPIC},
    ),
    "a dead letter half an hour ago": ({DEAD: "0x25 1x65", WRITTEN: "0x25 1x65"}, {}),
    "one in ten is a dead letter": (
        {DEAD: "0+66x90", WRITTEN: "0+66x90"},
        {"KeysharedDeadLetters": TOPIC, "KeysharedDlqRate": TOPIC},
    ),
    "one in a hundred is a dead letter": (
        {DEAD: "0+6x90", WRITTEN: "0+6x90"},
        {"KeysharedDeadLetters": TOPIC},
    ),
    "dead letters are refused": ({REFUSED: "0x30 0+2x60"}, {"KeysharedDlqRefused": TOPIC}),
    "one was refused and is written": ({REFUSED: "0x50 1x40", WRITTEN: "0x52 1x38"}, {}),
    "no commit is accepted": (
        {ACCEPTED: "0+60x20 1200x70", AGAIN: "0x20 0+12x70"},
        {"KeysharedCommitFailing": ONE},
    ),
    "one commit in ten is sent again": ({AGAIN: "0+6x90"}, {}),
    "it hardly polls": ({POLLS: "0.1x57 0.9x33"}, {"KeysharedPollIntervalUsed": ONE}),
    "it hardly polled an hour ago": ({POLLS: "0.9x20 0.1x70"}, {}),
    "a worker dies again and again": (
        {RESTARTS: "0x40 0+1x50"},
        {"KeysharedWorkerCrashLoop": ONE},
    ),
    "a worker died twice": ({RESTARTS: "0x50 2x40"}, {}),
    "keys wait for their old worker": (
        {DRAINS: "0x30 12x60", DRAINED: "40x90"},
        {"KeysharedDrainStuck": ONE},
    ),
    "keys change workers all the time": ({DRAINS: "12x90", DRAINED: "0+40x90"}, {}),
    "one key has most of the window": (
        {HOTTEST: "5000x90", WINDOW: "8000x90"},
        {"KeysharedHotKey": ONE},
    ),
    "one key has most of next to nothing": ({HOTTEST: "40x90", WINDOW: "60x90"}, {}),
    "partitions come and go": (
        {REVOKED: "1x40 1+1x50"},
        {"KeysharedRebalanceStorm": ALONE},
    ),
    "a new version is rolled out": ({REVOKED: "1x50 4x40"}, {}),
    "the diagnosis has a cause that needs an operator": (
        {FAILURES: "0x30 1x60"},
        {"KeysharedNeedsOperator": ONE},
    ),
    "the diagnosis had one for a moment": ({FAILURES: "0x52 2x5 0x33"}, {}),
    "the only instance is gone": (
        dict.fromkeys(HEALTHY, "1x40 _x50") | {STARTED: "1000x40 _x50"},
        {"KeysharedGone": ALONE},
    ),
    "it is gone for a moment": ({STARTED: "1000x52 _x4 2000x34"}, {}),
}
"""By name what differs from a healthy instance, and which alerts fire after an hour."""
