"""Orders of the admin API to a running instance: what each does, and what bounds a request."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_keyshared import KeyShared
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.admin import app as admin_app
from kafka_keyshared.observability.web.admin import slow_request_timeout
from kafka_keyshared.observability.web.commands import MOST_BYTES
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]

TOKEN = "0123456789abcdef"
WAIT = 60.0


class Instance:
    """An app with one key that is blocked, over 2 partitions of 100 records in all."""

    def __init__(self, cluster: Cluster, folder: Path, **options: Any) -> None:
        self.topic = f"verbs-{uuid.uuid4().hex[:12]}"
        cluster.create_topic(self.topic, 2)
        write(cluster, self.topic, [(b"key-%d" % (n % 10), b"v") for n in range(100)])
        file = folder / "token"
        file.write_text(TOKEN)
        self.app = KeyShared(
            client_conf(cluster, group_name()),
            [self.topic],
            workers=2,
            commit_interval=0.2,
            retry={"attempts": 1, "backoff": 0.001},
            http_port=0,
            console_port=0,
            http_token_file=str(file),
            **options,
        )
        self.mended = False
        self.handled: list[bytes] = []
        self.app.handler(self.handle)

    def handle(self, record: Any) -> None:
        self.handled.append(record.key())
        if record.key() == b"key-7" and not self.mended:
            raise ValueError("this key fails")

    def wait(self) -> None:
        """Until its key is blocked."""
        pause, deadline = threading.Event(), time.monotonic() + WAIT
        while self.app.admin is None or self.app.instance is None or not self.closed():
            assert time.monotonic() < deadline
            pause.wait(0.02)

    def order(self, verb: str, token: str | None = TOKEN, **what: Any) -> tuple[int, Any]:
        return self.post(f"/api/v1/actions/{verb}", json.dumps(what).encode(), token)

    def post(self, path: str, body: Any, token: str | None = TOKEN) -> tuple[int, Any]:
        """An iterator is sent in chunks."""
        assert self.app.admin is not None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.app.admin.port, timeout=WAIT)
        ) as asked:
            asked.request("POST", path, body, headers, encode_chunked=not isinstance(body, bytes))
            answer = asked.getresponse()
            return answer.status, json.loads(answer.read())

    def paused(self) -> set[int]:
        status = self.app.status()
        assert status is not None
        return {each.partition for each in status.partitions if each.held_back}

    def closed(self) -> list[str]:
        return [f"{each.topic}-{each.partition}@{each.offset}" for each in self.app.closed_keys()]


@pytest.fixture(scope="module")
def instance(
    embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    """One for all tests that leave it as it was."""
    made = Instance(embedded_cluster, tmp_path_factory.mktemp("verbs"))
    with running(made.app):
        made.wait()
        yield made


def test_what_is_paused_is_resumed(instance: Instance, eventually: Eventually) -> None:
    status, told = instance.order("pause", partitions=[[instance.topic, 1]])
    assert (status, told["result"]) == (200, {"paused": [f"{instance.topic}-1"]})
    assert told["done"] == f"paused by hand: {instance.topic}-1"
    eventually(lambda: instance.paused() == {1}, WAIT)
    assert instance.order("resume")[1]["result"] == {"paused": []}
    eventually(lambda: instance.paused() == set(), WAIT)


def test_quiesced_is_paused_and_committed(instance: Instance) -> None:
    status, told = instance.order("quiesce")
    assert status == 200
    assert told["result"]["paused"] == [f"{instance.topic}-{each}" for each in (0, 1)]
    committed = told["result"]["committed"]
    assert set(committed) == {f"{instance.topic}-0", f"{instance.topic}-1"}
    # All but what is of the blocked key, and behind it.
    held = instance.closed()[0].rpartition("@")
    assert committed[held[0]] == int(held[2])
    assert instance.order("resume")[0] == 200


def test_it_is_scaled_from_2_to_8(instance: Instance) -> None:
    status, told = instance.order("scale", workers=8)
    assert (status, told["done"]) == (200, "the instance has 8 workers")
    found = instance.app.status()
    assert found is not None
    assert len(told["result"]["workers"]) == 8
    assert instance.order("scale", workers=2)[0] == 200


def test_what_the_routing_does_not_have_is_refused(instance: Instance) -> None:
    for verb in ("assign", "move"):
        slots: dict[str, Any] = {"first": 0, "last": 9} if verb == "assign" else {"slot": 7}
        status, told = instance.order(verb, worker="worker-0", **slots)
        assert status == 409
        assert "make it with routing='sticky'" in told["refused"]
    for verb in ("letters", "replay"):
        assert "there is no dead-letter topic" in instance.order(verb)[1]["refused"]
    status, told = instance.order("dead-letter", at=instance.closed()[0])
    assert status == 409
    assert "there is no dead-letter topic" in told["refused"]
    assert "key" not in told["refused"].replace("dead-letter", ""), "it is hidden"


def test_a_blocked_key_is_unblocked_by_its_place_and_not_named(
    embedded_cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    made = Instance(embedded_cluster, tmp_path)
    with running(made.app):
        made.wait()
        (at,) = made.closed()
        assert made.order("unblock", at=f"{made.topic}-0@99999")[0] == 409
        assert made.closed() == [at]
        made.mended = True
        status, told = made.order("unblock", at=at)
        assert (status, told["done"]) == (200, f"{at} is unblocked")
        eventually(lambda: not made.closed(), WAIT)


def test_dead_letters_are_listed_and_replayed_by_whoever_has_the_token(
    embedded_cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    letters = f"verbs-{uuid.uuid4().hex[:12]}.dlq"
    embedded_cluster.create_topic(letters, 2)
    made = Instance(embedded_cluster, tmp_path, dlq=letters, on_exhausted="dead_letter")
    with running(made.app):
        eventually(lambda: len(made.handled) >= 100, WAIT)
        assert made.app.admin is not None
        client = AdminClient(made.app.admin.url, TOKEN)
        eventually(lambda: len(client.letters().result["newest"]) == 10, WAIT)
        newest = client.letters(most=3).result["newest"]
        assert [each["replayed"] for each in newest] == [False] * 3
        assert [each["key"] for each in newest] == [None] * 3, "keys are hidden"
        assert "this key fails" in newest[0]["error"]

        told = client.replay()
        assert told.done == f"10 letters would go to {made.topic} (1 key, each in its order)"
        assert client.letters().result["newest"][0]["replayed"] is False, "it was only said"
        made.mended = True
        del made.handled[:]
        assert client.replay(at=newest[0]["at"], execute=True).done == "1 letter sent back"
        again = client.replay(execute=True)
        assert (again.done, again.result["already_replayed"]) == ("9 letters sent back", 1)
        eventually(lambda: len(made.handled) == 10, WAIT)
        assert all(each["replayed"] for each in client.letters().result["newest"])
        with pytest.raises(KeySharedError, match="nothing to replay: 10 replayed before"):
            client.replay(execute=True)
        with pytest.raises(KeySharedError, match="not a dead-letter topic of this instance"):
            client.replay(dlq=made.topic, execute=True)
        assert made.order("replay", None, execute=True)[0] == 401
        assert made.order("replay", at="orders@7")[0] == 400


def test_the_log_is_made_to_say_more(instance: Instance) -> None:
    logger = logging.getLogger("kafka_keyshared.verbs")
    try:
        told = instance.order("log-level", level="debug", logger="kafka_keyshared.verbs")[1]
        assert told["result"]["level"] == "debug"
        assert logger.isEnabledFor(logging.DEBUG)
    finally:
        logger.setLevel(logging.NOTSET)
    assert instance.order("log-level", level="debug", logger="root")[0] == 400


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], TOKEN + "x"])
def test_without_the_token_nothing_changes(instance: Instance, token: str | None) -> None:
    status, told = instance.order("pause", token)
    assert (status, [*told]) == (401, ["refused"])
    assert instance.paused() == set()


def test_a_body_is_bounded_however_long_it_is_said_to_be(instance: Instance) -> None:
    long = (b" " * 4_096 for _ in range(2 * MOST_BYTES // 4_096))
    status, told = instance.post("/api/v1/actions/pause", long)
    assert (status, told) == (413, {"refused": "an order has 65,536 bytes at most"})
    assert instance.paused() == set()
    short = iter([b'{"topics":', b"[]}"])
    assert instance.post("/api/v1/actions/pause", short)[0] == 200, "chunks are no fault"


def slowly(instance: Instance, text: bytes) -> bytes:
    """What is answered, until the end of the connection, to what is never sent whole."""
    assert instance.app.admin is not None
    with socket.create_connection(("127.0.0.1", instance.app.admin.port), WAIT) as asked:
        asked.sendall(text)
        told = b""
        while part := asked.recv(4_096):
            told += part
        return told


HEAD = b"POST /api/v1/actions/pause HTTP/1.1\r\nHost: localhost\r\n"


def test_who_asks_slowly_is_hung_up_on(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_request_timeout, "ASKED_WITHIN", 0.2)
    assert slowly(instance, b"") == b""
    assert slowly(instance, HEAD) == b""


def test_a_body_that_comes_slowly_is_not_waited_for(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_app, "BODY_WITHIN", 0.2)
    shown = b"Authorization: Bearer " + TOKEN.encode()
    told = slowly(instance, HEAD + shown + b"\r\nContent-Length: 10\r\n\r\n{")
    assert told.startswith(b"HTTP/1.1 408")
    assert b"its body was not there within 0.2 s" in told
    assert instance.paused() == set()


# --- the client, and the command line ---


def urls(instance: Instance) -> list[str]:
    """Of the admin API, and of the metrics."""
    assert instance.app.admin is not None
    assert instance.app.http is not None
    return [instance.app.admin.url, instance.app.http.url]


def test_the_client_looks_and_orders_at_either_port(instance: Instance) -> None:
    for url in urls(instance):
        client = AdminClient(url, TOKEN, name="the test")
        assert client.status().group == instance.app.conf["group.id"]
        assert client.pause(topics=[]).result == {"paused": []}
        assert client.resume(partitions=[]).verb == "resume"
        with pytest.raises(KeySharedError, match="sticky"):
            client.assign(0, 9, "worker-0")
    assert AdminClient(urls(instance)[0]).snapshot().about.topics == (instance.topic,)
    assert "is blocked by" in AdminClient(urls(instance)[0]).diagnosis().text
    with pytest.raises(KeySharedError, match="there is no admin API there; give the address"):
        AdminClient(urls(instance)[1]).snapshot()
    with pytest.raises(KeySharedError, match="this needs 'Authorization: Bearer'"):
        AdminClient(urls(instance)[1], "another").quiesce()


def test_a_client_of_nobody_says_so() -> None:
    with pytest.raises(KeySharedError, match=r"no answer: .*; see that the instance runs"):
        AdminClient("127.0.0.1:1").snapshot()


def test_lag_is_told_beside_the_backlog(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in urls(instance):
        ended = in_process(capsys, "lag", "--url", url)
        assert ended.status == 0
        assert "are unsettled; " in ended.out
        found = json.loads(in_process(capsys, "lag", "--url", url, "-o", "json").out)
        partitions = [(each["topic"], each["partition"]) for each in found["partitions"]]
        assert partitions == [(instance.topic, 0), (instance.topic, 1)]
        assert found["backlog"] <= found["lag"]
    assert "backlog:" in in_process(capsys, "lag", "--url", urls(instance)[0], "-o", "yaml").out


def test_without_execute_it_is_a_plan(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    url = urls(instance)[1]
    both = f"{instance.topic}-0, {instance.topic}-1"
    for typed, plan in (
        (("pause",), f"would pause {both}\n"),
        (("pause", "--partition", f"{instance.topic}-1"), f"would pause {instance.topic}-1\n"),
        (("resume", "-t", "other"), "would resume no partition of this instance\n"),
        (("quiesce",), "and commit\n"),
        (("scale", "40"), "to 40; moved slots drain first\n"),
    ):
        ended = in_process(capsys, *typed, "--url", url)
        assert ended.status == 0
        assert ended.out.endswith(plan)
        assert ended.err == "nothing has changed; add --execute to make the change\n"
        for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            told = read(in_process(capsys, *typed, "--url", url, "-o", form).out)
            assert [*told] == ["plan"] and told["plan"].endswith(plan.strip())
    assert instance.paused() == set()
    assert in_process(capsys, "pause", "--partition", "orders", "--url", url).status == 2


def test_with_execute_it_is_done(
    instance: Instance,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    refused = in_process(capsys, "pause", "--url", urls(instance)[0], "--execute")
    assert refused.status == 2
    assert "give --token-file (or KEYSHARED_HTTP_TOKEN_FILE)" in refused.err
    monkeypatch.setenv("KEYSHARED_URL", urls(instance)[0])
    monkeypatch.setenv("KEYSHARED_HTTP_TOKEN_FILE", str(instance.app.options.http_token_file))
    ended = in_process(capsys, "pause", "--partition", f"{instance.topic}-1", "--execute")
    assert (ended.status, ended.out) == (0, f"paused by hand: {instance.topic}-1\n")
    eventually(lambda: instance.paused() == {1}, WAIT)
    assert in_process(capsys, "resume", "--execute").out == "paused by hand: none\n"
    told = json.loads(in_process(capsys, "scale", "4", "--execute", "-o", "json").out)
    assert (told["verb"], len(told["workers"])) == ("scale", 4)
    quiesced = json.loads(in_process(capsys, "quiesce", "--execute", "-o", "json").out)
    assert len(quiesced["paused"]) == 2
    assert in_process(capsys, "resume", "--execute").status == 0
