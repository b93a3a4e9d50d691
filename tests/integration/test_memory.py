"""What is held in memory stays within its bound, whatever part of a record is large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.config.options import Options
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import Headers, client_conf, group_name, write

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
LARGE = os.urandom(512 << 10)
COUNT = 600
"""300 MiB, several times the bound."""

BOUND_MIB = Options().window_bytes * 1.2 / (1 << 20)


@pytest.mark.parametrize(
    ("key", "headers"), [(LARGE, []), (b"key", [("large", LARGE)])], ids=["keys", "headers"]
)
def test_large_keys_and_headers_stay_within_the_windows_bytes(
    real_cluster: Cluster, topic: str, key: bytes, headers: Headers
) -> None:
    """The client bounds what it fetches ahead by values, of which these have next to nothing."""
    real_cluster.create_topic(topic, 1)
    for _ in range(COUNT // 50):  # in portions: the producer holds 32 MiB at most
        write(real_cluster, topic, [(key, b"v")] * 50, headers=headers)
    settings = {"conf": client_conf(real_cluster, group_name()), "topic": topic}
    above = told_by("large_keys", settings)
    assert 10 < above < BOUND_MIB


def told_by(program: str, settings: dict[str, Any]) -> Any:
    """What a program of this folder says of itself: another process is resident by itself."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.integration.{program}", json.dumps(settings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- records of several MB ---

GIANT_MIB = 4
GIANTS = 96
PARTITIONS = 4
KEYS = 8
WINDOW_MIB = 32
AHEAD_MIB = 8
"""What the client fetches ahead of each partition, and in one response of the broker."""

CLIENT_MIB = (PARTITIONS + 1) * AHEAD_MIB
"""The client has no more than that, and a response that it is taking apart."""

COPIED_MIB = PARTITIONS * AHEAD_MIB
"""What the client hands over is there twice until it lets go of its own: as much as it holds."""


def giant_topic(cluster: Cluster, topic: str) -> None:
    """Make a topic that takes records of that size."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"max.message.bytes": str((GIANT_MIB + 1) * MIB)}
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)]).values()
    made.result(30)
    value = os.urandom(GIANT_MIB * MIB)
    for at in range(GIANTS):
        write(cluster, topic, [(b"key-%d" % (at % KEYS), value)], partition=at % PARTITIONS)


KEY_MIB = 0.01
"""More than the keys of all that is held together."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("most", "leased"),
    [
        ((2 * GIANT_MIB + 1) * MIB, 2 * GIANT_MIB),
        # Less than a record: one goes all the same, and no second one beside it.
        (MIB, GIANT_MIB),
    ],
    ids=["two to a worker", "smaller than a record"],
)
def test_giant_records_stay_within_the_bounds_in_bytes_and_all_are_done_in_order(
    real_cluster: Cluster, topic: str, most: int, leased: int
) -> None:
    giant_topic(real_cluster, topic)
    conf = client_conf(real_cluster, group_name()) | {
        "queued.max.messages.kbytes": AHEAD_MIB << 10,
        "fetch.max.bytes": AHEAD_MIB * MIB,
        "message.max.bytes": AHEAD_MIB * MIB,
    }
    options = {"workers": 4, "window_bytes": WINDOW_MIB * MIB, "prefetch_bytes": most}
    settings = {"conf": conf, "topic": topic, "count": GIANTS, "options": options}
    told = told_by("giant_records", settings)
    # One more record than fits, as nobody knows how large the next one is.
    assert WINDOW_MIB - GIANT_MIB <= told["window_mib"] <= WINDOW_MIB + GIANT_MIB + KEY_MIB
    assert leased <= told["leased_mib"] <= leased + KEY_MIB
    assert told["partition_mib"] <= WINDOW_MIB / 2, "none of four has more than twice its share"
    most_mib = WINDOW_MIB + GIANT_MIB + CLIENT_MIB + COPIED_MIB
    assert told["above_mib"] < most_mib < GIANTS * GIANT_MIB / 3
    ran = told["ran"]
    assert sum(map(len, ran.values())) == GIANTS
    for places in ran.values():
        for number in range(PARTITIONS):
            offsets = [offset for at, offset in places if at == number]
            assert offsets == sorted(offsets)
