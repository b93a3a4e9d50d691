"""Default < file < environment < flag, for every setting that there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import (
    Layers,
    SettingsError,
    from_flags,
    layered,
    load_file,
    make_options,
    merge,
    sources,
)
from kafka_keyshared.config.fields import Field
from kafka_keyshared.config.layers import from_environment
from kafka_keyshared.config.show import effective_settings
from kafka_keyshared.errors import ConfigError
from tests.support.setting_values import (
    GIVEN,
    SETTINGS,
    as_text,
    as_toml,
    bad_text,
    bad_values,
    two_values,
)

EACH = pytest.mark.parametrize("field", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keyshared.toml"


def _put(file: Path, environ: dict[str, str], flags: dict[str, tuple[Any, str]]) -> Layers:
    path = file if file.exists() else None
    return merge([*sources(path, environ), from_flags(flags, {})])


def _shown(layers: Layers, field: Field) -> tuple[Any, str]:
    assert layers.faults == ()
    return tuple(effective_settings(layers)[0][field.name])


@EACH
def test_each_layer_wins_over_the_one_below(field: Field, file: Path) -> None:
    low, high = two_values(field)
    assert field.env is not None
    assert _shown(_put(file, {}, {}), field) == (field.default, "default")

    file.write_text(as_toml({field.name: low}))
    table = field.name.rpartition(".")[0]
    where = f"[{table}] in {file}" if table else str(file)
    assert _shown(_put(file, {}, {}), field) == (low, where)

    environ = {field.env: as_text(high)}
    assert _shown(_put(file, environ, {}), field) == (high, field.env)
    assert _shown(_put(file, {field.env: ""}, {}), field) == (low, where), "empty is not set"

    flags = {field.name: (low, "--flag")}
    assert _shown(_put(file, environ, flags), field) == (low, "--flag")
    assert _shown(_put(file, environ, {field.name: (None, "--flag")}), field)[0] == high


@EACH
def test_a_run_starts_with_what_the_layers_say(field: Field, file: Path) -> None:
    """What is shown is what an app gets: the two could be put together differently."""
    low, _ = two_values(field)
    file.write_text(as_toml({**GIVEN, field.name: low}))
    layers = _put(file, {}, {})
    values: dict[str, Any] = layers.options | {"topics": layers.topics}
    values |= {"bootstrap": layers.conf["bootstrap.servers"], "group": layers.conf["group.id"]}
    for name in field.name.split("."):
        values = values[name]
    assert values == low


@EACH
def test_a_wrong_value_in_a_file_is_told_with_its_place_and_what_it_may_be(
    field: Field, file: Path
) -> None:
    table = field.name.rpartition(".")[0]
    where = f"[{table}] in {file}" if table else file
    for value in bad_values(field):
        file.write_text(as_toml({field.name: value}))
        (fault,) = _put(file, {}, {}).faults
        assert str(fault) == (
            f"{field.name}={value!r}: give {field.allowed} ({field.name} is from {where})"
        )


@pytest.mark.parametrize(
    "field", [each for each in SETTINGS.values() if bad_text(each)], ids=lambda each: each.name
)
def test_a_wrong_text_is_told_with_its_variable_or_flag(field: Field) -> None:
    text = bad_text(field)
    assert field.env is not None
    for layer, origin in (
        (from_environment({field.env: str(text)}), field.env),
        (from_flags({field.name: (text, "--flag")}, {}), "--flag"),
    ):
        (fault,) = layer.faults
        assert fault.settings == (field.name,)
        assert str(fault).startswith(f"{field.name}=")
        assert f"give {field.allowed} ({field.name} is from {origin})" in str(fault)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("KEYSHARED_WORKERS", "16", 16),
        ("KEYSHARED_WORKERS", "thread:16", "thread:16"),
        ("KEYSHARED_DLQ", "true", True),
        ("KEYSHARED_DLQ", "False", False),
        ("KEYSHARED_DLQ", "orders.dlq", "orders.dlq"),
        ("KEYSHARED_ACK_TIMEOUT", "2.5", 2.5),
        ("KEYSHARED_ACK_TIMEOUT", "1e1", 10.0),
        ("KEYSHARED_ACK_TIMEOUT", "none", None),
        ("KEYSHARED_ACK_TIMEOUT", " 7 \n", 7.0),
        ("KEYSHARED_TOPICS", "orders", ["orders"]),
        ("KEYSHARED_TOPICS", "orders, ^pay.*", ["orders", "^pay.*"]),
        ("KEYSHARED_GROUP", "none", "none"),
        ("KEYSHARED_GROUP", "7", "7"),
        ("KEYSHARED_ONE_IN_FLIGHT_PER_KEY", "true", True),
    ],
)
def test_what_a_text_means(variable: str, text: str, value: Any) -> None:
    layers = merge([from_environment({variable: text})])
    shown, origin = effective_settings(layers)[0][variable.removeprefix("KEYSHARED_").lower()]
    assert (layers.faults, shown, type(shown), origin) == ((), value, type(value), variable)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1_0", "0x10", "yes", "1,5", "."])
def test_what_no_number_means(text: str) -> None:
    (fault,) = from_environment({"KEYSHARED_COMMIT_INTERVAL": text}).faults
    assert fault.settings == ("commit_interval",)


@EACH
def test_no_setting_takes_what_is_no_number(field: Field, file: Path) -> None:
    """A time without a bound would take them: they compare with nothing, or are never over."""
    for value in ("nan", "inf", "-inf"):
        file.write_text(f"{field.name} = {value}\n")
        with pytest.raises(ConfigError, match=field.name):
            load_file(file)


# --- names that are none ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrkers = 8", "'wrkers' is not a setting; did you mean 'workers'? (wrkers is from"),
        ("wrkers = 8", "\nthe settings are workers, dlq, "),
        ("attempts = 3", "'attempts' is not a setting here: move 'attempts' into [retry] ("),
        (
            "[retry]\nworkers = 3",
            "'retry.workers' is not a setting here: move 'workers' out of [retry]",
        ),
        ("[retry]\nxyz = 3", "\nthe settings in [retry] are attempts, backoff, "),
        (
            'dlq = "yes"',
            "dlq='yes': text is the name of a topic; give true without quotes, or 'auto'",
        ),
        ('dlq = "True"', "dlq='True': text is the name of a topic; give true without quotes"),
        (
            'dlq = "off"',
            "dlq='off': text is the name of a topic; give false without quotes, or leave",
        ),
        ("[retry]\nattemps = 3", "'retry.attemps' is not a setting; did you mean 'attempts'?"),
        ("retry = 3", "retry=3: give a table with attempts, backoff"),
        ("kafka = 3", "kafka=3: give a table with settings of the client"),
        ("[workers]\nthread = 16", "workers={'thread': 16}: give a number of threads"),
        ('[kafka]\n"ssl.ca.location" = [1]', "'ssl.ca.location' is a list: give text, a number"),
    ],
)
def test_what_a_file_may_not_have(text: str, said: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_file(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KEYSHARED_WRKERS", "KEYSHARED_WORKERS"),
        ("KEYSHARED_TOPIC", "KEYSHARED_TOPICS"),
        ("KEYSHARED_RETRY_ATTEMPS", "KEYSHARED_RETRY_ATTEMPTS"),
        ("KEYSHARED_SASL_PASSWORD", "KEYSHARED_KAFKA_SASL_PASSWORD"),
        ("KEYSHARED_CONFG", "KEYSHARED_CONFIG"),
        ("KEYSHARED_XYZ", None),
        ("KEYSHARED_RETRY", None),
        ("KEYSHARED_KAFKA", None),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(variable: str, meant: str | None) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is not a setting") as caught:
        layered(None, {variable: "hunter2"})
    assert meant is None or f"did you mean '{meant}'?" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_variables_of_others_are_left_alone() -> None:
    """Those of this project's tests, and what Kubernetes makes of a service of that name."""
    layer = from_environment(
        {
            "KEYSHARED_TEST_BOOTSTRAP": "x",
            "KEYSHARED_SEEDS": "3",
            "KEYSHARED_KAFKA_JARS": "/jars",
            "KEYSHARED_SPARK_JARS": "/jars",
            "KEYSHARED_SERVICE_HOST": "10.0.0.1",
            "KEYSHARED_SERVICE_PORT": "8787",
            "KEYSHARED_SERVICE_PORT_HTTP": "8787",
            "KEYSHARED_PORT": "tcp://10.0.0.1:8787",
            "KEYSHARED_PORT_8787_TCP": "tcp://10.0.0.1:8787",
            "KEYSHARED_PORT_8787_TCP_ADDR": "10.0.0.1",
            "KEYSHARED_HTTP_PORT": "tcp://10.0.0.1:8787",
            "KEYSHARED_KAFKA_SERVICE_HOST": "10.0.0.2",
            "keyshared_workers": "3",
            "KEYSHAREDWORKERS": "3",
        }
    )
    assert (layer.faults, layer.settings, layer.client) == ([], {}, {})


