"""The schema says of a file what loading it says, and the page what the package does."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest

from kafka_keyshared.config import load_file, make_options
from kafka_keyshared.config.fields import Field, allowed, fields
from kafka_keyshared.config.file import schema
from kafka_keyshared.config.option_types import GivenOptions
from kafka_keyshared.config.options import Options
from kafka_keyshared.errors import ConfigError
from tests.setup import cli_page, config_page
from tests.support.setting_values import GIVEN, SETTINGS, as_toml, bad_values, two_values

EACH = pytest.mark.parametrize("field", SETTINGS.values(), ids=SETTINGS)
VALIDATOR = jsonschema.Draft202012Validator(schema())


def _both(text: str, tmp_path: Path) -> tuple[bool, bool]:
    """Return whether the schema takes a file, and whether loading it does."""
    file = tmp_path / "keyshared.toml"
    file.write_text(text)
    try:
        load_file(file)
    except ConfigError:
        loads = False
    else:
        loads = True
    return VALIDATOR.is_valid(tomllib.loads(text)), loads


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@EACH
def test_the_schema_takes_and_refuses_what_loading_does(field: Field, tmp_path: Path) -> None:
    # What a value needs beside it is not for a schema to know.
    beside: dict[str, Any] = {"dlq": True} if field.name not in ("dlq", "delivery") else {}
    if field.name == "group_view_create":
        beside["group_view_topic"] = "beats"
    if field.name == "shards":
        beside["workers"] = 1
    if field.name != "key_schema":
        for value in two_values(field):
            assert _both(as_toml({**beside, field.name: value}), tmp_path) == (True, True), value
    for value in bad_values(field):
        assert _both(as_toml({**beside, field.name: value}), tmp_path) == (False, False), value


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("wrkers = 8", False),
        ("[retry]\nattemps = 3", False),
        ("retry = 3", False),
        ("kafka = 3", False),
        ('[kafka]\n"fetch.min.bytes" = 3', True),
        ("[kafka]\nfetch.min.bytes = 3\nenable.partition.eof = true", True),
        ('[kafka]\n"ssl.ca.location" = [1]', False),
        ("[kafka]\nssl.ca.location = [1]", False),
        (as_toml(GIVEN), True),
    ],
)
def test_the_shape_of_a_file(text: str, fits: bool, tmp_path: Path) -> None:
    assert _both(text, tmp_path) == (fits, fits)


def test_a_default_is_what_its_own_field_takes() -> None:
    values: dict[str, Any] = {}
    for field in SETTINGS.values():
        if field.name in ("topics", "group", "bootstrap"):
            continue
        table, _, last = field.name.rpartition(".")
        (values.setdefault(table, {}) if table else values)[last] = field.default
    assert make_options(values) == make_options({})


# --- the page ---


def test_the_page_is_what_the_package_says() -> None:
    text = config_page.PAGE.read_text(encoding="utf-8")
    assert config_page.updated(text) == text, "run: make docs"


def test_a_page_that_is_out_of_date_is_noticed() -> None:
    text = config_page.PAGE.read_text(encoding="utf-8")
    for old, new in (
        ("`KEYSHARED_WORKERS`<br>", "`KEYSHARED_WORKER`<br>"),
        ("a number from 0 to 604800", "a number from 0 to 60"),
        ("`enable.auto.offset.store` | `false`", "`enable.auto.offset.store` | `true`"),
        ("mock brokers", "brokers"),
    ):
        changed = text.replace(old, new)
        assert changed != text, old
        assert config_page.updated(changed) == text


@pytest.mark.parametrize("name", config_page.TABLES)
def test_a_table_that_the_page_lost_is_noticed(name: str) -> None:
    text = config_page.PAGE.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="it must have"):
        config_page.updated(text.replace(f"<!-- table: {name} -->", ""))


@EACH
def test_every_setting_says_what_it_means_and_may_be(field: Field) -> None:
    assert field.meaning.endswith("."), "Meta(description=...) is a sentence"
    assert field.allowed
    assert f"| `{field.name}` |" in config_page.settings()


def test_every_flag_of_the_page_is_one_of_run_and_no_other_says_a_setting() -> None:
    options = {name for each in cli_page.verbs()["run"].params for name in each.opts}
    named = {field.flag for field in fields().values() if field.flag is not None}
    assert named <= options
    others = {"--app-dir", "--config", "--help", "handler", "--log-level", "--log-format"}
    others.add("--from-beginning")  # the client's setting by a name of ours
    # A setting by a file; what a run writes down, and what its handlers hand out.
    others |= {"--ring-weights", "--audit-log", "--outputs"}
    both = {"--bootstrap-server": "-b", "--topic": "-t", "--group": "-g"}
    assert {both.get(name, name) for name in options} - others == named


def test_what_a_type_allows_is_said_in_words() -> None:
    """Each kind of bound once; a bound that is left out of the words would not be guessed."""
    said = {name: field.allowed for name, field in SETTINGS.items()}
    assert said["retry.attempts"] == "a whole number of at least 1"
    assert said["retry.jitter"] == "a number of at least 0 below 1"
    assert said["commit_interval"] == "a number above 0 up to 604800, in seconds"
    assert said["ack_timeout"] == "a number above 0 up to 604800, in seconds, or leave it out"
    assert said["http_port"] == "a whole number from 0 to 65535, or leave it out"
    assert said["on_stuck"] == "'exit' or 'hold'"
    assert allowed(fields()["topics"].info) == "a list, each text that is not empty"


def test_what_type_checkers_know_of_the_options_is_what_they_are() -> None:
    """Apart from what Python alone can give: a function as key, a dict for the
    retries, classes of errors."""
    real, known = get_type_hints(Options), get_type_hints(GivenOptions)
    assert set(known) == set(real)
    wider = {"retry", "retry_on", "wait_on", "key"}
    assert {name: known[name] for name in known if name not in wider} == {
        name: real[name] for name in real if name not in wider
    }
    assert all(real[name] in get_args(known[name]) for name in ("retry", "key"))
