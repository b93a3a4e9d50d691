"""What the Kafka client may be told: the installed client judges, and the contract."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, cimpl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_keyshared.config import (
    DEFAULTS,
    SettingsError,
    client_conf,
    from_flags,
    layered,
    load_file,
    merge,
)
from kafka_keyshared.config import client as config_client
from kafka_keyshared.config.client import (
    REFUSED,
    RefusedSetting,
    client_error,
    setting_fault,
    without_effect,
)
from kafka_keyshared.config.environment import CLIENT, RESERVED, client_name
from kafka_keyshared.config.layers import from_environment
from kafka_keyshared.config.properties import ALIASES, CALLBACKS, CONSUMER, PRODUCER
from kafka_keyshared.config.secrets import MASK, mask
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.testing.clusters.cluster import Cluster

NEEDED = {"bootstrap.servers": "x:1", "group.id": "g"}
MEANT: dict[str, Any] = {
    "enable.auto.commit": "true",
    "enable.auto.offset.store": True,
    "default.topic.config": {"auto.offset.reset": "earliest"},
    "test.mock.num.brokers": 1,
    "broker.version.fallback": "0.9.0",
    "plugin.library.paths": "spy.so",
    "ssl.engine.location": "spy.so",
    "sasl.kerberos.kinit.cmd": "rm -rf /",
}
"""For each refused setting a value that is meant."""


def test_the_client_is_told_to_commit_nothing_by_itself() -> None:
    conf = client_conf(NEEDED)
    assert conf["enable.auto.commit"] is False
    assert conf["enable.auto.offset.store"] is False


@pytest.mark.parametrize("refused", REFUSED, ids=lambda each: each.setting)
def test_a_setting_that_would_break_the_contract_is_refused_from_everywhere(
    refused: RefusedSetting, tmp_path: Path
) -> None:
    name, value = refused.setting, MEANT[refused.setting]
    text = str(value)
    variable = CLIENT + name.upper().replace(".", "_")
    injected = [from_environment({variable: text}), from_flags({}, {name: text})]
    for layer, origin in zip(injected, (variable, "-X"), strict=True):
        (fault,) = layer.faults
        assert f"{refused.why}; {refused.cure} ({name} is from {origin})" in str(fault)
    file = tmp_path / "keyshared.toml"
    shown = f'"{text}"' if isinstance(value, str) else str(value).lower()
    if isinstance(value, dict):
        shown = '{ "auto.offset.reset" = "earliest" }'
    file.write_text(f'[kafka]\n"{name}" = {shown}\n')
    if refused.injected:
        assert load_file(file).conf == {name: value}
        assert client_conf({**NEEDED, name: value})[name] == value
        return
    with pytest.raises(ConfigError, match=refused.why if not isinstance(value, dict) else name):
        load_file(file)
    with pytest.raises(ConfigError, match=refused.why):
        client_conf({**NEEDED, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", "False"),
        ("enable.auto.commit", "f"),
        ("enable.auto.offset.store", 0),
        ("test.mock.num.brokers", "0"),
        ("broker.version.fallback", "0.10.2"),
        ("enable.partition.eof", True),
        ("auto.offset.reset", "earliest"),
        ("group.remote.assignor", "uniform"),
        ("max.poll.interval.ms", "60000"),
        ("debug", "cgrp"),
        ("ssl.ca.location", Path("ca.pem")),
        ("error_cb", print),
        ("logger", None),
    ],
)
def test_what_breaks_nothing_is_taken(name: str, value: Any) -> None:
    assert client_conf({**NEEDED, name: value})[name] == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sesion.timeout.ms", 1, "did you mean 'session.timeout.ms'"),
        ("Group.Instance.Id", "x", "did you mean 'group.instance.id'"),
        ("linger.msec", 1, "did you mean 'linger.ms'"),
        ("xyz", 1, '"xyz" is not a setting of the Kafka client'),
        ("session.timeout.ms", "soon", "Invalid value"),
        ("session.timeout.ms", 0, "outside allowed range 1..3600000"),
        ("auto.offset.reset", "first", 'Invalid value "first"'),
        ("ssl.ca.location", ["a"], "is a list: give text, a number, true or false"),
        ("sasl.password", b"x", "is a bytes: give text"),
        *((name, "print", "takes a Python function") for name in CALLBACKS),
        ("rebalance_cb", print, "the callbacks in Python are on_commit"),
    ],
)
def test_what_the_client_does_not_take_is_refused_at_once(name: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_conf({**NEEDED, name: value})
    assert name in str(caught.value)
    assert said in str(caught.value)


def test_all_faults_of_a_configuration_are_told() -> None:
    with pytest.raises(SettingsError) as caught:
        client_conf({"group.id": "", "enable.auto.commit": True, "xyz": 1})
    assert [each.settings for each in caught.value.faults] == [
        ("bootstrap.servers",),
        ("group.id",),
        ("enable.auto.commit",),
        ("xyz",),
    ]


def test_the_client_is_asked_without_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Watched(Consumer):
        def __init__(self, conf: dict[str, Any]) -> None:
            super().__init__(conf)
            made.append(self)

    monkeypatch.setattr(config_client, "Consumer", Watched)
    assert client_error({"session.timeout.ms": 6_000, **NEEDED}) is None
    assert str(client_error({"session.timeout.ms": 0})).startswith("Configuration property")
    assert made == []


def test_a_plugin_is_not_loaded_by_looking_at_the_configuration(tmp_path: Path) -> None:
    """The client would open the file, and say here that it cannot."""
    no_plugin = str(tmp_path / "none.so")
    with pytest.raises(KafkaException, match=r"dlopen|none\.so"):
        Consumer({**NEEDED, "plugin.library.paths": no_plugin})
    assert setting_fault("plugin.library.paths", no_plugin) is None


# --- what the client is known to do ---


def test_every_name_in_our_list_is_one_of_the_client() -> None:
    for name in (*CONSUMER, *PRODUCER, *ALIASES.values(), *DEFAULTS):
        said = client_error({name: ""}) if name != "plugin.library.paths" else None
        assert said is None or "No such configuration property" not in said, name


def test_every_name_of_the_client_is_in_our_list() -> None:
    """A newer client adds names; then this test says which, for guesses to know them too."""
    library = ctypes.CDLL(cimpl.__file__)
    names = _listed(library, "conf") | _listed(library, "topic_conf")
    unknown = {name for name in names if not name.endswith("_cb")} - {*CONSUMER, *PRODUCER}
    assert len(names) > 100
    # What the binding sets itself, what is only read, and what is no text.
    others = {"client.software.name", "builtin.features", "default_topic_conf", "opaque"}
    assert {name for name in unknown if client_error({name: ""}) is None} <= others


def _listed(library: ctypes.CDLL, kind: str) -> set[str]:
    new = getattr(library, f"rd_kafka_{kind}_new")
    dump = getattr(library, f"rd_kafka_{kind}_dump")
    new.restype = ctypes.c_void_p
    dump.restype = ctypes.POINTER(ctypes.c_char_p)
    dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    count = ctypes.c_size_t()
    pairs = dump(new(), ctypes.byref(count))
    return {str(pairs[index], "utf-8") for index in range(0, count.value, 2)}


def test_a_variable_finds_its_setting_of_the_client() -> None:
    """No two names become one variable, and none of ours is a setting of the client."""
    names = {CLIENT + each.upper().replace(".", "_"): each for each in (*CONSUMER, *PRODUCER)}
    assert len(names) == len(CONSUMER) + len(PRODUCER)
    assert all(client_name(variable) == name for variable, name in names.items())
    assert client_name(f"{CLIENT}NEW_SETTING_MS") == "new.setting.ms"
    assert not set(RESERVED) & set(names)


def test_two_names_of_one_setting_are_known_as_such() -> None:
    """Of two that are given the client heeds the last, so neither may stay beside the other."""
    for name, other in ALIASES.items():
        assert {name, other} <= set(CONSUMER)
        layers = merge([from_flags({}, {other: "1000"}), from_flags({}, {name: "2000"})])
        assert layers.conf == {other: "2000"}


def test_default_topic_config_wins_over_the_reset_policy_that_is_set(
    embedded_cluster: Cluster, topic: str
) -> None:
    """Why it is refused: a place would be chosen by the client after all."""
    embedded_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    producer.produce(topic, b"value", b"key")
    assert producer.flush(60) == 0
    conf = {"bootstrap.servers": embedded_cluster.bootstrap, "group.id": topic}
    inner = {"default.topic.config": {"auto.offset.reset": "earliest"}}
    assert _first_of(conf | {"auto.offset.reset": "error"}, topic) == "_AUTO_OFFSET_RESET"
    assert _first_of(conf | {"auto.offset.reset": "error"} | inner, topic) == b"value"


def _first_of(conf: dict[str, Any], topic: str) -> Any:
    consumer = Consumer({**conf, "enable.auto.commit": False, "log_level": 0})
    # Not subscribed: joining a group takes a second, and only the place to start matters here.
    consumer.assign([TopicPartition(topic, 0)])
    try:
        message = consumer.poll(60.0)
        assert message is not None
        error = message.error()
        return error.name() if error is not None else message.value()
    finally:
        consumer.close()


def test_what_only_a_producer_heeds_is_known() -> None:
    conf = {**NEEDED, "acks": 1, "compression.type": "zstd", "linger.ms": 7}
    assert without_effect(client_conf(conf)) == ["acks", "linger.ms"]


# --- settings that each would work alone ---

SIZES: dict[str, list[int]] = {
    "message.max.bytes": [1_000, 1_000_000, 8 << 20, 9_000_000, 20_000_000, 1_000_000_000],
    "receive.message.max.bytes": [1_000_000, 2_000_000, 9_000_000, 60_000_000, 2_147_483_647],
    "queued.max.messages.kbytes": [1, 1_000, 9_000, 65_536, 2_000_000],
    "fetch.message.max.bytes": [1, 60_000_000],
    "fetch.min.bytes": [1, 60_000_000],
    "socket.timeout.ms": [10, 300_000],
}
CHOICES = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in SIZES.items()}
)


def taken(conf: Mapping[str, Any]) -> bool:
    """Say whether the client takes the settings, all together and without an address."""
    try:
        Consumer({"group.id": "g", "log_level": 0, **conf}).close()
    except KafkaException:
        return False
    return True


@given(CHOICES)
@settings(max_examples=150, deadline=None)
@example({"message.max.bytes": 9_000_000})
@example({"message.max.bytes": 20_000_000})
@example({"receive.message.max.bytes": 2_000_000, "queued.max.messages.kbytes": 1_000})
def test_a_setting_that_a_plain_consumer_takes_is_not_refused_for_a_default_of_ours(
    conf: dict[str, Any],
) -> None:
    if taken(conf):
        assert taken({n: v for n, v in client_conf({**NEEDED, **conf}).items() if n not in NEEDED})


def test_of_two_settings_that_the_client_refuses_together_the_app_is_told_when_it_is_made() -> None:
    conf = {**NEEDED, "receive.message.max.bytes": 5_000_000}
    with pytest.raises(SettingsError) as refused:
        client_conf(conf)
    assert str(refused.value) == (
        "the Kafka client refuses these settings together: `receive.message.max.bytes` must be >= "
        "`fetch.max.bytes` + 512 (by default here fetch.max.bytes is 8388608)"
    )
    assert client_conf({**conf, "fetch.max.bytes": 4_000_000})["fetch.max.bytes"] == 4_000_000


# --- secrets ---


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    ],
)
def test_secrets_are_masked(name: str) -> None:
    assert mask(name, "hunter2") == MASK
    assert mask(name, "") == ""


def test_what_is_no_secret_is_shown_unless_it_holds_a_key() -> None:
    assert mask("sasl.username", "me") == "me"
    assert mask("ssl.ca.pem", "-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"
    assert mask("ssl.certificate.pem", "-----BEGIN RSA PRIVATE KEY-----") == MASK


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.config"])
def test_no_error_shows_a_secret(name: str) -> None:
    """Neither a refusal of its value nor a message of the client that quotes it."""
    for value in (["hunter2"], b"hunter2"):
        assert "hunter2" not in str(setting_fault(name, value))
    assert "hunter2" not in str(setting_fault("debug", "PRIVATE KEY hunter2"))
    layers = layered(None, {CLIENT + name.upper().replace(".", "_"): "hunter2"})
    told = layers.with_origins(ConfigError(f"the client says: bad {name}: hunter2"))
    assert str(told).startswith(f"the client says: bad {name}: {MASK} ({name} is from KEYSHARED_")