# --- the client's settings ---


def test_settings_of_the_client_are_layered_too(file: Path) -> None:
    file.write_text('[kafka]\n"fetch.min.bytes" = 2\nsession.timeout.ms = 7000\n')
    environ = {"KEYSHARED_KAFKA_SESSION_TIMEOUT_MS": "8000", "KEYSHARED_KAFKA_LOG_LEVEL": "3"}
    flags = from_flags({}, {"session.timeout.ms": "9000"})
    layers = merge([*sources(file, environ), flags])
    assert layers.conf == {"fetch.min.bytes": 2, "session.timeout.ms": "9000", "log_level": "3"}
    assert layers.origins == {
        "fetch.min.bytes": f"[kafka] in {file}",
        "session.timeout.ms": "-X",
        "log_level": "KEYSHARED_KAFKA_LOG_LEVEL",
    }
    assert merge(sources(file, environ)).conf["session.timeout.ms"] == "8000"
    _, client = effective_settings(layers)
    assert client["fetch.wait.max.ms"] == (50, "default")


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ('bootstrap = "x:1"', {"KEYSHARED_KAFKA_BOOTSTRAP_SERVERS": "y:1"}),
        ('[kafka]\nbootstrap.servers = "x:1"', {"KEYSHARED_BOOTSTRAP": "y:1"}),
        ('[kafka]\nmetadata.broker.list = "x:1"', {"KEYSHARED_BOOTSTRAP": "y:1"}),
        ('bootstrap = "x:1"', {"KEYSHARED_KAFKA_METADATA_BROKER_LIST": "y:1"}),
    ],
)
def test_two_names_of_one_setting_are_one_setting(
    low: str, high: dict[str, str], file: Path
) -> None:
    file.write_text(low)
    assert merge(sources(file, {})).conf == {"bootstrap.servers": "x:1"}
    assert merge(sources(file, high)).conf == {"bootstrap.servers": "y:1"}


