"""Settings of a deployment, laid over an app that is code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.config import Layers, load_file
from kafka_keyshared.errors import ConfigError
from tests.support.offline_instance import CONF
from tests.support.records import record


def file_with(place: Path, text: str) -> Layers:
    path = place / "keyshared.toml"
    path.write_text(text, "utf-8")
    return load_file(path)


def own_key(of: Any) -> bytes:
    return b"one"


def test_a_file_goes_before_the_settings_of_an_app_and_leaves_the_others(tmp_path: Path) -> None:
    app = KeyShared(
        {**CONF, "client.id": "mine"},
        ["orders"],
        retry={"attempts": 9, "backoff": 0.5},
        key=own_key,
        workers=4,
    )

    @app.batch_handler(size=7)
    def handle(records: list[Any]) -> None: ...

    laid = file_with(
        tmp_path,
        'bootstrap = "elsewhere:9092"\ngroup = "billing"\nworkers = "thread:3"\n'
        "[retry]\nattempts = 2\n",
    )
    app.override(laid, "app:app")
    assert app.conf["bootstrap.servers"] == "elsewhere:9092"
    assert (app.conf["group.id"], app.conf["client.id"]) == ("billing", "mine")
    assert app.topics == ["orders"]
    assert app.options.workers == "thread:3"
    assert (app.options.retry.attempts, app.options.retry.backoff) == (2, 0.5)
    assert app.subscription.key_of is not None
    assert app.subscription.key_of(record(0, b"two")) == b"one"
    assert app.called is handle
    assert app.batches is not None
    assert app.batches.size == 7
    assert app.layers is not None
    origins = app.layers.origins
    assert origins["retry.backoff"] == "app:app"
    assert origins["workers"].endswith("keyshared.toml")


def test_another_name_of_a_client_setting_is_the_same_setting(tmp_path: Path) -> None:
    own = {name: value for name, value in CONF.items() if name != "bootstrap.servers"}
    app = KeyShared({**own, "metadata.broker.list": "mine:9092"}, ["orders"])
    app.override(file_with(tmp_path, 'bootstrap = "elsewhere:9092"\n'), "app:app")
    assert "metadata.broker.list" not in app.conf
    assert app.conf["bootstrap.servers"] == "elsewhere:9092"


def test_a_coroutine_handler_still_chooses_its_pool_where_no_workers_are_given(
    tmp_path: Path,
) -> None:
    app = KeyShared(CONF, ["orders"])

    @app.handler
    async def handle(record: Any) -> None: ...

    app.override(file_with(tmp_path, 'group = "billing"\n'), "app:app")
    assert app.options.pool == "asyncio"
    with pytest.raises(ConfigError, match="async def"):
        app.override(file_with(tmp_path, 'workers = "thread:2"\n'), "app:app")


def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    app = KeyShared(CONF, ["orders"], dlq=True, on_exhausted="dead_letter")
    with pytest.raises(ConfigError, match="needs a dead-letter topic"):
        app.override(file_with(tmp_path, "dlq = false\n"), "app:app")


def test_an_app_with_members_keeps_the_settings_that_it_was_made_with(tmp_path: Path) -> None:
    app = KeyShared(CONF, ["orders"], workers="pull")
    app.join("one")
    with pytest.raises(ConfigError, match=r"an app with members.*layered\(\)"):
        app.override(file_with(tmp_path, 'group = "billing"\n'), "app:app")
