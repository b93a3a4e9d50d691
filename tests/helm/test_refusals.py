"""Values that cannot work end the rendering, and the message says which, why and what to do."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.config import Options
from kafka_keyshared.config.properties import CONSUMER
from kafka_keyshared.config.renamed_settings import CHART as IN_VALUES
from kafka_keyshared.config.renamed_settings import RENAMED, renaming
from kafka_keyshared.config.secrets import is_secret
from tests.helm.chart import CHART, RefusedError, Values, case, minimal, pod, render


class Refused(NamedTuple):
    values: Values
    said: str


def env(name: str, value: str = "1") -> Values:
    return {"name": name, "value": value}


def kafka(**settings: Any) -> Values:
    return minimal(config__kafka={name.replace("_", "."): it for name, it in settings.items()})


USER = {"name": "user", "env": {"sasl.password": "password"}}

CASES = {
    "no image": Refused(
        minimal(image__repository=""),
        "image.repository is empty: give the image that holds the package and your handler",
    ),
    "no handler": Refused(
        minimal(handler=""), "handler is empty: give MODULE:ATTR, such as app:handle"
    ),
    "no broker": Refused(
        minimal(config__bootstrap=None), "config.bootstrap is empty: give it, such as kafka:9092"
    ),
    "a former name": Refused(minimal(config__poison="drop"), renaming("poison", IN_VALUES)),
    "no topics": Refused(
        minimal(config__topics=[]), "config.topics is empty: give it, such as [orders]"
    ),
    "no group": Refused(
        minimal(config__group=None), "config.group is empty: give it, such as billing"
    ),
    "too little grace": Refused(
        minimal(terminationGracePeriodSeconds=39),
        "terminationGracePeriodSeconds is 39, less than config.stop_timeout (25 s) and 15 s: the "
        "pod would be killed while it commits. Give at least 40, or leave it out",
    ),
    "a secret in the settings": Refused(
        kafka(sasl_password="hunter2"),
        'config.kafka has "sasl.password", a secret, and a ConfigMap is no place for one: name the '
        "Secret that holds it under existingSecrets",
    ),
    "a secret as plain text": Refused(
        minimal(extraEnv=[env("KEYSHARED_KAFKA_SASL_PASSWORD", "hunter2")]),
        "extraEnv gives KEYSHARED_KAFKA_SASL_PASSWORD as plain text: name the Secret that holds it "
        "under existingSecrets",
    ),
    "one secret in two entries": Refused(
        minimal(existingSecrets=[USER, {"name": "user", "files": {"ssl.ca.location": "ca"}}]),
        "existingSecrets lists user twice: put env and files of a secret into one entry",
    ),
    "a setting from two secrets": Refused(
        minimal(existingSecrets=[USER, {**USER, "name": "other"}]),
        '"sasl.password" is given twice, by the secret user and by the secret other: leave one of '
        "them out",
    ),
    "a setting from the file and from a secret": Refused(
        minimal(
            config__kafka={"ssl.ca.location": "/ca"},
            existingSecrets=[{"name": "ca", "files": {"ssl.ca.location": "ca.crt"}}],
        ),
        '"ssl.ca.location" is given twice, by config.kafka and by the secret ca: leave one of them '
        "out",
    ),
    "a setting from a secret and from the environment": Refused(
        minimal(existingSecrets=[USER], extraEnv=[{"name": "KEYSHARED_KAFKA_SASL_PASSWORD"}]),
        '"sasl.password" is given twice, by the secret user and by extraEnv: leave one of them out',
    ),
    "probes that reach nothing": Refused(
        minimal(config__http_host="127.0.0.1"),
        "config.http_host is 127.0.0.1, where the kubelet's probes cannot reach it: give 0.0.0.0, "
        "or :: for IPv6",
    ),
    "probes that reach nothing, by the package's default": Refused(
        minimal(config__http_host=None),
        "config.http_host is 127.0.0.1, where the kubelet's probes cannot reach it: give 0.0.0.0, "
        "or :: for IPv6",
    ),
    "a monitor of nothing": Refused(
        minimal(podMonitor={"enabled": True}, config__http_port=None),
        "podMonitor.enabled needs metrics, and config.http_port is null: give a port, or leave the "
        "PodMonitor out",
    ),
    "another file of settings": Refused(
        minimal(extraEnv=[env("KEYSHARED_CONFIG")]),
        "extraEnv gives KEYSHARED_CONFIG, which the pod's ports, probes and grace period would not "
        "follow: the chart gives it itself",
    ),
    "a stop timeout past the grace period": Refused(
        minimal(extraEnv=[env("KEYSHARED_STOP_TIMEOUT", "300")]),
        "extraEnv gives KEYSHARED_STOP_TIMEOUT, which the pod's ports, probes and grace period "
        "would not follow: set config.stop_timeout",
    ),
    "a static member in each pod's environment": Refused(
        minimal(extraEnv=[env("KEYSHARED_KAFKA_GROUP_INSTANCE_ID")]),
        "extraEnv gives KEYSHARED_KAFKA_GROUP_INSTANCE_ID: the pods of a Deployment keep neither "
        "name nor id, and the partitions of one that went wait for its session timeout. Leave it "
        "out",
    ),
    "one static member in many pods": Refused(
        {**kafka(group_instance_id="one"), "replicaCount": 2, "strategy": {"type": "Recreate"}},
        'config.kafka has "group.instance.id" and replicaCount is 2: all pods would be the same '
        "member and throw each other out. Leave it out, or run one pod",
    ),
    "one static member twice during an update": Refused(
        kafka(group_instance_id="one"),
        'config.kafka has "group.instance.id" and strategy.type is RollingUpdate: the new pod '
        "would throw the old one out before it has committed. Set strategy.type to Recreate",
    ),
    "a setting that the broker decides": Refused(
        kafka(group_protocol="consumer", session_timeout_ms=10_000),
        'config.kafka has "session.timeout.ms", which the client refuses with '
        '"group.protocol"="consumer" (KIP-848: the broker decides): leave it out',
    ),
    "dead letters to nowhere": Refused(
        minimal(config__on_exhausted="dead_letter"),
        "config.on_exhausted is dead_letter and there is no config.dlq: give the topic, or true "
        "for <topic>.dlq",
    ),
    "a dead-letter topic that nobody writes to": Refused(
        minimal(config__dlq_create=True),
        "config.dlq_create makes a dead-letter topic and there is no config.dlq: give the topic, "
        "or true for <topic>.dlq",
    ),
    "a revoke longer than the client waits": Refused(
        {
            **kafka(max_poll_interval_ms=10_000),
            "config": {
                **kafka(max_poll_interval_ms=10_000)["config"],
                "revoke_deadline": 4.6,
            },
        },
        'config.revoke_deadline is 4.6 s, above 4.5 s, half of "max.poll.interval.ms" less 0.5 s: '
        "lower the first, or raise the second",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_work_is_refused_with_what_to_do(name: str) -> None:
    values, said = CASES[name]
    with pytest.raises(RefusedError) as refused:
        render(values)
    # Exactly one complaint: the values are right but for this.
    assert f"these values cannot work:\n  - {said}\n" in str(refused.value)
    assert str(refused.value).count("\n  - ") == 1
    assert "hunter2" not in str(refused.value)


def test_every_rule_of_the_chart_has_its_case() -> None:
    text = (CHART / "templates" / "_checks.tpl").read_text("utf-8")
    rules = re.findall(r'append \$wrong \(?(?:printf )?"((?:[^"\\]|\\.)*)"', text)
    assert len(rules) == text.count("append $wrong")
    said = [refused.said for refused in CASES.values()]
    for rule in rules:
        words = re.split(r"%[a-z]", rule.replace('\\"', '"'))
        pattern = re.compile(".*".join(re.escape(part) for part in words))
        assert any(pattern.fullmatch(each) for each in said), f"no case is refused with: {rule}"


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(RefusedError) as refused:
        render({"terminationGracePeriodSeconds": 1, "config": {"http_host": "localhost"}})
    assert str(refused.value).count("\n  - ") == 7


@pytest.mark.parametrize(("stop", "least"), [(None, 40), (25.001, 41), (0.1, 16), (3600, 3615)])
def test_the_grace_period_is_the_stop_timeout_rounded_up_and_15(
    stop: float | None, least: int
) -> None:
    assert Options().stop_timeout == 25
    values = minimal() if stop is None else minimal(config__stop_timeout=stop)
    assert pod(render(values))["terminationGracePeriodSeconds"] == least
    made = pod(render({**values, "terminationGracePeriodSeconds": least}))
    assert made["terminationGracePeriodSeconds"] == least
    with pytest.raises(RefusedError, match=f"Give at least {least}, or leave it out"):
        render({**values, "terminationGracePeriodSeconds": least - 1})


# The package masks these too, to be on the safe side; they are an address and a path.
HARMLESS = {
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.private.key.file",
}


def test_what_the_package_masks_is_refused_wherever_it_is_readable() -> None:
    # What a later client may call its own.
    names = [*CONSUMER, "a.token", "a.secret", "a.passphrase", "a.private.key"]
    secret = {name for name in names if is_secret(name, "hunter2")} - HARMLESS
    assert {"sasl.password", "ssl.key.pem", "sasl.oauthbearer.config", *names[-4:]} <= secret
    with pytest.raises(RefusedError) as refused:
        render(minimal(config__kafka=dict.fromkeys(names, "hunter2")))
    found = re.findall(r'has "([^"]+)", a secret', str(refused.value))
    assert set(found) == secret
    variables = {name: "KEYSHARED_KAFKA_" + name.upper().replace(".", "_") for name in names}
    plain = [{"name": variable, "value": "hunter2"} for variable in variables.values()]
    with pytest.raises(RefusedError) as refused:
        render(minimal(extraEnv=plain))
    found = re.findall(r"extraEnv gives (\w+) as plain text", str(refused.value))
    assert set(found) == {variables[name] for name in secret}
    reference = {"secretKeyRef": {"name": "user", "key": "password"}}
    referred = [{"name": variables[name], "valueFrom": reference} for name in sorted(secret)]
    assert render(minimal(extraEnv=referred))


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_refused_and_the_successor_named(former: str) -> None:
    with pytest.raises(RefusedError) as refused:
        render(minimal(**{f"config__{former}": 1}))
    assert renaming(former, IN_VALUES) in str(refused.value)


def test_a_private_key_is_refused_under_any_name() -> None:
    both = "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n"
    with pytest.raises(RefusedError, match="a ConfigMap is no place for one"):
        render(minimal(config__kafka={"ssl.certificate.pem": both}))


def test_what_only_sounds_like_a_secret_is_taken() -> None:
    harmless = [*HARMLESS, "ssl.key.location", "ssl.certificate.pem", "sasl.username"]
    assert render(minimal(config__kafka=dict.fromkeys(harmless, "x")))


def test_where_the_environment_gives_the_broker_the_values_need_not() -> None:
    reference = {"configMapKeyRef": {"name": "cluster", "key": "bootstrap"}}
    given = [{"name": "KEYSHARED_BOOTSTRAP", "valueFrom": reference}]
    assert render(minimal(config__bootstrap=None, extraEnv=given))


def test_one_static_member_that_is_replaced_and_never_doubled_is_taken() -> None:
    values = {**kafka(group_instance_id="one"), "strategy": {"type": "Recreate"}}
    assert render(values)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("session.timeout.ms", 45_000),
        ("heartbeat.interval.ms", 3_000),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("group.protocol.type", "consumer"),
        ("group.remote.assignor", "uniform"),
        ("max.poll.interval.ms", 300_000),
    ],
)
def test_what_the_client_refuses_under_kip_848_is_what_the_chart_refuses(
    setting: str, value: str | int
) -> None:
    settings = {"group.protocol": "consumer", setting: value}
    try:
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **settings}).close()
        refused_by_client = False
    except KafkaException:
        refused_by_client = True
    try:
        render(minimal(config__kafka=settings))
        refused_by_chart = False
    except RefusedError as refused:
        assert f'"{setting}", which the client refuses' in str(refused)
        refused_by_chart = True
    assert refused_by_chart == refused_by_client


def test_with_the_classic_protocol_they_are_the_clients_to_decide() -> None:
    settings = {"group.protocol": "classic", "session.timeout.ms": 45_000}
    assert render(minimal(config__kafka=settings))


def test_the_cases_that_are_shown_to_users_are_refused_nothing() -> None:
    for name in ("minimal", "sasl-tls", "full"):
        assert render(case(name))