def test_two_names_of_one_setting_in_one_place_must_agree(file: Path) -> None:
    file.write_text('bootstrap = "x:1"\n[kafka]\nbootstrap.servers = "y:1"\n')
    (fault,) = merge(sources(file, {})).faults
    assert str(fault) == (
        "'bootstrap.servers' is given twice, with different values: leave one out "
        f"(bootstrap.servers is from {file} and from [kafka] in {file})"
    )


def test_a_secret_with_a_line_break_behind_it_is_refused() -> None:
    (fault,) = from_environment({"KEYSHARED_KAFKA_SASL_PASSWORD": "hunter2\n"}).faults
    assert "ends with a line break" in str(fault)
    assert "KEYSHARED_KAFKA_SASL_PASSWORD" in str(fault)
    assert "hunter2" not in str(fault)
    pem = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    assert from_environment({"KEYSHARED_KAFKA_SSL_CA_PEM": pem}).faults == []


# --- what does not fit together ---


@pytest.mark.parametrize(
    ("text", "environ", "said", "origins"),
    [
        (
            "revoke_deadline = 40",
            {"KEYSHARED_KAFKA_MAX_POLL_INTERVAL_MS": "60000"},
            "revoke_deadline=40 s is above 29.5 s",
            {
                "revoke_deadline": "from {file}",
                "max.poll.interval.ms": "from KEYSHARED_KAFKA_MAX_POLL_INTERVAL_MS",
            },
        ),
        (
            "revoke_deadline = 200",
            {},
            "revoke_deadline=200 s is above 149.5 s",
            {"revoke_deadline": "from {file}", "max.poll.interval.ms": "the default"},
        ),
        (
            'on_exhausted = "dead_letter"',
            {"KEYSHARED_DLQ": "false"},
            "on_exhausted='dead_letter' needs a dead-letter topic",
            {"on_exhausted": "from {file}", "dlq": "from KEYSHARED_DLQ"},
        ),
        (
            "",
            {"KEYSHARED_DLQ_CREATE": "true"},
            "dlq_create=True creates a dead-letter topic, dlq is not set",
            {"dlq_create": "from KEYSHARED_DLQ_CREATE", "dlq": "the default"},
        ),
        (
            "kafka.group.protocol = 'consumer'",
            {"KEYSHARED_KAFKA_SESSION_TIMEOUT_MS": "7000"},
            "'session.timeout.ms' cannot be given with 'group.protocol'=consumer",
            {
                "session.timeout.ms": "from KEYSHARED_KAFKA_SESSION_TIMEOUT_MS",
                "group.protocol": "from [kafka] in {file}",
            },
        ),
        (
            "kafka.max.poll.interval.ms = 20000",
            {},
            "'max.poll.interval.ms' is 20000 and below 'session.timeout.ms', 45000",
            {"max.poll.interval.ms": "from [kafka] in {file}", "session.timeout.ms": "the default"},
        ),
    ],
)
def test_what_does_not_fit_together_is_told_with_both_origins(
    text: str, environ: dict[str, str], said: str, origins: dict[str, str], file: Path
) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        layered(file, environ)
    (fault,) = caught.value.faults
    assert said in fault.text
    assert fault.origins == {name: each.format(file=file) for name, each in origins.items()}


