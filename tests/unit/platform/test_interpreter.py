"""What happens on a Python without its lock."""

from __future__ import annotations

import sys

import pytest

from kafka_keyshared import KeyShared, split
from kafka_keyshared.client.consumer import Consumer
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.platform.interpreter import refuse_without_lock

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
REFUSED = "without the interpreter lock.*run it with PYTHON_GIL=1"


@pytest.mark.parametrize("enabled", [True, None])
def test_with_the_lock_nothing_is_refused(
    enabled: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if enabled is None:
        monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    else:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    refuse_without_lock("run()")
    assert refuse_without_lock.__doc__


def test_an_app_refuses_to_run_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    app = KeyShared(CONF, ["t"])
    app.handler(lambda record: None)
    with pytest.raises(ConfigError, match=rf"run\(\).*{REFUSED}"):
        app.run()


def test_nothing_is_split_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    consumer = Consumer(CONF)
    try:
        with pytest.raises(ConfigError, match=rf"split\(\).*{REFUSED}"):
            split(consumer, 2, topics=["t"])
    finally:
        consumer.close()
