"""What is held in memory stays within its bound, whatever part of a record is large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_keyshared.config.options import Options
from kafka_keyshared.local.cluster import Cluster
from tests.support.live import Headers, client_conf, group_name, write

ROOT = Path(__file__).parents[2]
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
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.large_keys", json.dumps(settings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    above = float(done.stdout)
    assert 10 < above < BOUND_MIB