def test_all_faults_are_told_at_once(file: Path) -> None:
    file.write_text('wrkers = 1\nwindow_records = 0\n[kafka]\n"enable.auto.commit" = true\n')
    environ = {"KEYSHARED_ON_STUCK": "explode", "KEYSHARED_NOTHING": "x"}
    with pytest.raises(SettingsError) as caught:
        layered(file, environ)
    assert [fault.settings for fault in caught.value.faults] == [
        ("wrkers",),
        ("window_records",),
        ("enable.auto.commit",),
        ("on_stuck",),
        ("KEYSHARED_NOTHING",),
    ]
    assert len(str(caught.value).splitlines()) == 7, "a head, five faults, the names"


def test_the_names_that_there_are_come_once_whatever_is_no_name(file: Path) -> None:
    file.write_text("wrkers = 1\nxyz = 2\nattempts = 3\n[retry]\nabc = 4\n")
    with pytest.raises(SettingsError) as caught:
        load_file(file)
    head, *faults, ours, of_retry = str(caught.value).splitlines()
    assert head == "4 settings cannot be used:"
    assert len(faults) == 4
    assert all("workers, dlq" not in each for each in faults)
    assert ours.startswith("the settings are workers, dlq, ")
    assert of_retry.startswith("the settings in [retry] are attempts, ")
    file.write_text("attempts = 3")
    with pytest.raises(SettingsError) as caught:
        load_file(file)
    assert len(str(caught.value).splitlines()) == 1, "that says it all"


def test_text_that_means_yes_is_yes_where_there_is_only_text() -> None:
    assert layered(None, {"KEYSHARED_DLQ": "true"}).options["dlq"] is True
    assert layered(None, {"KEYSHARED_DLQ": "False"}).options["dlq"] is False
    with pytest.raises(SettingsError, match="dlq='yes': text is the name of a topic"):
        layered(None, {"KEYSHARED_DLQ": "yes"})
    with pytest.raises(SettingsError, match="dlq='on': text is the name of a topic"):
        make_options({"dlq": "on"})


def test_a_file_is_wrong_even_where_the_environment_has_another_value(file: Path) -> None:
    file.write_text("workers = 0")
    with pytest.raises(ConfigError, match="workers=0"):
        layered(file, {"KEYSHARED_WORKERS": "3"})


# --- a program that takes its settings from there ---


def test_a_program_starts_from_file_and_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(as_toml({**GIVEN, "workers": 3}))
    monkeypatch.setenv("KEYSHARED_CONFIG", str(file))
    monkeypatch.setenv("KEYSHARED_RETRY_ATTEMPTS", "7")
    settings = layered()
    app = KeyShared(settings.conf, settings.topics, **settings.options)
    assert (app.options.workers, app.options.retry.attempts) == (3, 7)
    assert (app.topics, app.conf["group.id"]) == (["t"], "g")


def test_a_program_that_gives_its_settings_does_not_read_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEYSHARED_WORKERS", "3")
    monkeypatch.setenv("KEYSHARED_KAFKA_GROUP_ID", "other")
    app = KeyShared({"bootstrap.servers": "x:1", "group.id": "g"}, ["t"])
    assert (app.options.workers, app.conf["group.id"]) == (16, "g")


def test_the_file_that_a_program_names_is_the_only_one(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("workers = 5")
    file.write_text(json.dumps("x") + " = 1")
    assert layered(other, {"KEYSHARED_CONFIG": str(file)}).options == {"workers": 5}
