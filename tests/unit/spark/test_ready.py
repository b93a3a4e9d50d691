"""What is refused before Spark is started."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.driver import ready
from kafka_keyshared.spark.driver.group import GroupActiveError
from kafka_keyshared.spark.driver.ready import require_ready
from kafka_keyshared.testing import record

pytest.importorskip("pyspark")

from pyspark import cloudpickle

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


class Stateful:
    def handle(self, record: Any) -> None: ...

    def release(self, slots: Any) -> Any: ...

    def adopt(self, slots: Any, state: Any) -> None: ...


def holding_a_lock() -> Callable[[Any], None]:
    lock = threading.Lock()

    def handle(record: Any) -> None:
        with lock:
            pass

    return handle


def an_app(handler: Any, **options: Any) -> KeyShared:
    app = KeyShared(CONF, ["t"], **options)
    app.handler(handler)
    return app


@pytest.fixture
def quiet_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "refuse_active", lambda conf: None)
    monkeypatch.setattr(ready, "_require_topics", lambda wanted: None)


@pytest.mark.usefixtures("quiet_group")
def test_a_handler_that_cannot_be_pickled_is_told_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"cannot be sent to executors: .*lock.*__init__"):
        require_ready(wanted_of(an_app(holding_a_lock())), here=True)


@pytest.mark.usefixtures("quiet_group")
def test_state_that_no_executor_would_see_is_refused_where_there_are_other_machines(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="give --state a folder"):
        require_ready(wanted_of(an_app(Stateful)), here=False)
    require_ready(wanted_of(an_app(Stateful)), here=True)
    require_ready(wanted_of(an_app(Stateful), state=tmp_path), here=False)


def test_an_active_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conf: Any) -> None:
        raise GroupActiveError(f"group {conf['group.id']!r} has 1 member")

    monkeypatch.setattr(ready, "_require_topics", lambda wanted: None)
    monkeypatch.setattr(ready, "refuse_active", refuse)
    with pytest.raises(GroupActiveError, match="group 'g' has 1 member"):
        require_ready(wanted_of(an_app(print)), here=True)


@pytest.mark.usefixtures("quiet_group")
@pytest.mark.parametrize("key", ["header:customer", "json:/customer/id", "json:/a~1b", "avro:id"])
def test_every_kind_of_key_reaches_executors_and_reads_there_what_it_reads_here(
    key: str, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.avsc"
    schema.write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    )
    given: dict[str, Any] = {"key_schema": str(schema)} if key == "avro:id" else {}
    wanted = wanted_of(an_app(print, key=key, **given))
    require_ready(wanted, here=True)
    sent = cloudpickle.dumps(wanted.settings.key_of)  # type: ignore[no-untyped-call]
    there = pickle.loads(sent)
    values = {"json:/customer/id": b'{"customer": {"id": "k"}}', "avro:id": b"\x02k"}
    value = values.get(key, b'{"a/b": "k"}')
    assert there(record("other", value, headers=[("customer", b"k")])) == b"k"
