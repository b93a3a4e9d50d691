"""The admin API of a running instance, over HTTP, on the embedded cluster."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.web.admin import app as admin_app
from kafka_keyshared.observability.web.admin.feed import OF_GROUP, PARTS
from kafka_keyshared.observability.web.command_list import VERBS
from kafka_keyshared.observability.web.guard import MOST_BYTES, RequestGuard, is_loopback
from kafka_keyshared.observability.web.snapshot import InstanceSnapshot
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]

TOKEN = "a-token-of-this-test"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(app: KeyShared, path: str, method: str = "GET", **headers: str) -> Answer:
    assert app.admin is not None
    with closing(http.client.HTTPConnection("127.0.0.1", app.admin.port, timeout=30)) as asked:
        asked.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = asked.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read())


def app_over(cluster: Cluster, topic: str, **options: Any) -> KeyShared:
    """An app with one key that is blocked, over 2 partitions of 100 records in all."""
    cluster.create_topic(topic, 2)
    write(cluster, topic, [(b"key-%d" % (n % 10), b"v" * 20) for n in range(100)])
    conf = client_conf(cluster, group_name()) | {"client.id": "of-the-test"}
    retry = {"attempts": 1, "backoff": 0.001}
    given: dict[str, Any] = {
        "workers": 2,
        "commit_interval": 0.2,
        "retry": retry,
        "console_port": 0,
    }
    app = KeyShared(conf, [topic], **(given | {"http_port": 0} | options))

    @app.handler
    def handle(record: Any) -> None:
        if record.key() == b"key-7":
            raise ValueError("this key always fails")

    return app


@pytest.fixture(scope="module")
def app(embedded_cluster: Cluster) -> Iterator[KeyShared]:
    """One for all tests that only look."""
    made = app_over(embedded_cluster, f"admin-{uuid.uuid4().hex[:12]}")
    pause, deadline = threading.Event(), time.monotonic() + 60
    with running(made):
        while not blocked(made):
            assert time.monotonic() < deadline
            pause.wait(0.02)
        yield made


def blocked(app: KeyShared) -> bool:
    diagnosis = app.diagnosis()
    status = app.status()
    if status is None or diagnosis is None:
        return False
    done = [each["ok"] for sub in status.subscriptions for each in sub.processed.values()]
    return sum(done) == 90 and not diagnosis.healthy


def test_the_snapshot_has_all_there_is_and_no_key(app: KeyShared) -> None:
    (topic,) = app.topics
    answer = ask(app, "/api/v1/snapshot")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    found = msgspec.json.decode(answer.body, type=InstanceSnapshot)
    assert found.version == 1
    assert not found.keys_shown
    assert found.about.topics == (topic,)
    assert (found.totals.ok, found.totals.held, found.totals.closed) == (90, 10, 1)
    assert found.diagnosis.text.startswith("a key of slot 0x")
    (sub,) = found.status.subscriptions
    assert sub.slots is not None
    assert (sub.slots[0][0], sub.slots[-1][1]) == (0, 65_535)
    assert all(after[0] == one[1] + 1 for one, after in zip(sub.slots, sub.slots[1:], strict=False))
    (held,) = [each for each in found.status.partitions if each.unsettled]
    assert held.settled, "what is done beyond the blocked record"
    assert held.settled_max is not None
    assert held.settled[-1][1] <= held.settled_max
    (stuck,) = found.stuck
    assert (stuck.state, stuck.attempts, stuck.waiting) == ("blocked", 1, 9)
    assert "in handle" in stuck.stack
    assert (sub.errors[0].error, sub.errors[0].count) == ("ValueError", 1)
    assert [each.event for each in found.status.rebalanced] == ["assigned"]
    assert found.status.rebalanced[0].partitions == ((topic, 0), (topic, 1))
    assert b"key-7" not in answer.body
    settings = {each.name: each for each in found.settings}
    assert settings["console_port"].value == 0
    assert (settings["client.id"].value, settings["client.id"].origin) == (
        "of-the-test",
        "the program",
    )


def test_keys_are_shown_where_they_may_be(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    made = app_over(embedded_cluster, topic, show_keys=True)
    with running(made):
        eventually(lambda: blocked(made), 60)
        found = ask(made, "/api/v1/snapshot").json()
    assert found["keys_shown"]
    assert found["stuck"][0]["key"] == "key-7"
    assert found["diagnosis"]["text"].startswith("key 'key-7' is blocked")


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_asked_for(app: KeyShared, part: str) -> None:
    answer = ask(app, f"/api/v1/{part}")
    assert answer.status == 200
    assert answer.json() or part == "draining"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_document_describes_every_path(app: KeyShared) -> None:
    document = ask(app, "/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    looks = {f"/api/v1/{part}" for part in (*PARTS, *OF_GROUP, "stream", "what-if")}
    orders = {f"/api/v1/actions/{verb}" for verb in VERBS}
    paths = document["paths"]
    assert {path for path, how in paths.items() if "get" in how} == looks
    assert {path for path, how in paths.items() if "post" in how} == orders
    order = paths["/api/v1/actions/scale"]["post"]["requestBody"]["content"]["application/json"]
    name = order["schema"]["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][name]["required"] == ["workers"]
    answer = document["paths"]["/api/v1/snapshot"]["get"]["responses"]["200"]
    name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert set(document["components"]["schemas"][name]["required"]) >= {"version", "status"}


def test_what_so_many_workers_would_move_is_told_and_nothing_moves(app: KeyShared) -> None:
    def what_if(query: str) -> Answer:
        return ask(app, f"/api/v1/what-if?{query}")

    def table(slots: list[list[int]]) -> list[int]:
        return [at for first, last, at in slots for _ in range(first, last + 1)]

    told = what_if("workers=3&subscription=default").json()
    before = app._board.read(full=True)
    assert before is not None
    assert before.subscriptions[0].slots is not None
    now = table([[*each] for each in before.subscriptions[0].slots])
    then = table(told["slots"])
    assert told["moved"] == sum(one != other for one, other in zip(now, then, strict=True))
    assert 0.2 < told["moved"] / 65_536 < 0.5, "a third has to move to the third one"
    assert told["workers"] == ["worker-0", "worker-1", "worker-2"]
    assert told["shares"] == [then.count(at) / 65_536 for at in range(3)]
    assert what_if("workers=2").json()["moved"] == 0
    assert len(before.subscriptions[0].workers) == 2
    for query, why in (
        ("", "workers='': give a number from 1 to 256"),
        ("workers=257", "give a number from 1 to 256"),
        ("workers=٣", "give a number from 1 to 256"),
        ("workers=3&subscription=x", "there is no subscription 'x'"),
    ):
        answer = what_if(urllib.parse.quote(query, safe="=&"))
        assert (answer.status, why in answer.body.decode()) == (400, True)


def test_a_stream_brings_one_snapshot_after_the_other(app: KeyShared) -> None:
    assert app.admin is not None
    with closing(http.client.HTTPConnection("127.0.0.1", app.admin.port, timeout=30)) as asked:
        asked.request("GET", "/api/v1/stream")
        answer = asked.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: list[Any] = []
        while len(found) < 3:
            line = answer.readline().decode()
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
    taken = [each["taken_at"] for each in found]
    assert taken == sorted(set(taken)), "each is a newer one"
    assert {each["version"] for each in found} == {1}


def test_an_open_stream_does_not_keep_an_app_from_ending(
    embedded_cluster: Cluster, topic: str
) -> None:
    made = app_over(embedded_cluster, topic)
    ended = threading.Event()

    def read(port: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as asked:
            asked.request("GET", "/api/v1/stream")
            asked.getresponse().read()
        ended.set()

    with running(made):
        assert made.admin is not None
        reader = threading.Thread(target=read, args=(made.admin.port,), daemon=True)
        reader.start()
    assert ended.wait(30)
    assert made.admin is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "attacker.example"}, 421),
        ({"Host": "attacker.example:80", "Sec_Fetch_Site": "same-origin"}, 421),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Content_Length": str(MOST_BYTES + 1)}, 413),
    ],
)
def test_pages_of_others_learn_nothing(
    app: KeyShared, headers: dict[str, str], status: int
) -> None:
    answer = ask(app, "/api/v1/snapshot", **headers)
    assert answer.status == status
    assert b"{" not in answer.body


def test_its_own_page_is_answered(app: KeyShared) -> None:
    assert app.admin is not None
    own = f"127.0.0.1:{app.admin.port}"
    answer = ask(
        app, "/api/v1/state", Host=own, Origin=f"http://{own}", Sec_Fetch_Site="same-origin"
    )
    assert answer.status == 200
    assert ask(app, "/api/v1/state", Host=f"localhost:{app.admin.port}").status == 200


def test_nothing_but_a_look_is_taken(app: KeyShared) -> None:
    assert {ask(app, "/api/v1/snapshot", method).status for method in ("POST", "DELETE")} == {403}
    assert ask(app, "/api/v1/nothing").status == 404


def test_metrics_and_probes_are_served_beside_it(app: KeyShared) -> None:
    assert app.http is not None
    assert app.admin is not None
    assert app.http.port != app.admin.port


def test_a_port_that_is_taken_is_said_and_survived(
    app: KeyShared, topic: str, embedded_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert app.admin is not None
    embedded_cluster.create_topic(topic, 1)
    conf = client_conf(embedded_cluster, group_name())
    second = KeyShared(conf, [topic], workers=1, console_port=app.admin.port, http_port=0)
    second.handler(lambda record: None)
    with running(second):
        assert second.admin is None
    assert "no admin API: cannot listen at http://127.0.0.1:" in caplog.text
    assert "give another console_port" in caplog.text


def test_without_the_extra_that_is_said_and_records_are_consumed(
    topic: str,
    embedded_cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    monkeypatch.delitem(
        sys.modules, "kafka_keyshared.observability.web.admin.server", raising=False
    )
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    made = app_over(embedded_cluster, topic)
    with running(made):
        eventually(lambda: blocked(made), 60)
        assert made.admin is None
    assert "no admin API: uvicorn is not installed" in caplog.text
    assert "pip install 'kafka-keyshared[console]'" in caplog.text


def test_a_token_file_that_is_missing_is_said_before_anything_is_consumed(
    topic: str, embedded_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "none"
    made = app_over(embedded_cluster, topic, http_token_file=str(file))
    with pytest.raises(ConfigError, match=r"http_token_file=.*: No such file"):
        made.run()
    assert made.admin is None


def test_there_are_as_many_streams_as_may_be_and_no_more(
    app: KeyShared, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_app, "STREAMS_MOST", 2)
    assert app.admin is not None
    with ExitStack() as stack:
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", app.admin.port, timeout=30)
            stack.enter_context(closing(connection)).request("GET", "/api/v1/stream")
            assert connection.getresponse().readline() == b"retry: 2000\n"
        more = ask(app, "/api/v1/stream")
        assert (more.status, more.body) == (503, b"there are 2 streams already\n")
        assert ask(app, "/api/v1/state").status == 200, "who looks once is answered"
    # Who has gone makes room.
    eventually(lambda: begins(app), 30)


def begins(app: KeyShared) -> bool:
    assert app.admin is not None
    with closing(http.client.HTTPConnection("127.0.0.1", app.admin.port, timeout=30)) as asked:
        asked.request("GET", "/api/v1/stream")
        return asked.getresponse().status == 200


# --- the rules ---


@pytest.mark.parametrize(
    ("name", "own"),
    [
        *(("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True)),
        *(("0.0.0.0", False), ("10.0.0.7", False), ("localhost.attacker.example", False)),
        ("", False),
    ],
)
def test_which_addresses_are_this_machines_own(name: str, own: bool) -> None:
    assert is_loopback(name) is own


def told(guard: RequestGuard, method: str = "GET", **headers: str) -> int | None:
    refusal = guard.refuse(method, {"host": "pod:8788", **headers})
    return None if refusal is None else refusal.status


def test_off_this_machine_every_question_needs_the_token() -> None:
    guard = RequestGuard("0.0.0.0", TOKEN)
    assert told(guard) == 401
    assert told(guard, authorization="Bearer wrong") == 401
    assert told(guard, authorization=f"Basic {TOKEN}") == 401
    assert told(guard, authorization="Bearer \u00e9") == 401
    assert told(guard, authorization=f"Bearer {TOKEN}") is None
    assert told(guard, authorization=f"Bearer {TOKEN}", origin="https://attacker.example") == 403


def test_on_this_machine_an_order_needs_it_and_a_look_does_not() -> None:
    guard = RequestGuard("127.0.0.1", TOKEN)
    own = {"host": "127.0.0.1:8788"}
    assert told(guard, **own) is None
    assert told(guard, "POST", **own) == 401
    assert told(guard, "POST", **own, authorization=f"Bearer {TOKEN}") is None
    assert told(RequestGuard("127.0.0.1", None), "POST", **own) == 403


def test_an_address_for_others_needs_a_token_file(tmp_path: Path) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    with pytest.raises(ConfigError, match="other machines could connect; set http_token"):
        KeyShared(conf, ["t"], console_port=0, console_host="0.0.0.0")
    file = tmp_path / "token"
    file.write_text(TOKEN)
    app = KeyShared(conf, ["t"], console_port=0, console_host="0.0.0.0", http_token_file=str(file))
    assert app.options.console_host == "0.0.0.0"
