"""What `keyshared run` cannot work with is refused at start, by name, with status 2."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.client import probe, standalone
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process, own_modules

HANDLERS = """
from kafka_keyshared import KeyShared

handled = []

def handle(record):
    handled.append(record)

def two(one, other): ...

def none(): ...

async def later(record): ...

class NoHandle: ...

class Needy:
    def __init__(self, wanted): ...
    def handle(self, record): ...

number = 7
app = KeyShared({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with handlers in it; nothing that a command sets up outlives the test."""
    (tmp_path / "handlers_of_test.py").write_text(HANDLERS)
    (tmp_path / "broken_of_test.py").write_text("import no_such_package\n")
    (tmp_path / "leaving_of_test.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    # A refusal that only the cluster can give must not take its 6 seconds here.
    # The constant is bound as a default already.
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.2,))
    logger = logging.getLogger("kafka_keyshared")
    handlers, level = list(logger.handlers), logger.level
    with own_modules(tmp_path):
        yield tmp_path
    logger.handlers, logger.level = handlers, level


COMPLETE = ("-b", "127.0.0.1:1", "-g", "g", "-t", "t")


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("handlers_of_test", "give MODULE:ATTR"),
        (":handle", "give MODULE:ATTR"),
        ("no_such_module:handle", "module 'no_such_module' cannot be imported"),
        ("broken_of_test:handle", "no_such_package"),
        ("broken_of_test.py:handle", "no_such_package"),
        ("leaving_of_test:handle", "SystemExit"),
        ("leaving_of_test.py:handle", "SystemExit"),
        ("no_such_file.py:handle", "there is no file no_such_file.py"),
        ("handlers_of_test:missing", "has no 'missing'; it has"),
        ("handlers_of_test.py:missing", "has no 'missing'; it has"),
        ("handlers_of_test:number", "not callable"),
        ("handlers_of_test:two", "handler two(one, other)"),
        ("handlers_of_test:none", "handler none()"),
        ("handlers_of_test:NoHandle", "NoHandle has no method handle(record)"),
        ("handlers_of_test:Needy", "Needy(wanted)"),
    ],
)
def test_a_handler_that_cannot_be_used(
    place: Path, capsys: pytest.CaptureFixture[str], handler: str, said: str
) -> None:
    ended = in_process(capsys, "run", handler, *COMPLETE)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""


BROKEN_DEEP = """\
import json

class SilentError(Exception):
    def __str__(self):
        raise KeyError("no text")

def read():
    return json.loads("no json")

def silent():
    raise SilentError
"""


@pytest.mark.parametrize("handler", ["deep_of_test:handle", "deep_of_test.py:handle"])
@pytest.mark.parametrize(
    ("last", "at", "said"),
    [
        ("read()", "in read\n    return json.loads", "JSONDecodeError: Expecting value"),
        ("silent()", "in silent\n    raise SilentError", "SilentError: (no text: KeyError)"),
        ("import no_such_package", "in <module>", "No module named 'no_such_package'"),
        ("def (", "    def (", "SyntaxError: "),
    ],
)
def test_an_import_that_fails_shows_the_line_of_the_user_and_then_what_to_do(
    place: Path, capsys: pytest.CaptureFixture[str], *, handler: str, last: str, at: str, said: str
) -> None:
    (place / "deep_of_test.py").write_text(BROKEN_DEEP + last)
    for verb in ("run", "config check"):
        ended = in_process(capsys, *verb.split(), handler, *COMPLETE)
        assert ended.status == 2
        above, line = ended.err.rstrip().rsplit("\nkeyshared: ", 1)
        assert at in above
        assert 'deep_of_test.py", line' in above
        assert "kafka_keyshared" not in above, "our own frames say nothing"
        assert "importlib" not in above
        assert said in line
        assert ended.out == ""


def test_a_name_that_is_misspelt_needs_no_traceback(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = in_process(capsys, "run", "no_such_module:handle", *COMPLETE)
    assert ended.err.startswith("keyshared: 'no_such_module:handle': module")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-g", "g", "-t", "t"), "-b host:port"),
        (("-b", "x:1", "-t", "t"), "-g NAME"),
        (("-b", "x:1", "-g", "g"), "-t NAME"),
        ((*COMPLETE, "--workers", "0"), "at least 1 worker"),
        ((*COMPLETE, "--workers", "thread:0"), "at least 1 worker"),
        ((*COMPLETE, "--workers", "many"), "workers='many'"),
        ((*COMPLETE, "-X", "enable.auto.commit=true"), "'enable.auto.commit' is 'true'"),
        ((*COMPLETE, "-X", "enable.auto.offset.store=1"), "'enable.auto.offset.store'"),
        ((*COMPLETE, "-X", "no-equals-sign"), "-X no-equals-sign: give KEY=VALUE"),
        ((*COMPLETE, "-X", "=value"), "-X =…: give KEY=VALUE"),
        ((*COMPLETE, "-X", "no.such.setting=1"), '"no.such.setting"'),
        ((*COMPLETE, "-X", "session.timeout.ms=soon"), "session.timeout.ms"),
        ((*COMPLETE, "-X", "max.poll.interval.ms=8000"), "revoke_deadline"),
        ((*COMPLETE, "--config", "no-such-file.toml"), "no-such-file.toml: No such file"),
        ((*COMPLETE, "--config", "."), "Is a directory"),
    ],
)
def test_a_flag_that_is_missing_or_wrong(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    ended = in_process(capsys, "run", "handlers_of_test:handle", *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrkers = 8", "wrkers"),
        ('window_records = "many"', "window_records"),
        ("topics = 'orders'", "topics"),
        ("[retry]\nattemps = 3", "attemps"),
        ("[retry]\nattempts = 'three'", "retry.attempts='three': give a whole number"),
        ("workers = ", "not TOML"),
        ("workers = 0", "at least 1 worker"),
        ('[kafka]\n"enable.auto.commit" = true', "'enable.auto.commit' is True"),
        ('[kafka]\n"no.such.setting" = 1', '"no.such.setting"'),
    ],
)
def test_a_file_with_a_mistake_in_it(
    place: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("settings.toml").write_text(text)
    ended = in_process(
        capsys, "run", "handlers_of_test:handle", *COMPLETE, "--config", "settings.toml"
    )
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""
    assert "settings.toml" in ended.err


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("", ("--workers", "many"), "workers is from --workers"),
        ("workers = 0", (), "workers is from settings.toml"),
        ("workers = 0", ("--workers", "-1"), "workers is from --workers"),
        ("revoke_deadline = 200.0", (), "revoke_deadline is from settings.toml"),
        ("", ("-X", "enable.auto.commit=true"), "enable.auto.commit is from -X"),
        ('[kafka]\n"enable.auto.commit" = true', (), "is from [kafka] in settings.toml"),
        ('[kafka]\n"no.such.setting" = 1', (), "no.such.setting is from [kafka] in settings.toml"),
        ("", ("-X", "no.such.setting=1"), "no.such.setting is from -X"),
    ],
)
def test_a_refusal_says_where_the_value_came_from(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    flags: tuple[str, ...],
    said: str,
) -> None:
    Path("settings.toml").write_text(text)
    ended = in_process(
        capsys,
        *("run", "handlers_of_test:handle", *COMPLETE, "--config", "settings.toml", *flags),
    )
    assert ended.status == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sesion.timeout.ms", "session.timeout.ms"),
        ("group.instance_id", "group.instance.id"),
        ("auto.ofset.reset", "auto.offset.reset"),
        ("xyz", None),
    ],
)
def test_a_mistyped_client_setting_is_guessed(
    place: Path, capsys: pytest.CaptureFixture[str], typed: str, meant: str | None
) -> None:
    ended = in_process(capsys, "run", "handlers_of_test:handle", *COMPLETE, "-X", f"{typed}=1")
    assert ended.status == 2
    assert f'"{typed}"' in ended.err
    assert ("did you mean" in ended.err) == (meant is not None)
    assert meant is None or repr(meant) in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wrkers": 8}, "did you mean 'workers'.*\nthe settings are workers, dlq"),
        ({"window_records": "many"}, "window_records='many': give a whole number of at least 1"),
        ({"retry": {"attemps": 3}}, "'attempts'.*\nthe settings in retry={…} are attempts, backo"),
        ({"attempts": 3}, "'attempts' is not a setting here: move 'attempts' into retry={…}"),
        ({"on_stuck": "explode"}, "on_stuck='explode': give 'exit' or 'hold'"),
        ({"on_exhausted": "drp"}, "on_exhausted='drp': give 'block' or 'block_and_dlq' or "),
        ({"commit_interval": "soon"}, "commit_interval='soon': give a number above 0"),
    ],
)
def test_the_constructor_refuses_what_it_does_not_know(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        KeyShared({"bootstrap.servers": "x:1", "group.id": "g"}, ["t"], **options)
    assert caught.value.exit_code == 2


def test_a_pattern_that_is_no_expression_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    ended = in_process(
        capsys,
        *("run", "handlers_of_test:handle", "-b", embedded_cluster.bootstrap, "-g", topic),
        *("-t", "^no[t"),
    )
    assert ended.status == 2
    assert "'^no[t' is no regular expression" in ended.err


def test_a_file_that_is_no_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("settings.toml").write_bytes(b"\xff\xfe")
    ended = in_process(
        capsys, "run", "handlers_of_test:handle", *COMPLETE, "--config", "settings.toml"
    )
    assert ended.status == 2
    assert "settings.toml: not TOML" in ended.err


def test_flags_beside_an_app_that_has_its_own_settings(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("-g", "other", "-X", "a=b", "--http-port", "0")
    ended = in_process(capsys, "run", "handlers_of_test:app", *given)
    assert ended.status == 2
    assert "leave out -g, -X, --http-port" in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("run", "handlers_of_test:handle", *COMPLETE),
        ("run", "handlers_of_test:app"),
        ("demo", "load", "-b", "127.0.0.1:1"),
        ("bench", "noop", "-b", "127.0.0.1:1"),
    ],
    ids=["run", "run app", "demo load", "bench noop"],
)
def test_no_broker_says_where_why_and_what_to_try(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.5,))
    ended = in_process(capsys, *command)
    assert ended.status == 1
    assert "no broker answered at 127.0.0.1:1" in ended.err
    assert "Connection refused" in ended.err
    assert "see that the address and port are right" in ended.err
    assert ended.out == ""
    # One line for one mistake; the client would log every attempt.
    assert len(ended.err.splitlines()) == 1


OAUTH = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=OAUTHBEARER")


@pytest.mark.parametrize("verb", [("dlq", "ls"), ("dlq", "replay"), ("advise",)])
def test_a_token_that_is_missing_is_told_apart_from_a_broker_and_the_way_to_one_is_named(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str, ...],
) -> None:
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.3,))
    ended = in_process(capsys, *verb, "-b", "127.0.0.1:1", "-t", "orders", *OAUTH)
    assert ended.status == 1
    assert "no token for the brokers at 127.0.0.1:1: 'sasl.mechanism' is OAUTHBEARER" in ended.err
    assert "with --app MODULE:ATTR" in ended.err
    assert "no broker answered" not in ended.err


APP = """
from kafka_keyshared import KeyShared

def token(_):
    raise RuntimeError("the identity service is down")

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
app = KeyShared(
    {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **SASL, "oauth_cb": token}, ["orders"]
)
plain = KeyShared({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["orders"], dlq=True)
"""


def test_a_command_takes_oauth_cb_from_an_app_and_says_why_it_gave_no_token(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Mapping[str, Any]] = []

    def refuse(conf: Mapping[str, Any]) -> None:
        made.append(conf)
        with pytest.raises(RuntimeError):
            conf["oauth_cb"]("")
        raise KafkaException(
            KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "OAuth token not set within 10 s")
        )

    monkeypatch.setattr(standalone, "Consumer", refuse)
    (place / "secured.py").write_text(APP)
    for verb in (("dlq", "ls"), ("advise",)):
        ended = in_process(capsys, *verb, "--app", "secured.py:app")
        assert ended.status == 1
        assert (
            "no token for the brokers at 127.0.0.1:1: oauth_cb raised RuntimeError: the identity "
            "service is down" in ended.err
        )
    assert [conf["sasl.mechanism"] for conf in made] == ["OAUTHBEARER"] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--app", "secured.py:plain", "-b", "x:1"), "--bootstrap-server beside --app: the app"),
        (("--app", "secured.py:token"), "--app secured.py:token: a function; name the KeyShared"),
        (("--app", "missing.py:app"), "there is no file missing.py"),
    ],
)
def test_an_app_that_cannot_give_settings_is_refused_with_what_to_name(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    (place / "secured.py").write_text(APP)
    ended = in_process(capsys, "dlq", "ls", *arguments)
    assert ended.status == 2
    assert said in ended.err


def test_the_time_for_an_answer_leaves_room_within_ten_seconds() -> None:
    assert probe.require_broker.__defaults__ == (6.0,)


def test_a_topic_that_is_missing_is_named_and_nothing_is_consumed(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    producer.produce(topic, b"value", b"key")
    assert producer.flush(30) == 0
    ended = in_process(
        capsys,
        *("run", "handlers_of_test:handle", "-b", embedded_cluster.bootstrap, "-g", topic),
        *("-t", topic, "-t", f"{topic}-missing", "-X", "auto.offset.reset=earliest"),
    )
    assert ended.status == 2
    assert f"topic '{topic}-missing' does not exist" in ended.err
    assert ended.out == ""
    _assert_nothing_committed(embedded_cluster, topic)


def test_a_missing_dead_letter_topic_is_refused_unless_it_may_be_made(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    ended = in_process(
        capsys,
        *("run", "handlers_of_test:handle", "-b", embedded_cluster.bootstrap, "-g", topic),
        *("-t", topic, "--dlq", "auto"),
    )
    assert ended.status == 2
    assert f"dead-letter topic '{topic}.dlq' does not exist" in ended.err
    _assert_nothing_committed(embedded_cluster, topic)


def _assert_nothing_committed(cluster: Cluster, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    (found,) = consumer.committed([ClientPartition(topic, 0)], timeout=30)
    consumer.close()
    assert found.offset < 0


def test_a_handler_file_does_not_take_the_place_of_another_module(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import queue

    Path("queue.py").write_text(textwrap.dedent("def handle(a, b): ..."))
    ended = in_process(capsys, "run", "queue.py:handle", *COMPLETE)
    assert "handler handle(a, b)" in ended.err
    import sys

    assert sys.modules["queue"] is queue
