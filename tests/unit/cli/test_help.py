"""Help is quick because it loads nothing; without its extra the command line says what to do."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import pytest

from tests.support.cli import as_user, in_process

VERBS: list[list[str]] = [
    [],
    ["run"],
    ["demo"],
    ["demo", "load"],
    ["doctor"],
    ["config"],
    ["config", "show"],
    ["config", "check"],
    ["config", "schema"],
    ["advise"],
    ["init"],
    ["routing"],
    ["routing", "where"],
    ["routing", "show"],
    ["routing", "simulate"],
    ["dlq"],
    ["dlq", "ls"],
    ["dlq", "show"],
    ["dlq", "export"],
    ["dlq", "replay"],
    ["spark"],
    ["spark", "run"],
    ["spark", "jars"],
    ["bench"],
    ["bench", "noop"],
    ["bench", "latency"],
    ["bench", "fair"],
    ["bench", "skew"],
    ["bench", "scale"],
    ["bench", "stuck"],
    ["bench", "memory"],
    ["bench", "idle"],
]

HELP_OF_ALL = """
import contextlib, io, json, sys
from kafka_keyshared.cli import main
told, before = {}, set()
for verb in json.loads(sys.argv[1]):
    sys.argv = ["keyshared", *verb, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main()
    there = {name.partition(".")[0] for name in sys.modules}
    told[" ".join(verb)] = [status, out.getvalue(), sorted(there - before)]
    before = there
print(json.dumps(told))
"""
"""One process, because each takes half a second to start; a verb is told what it has added."""


@pytest.fixture(scope="module")
def helped() -> dict[str, tuple[int, str, list[str]]]:
    """For each verb the exit status of its help, the text, and the packages that it loaded."""
    ended = as_user(json.dumps(VERBS), command=(sys.executable, "-c", HELP_OF_ALL))
    assert (ended.status, ended.err) == (0, "")
    told: dict[str, tuple[int, str, list[str]]] = json.loads(ended.out)
    return told


@pytest.mark.parametrize("verb", [" ".join(each) for each in VERBS])
def test_help_of_a_verb_loads_no_kafka_client(
    helped: dict[str, tuple[int, str, list[str]]], verb: str
) -> None:
    status, text, loaded = helped[verb]
    assert status == 0
    assert text.startswith(f"Usage: keyshared {verb}".rstrip())
    assert not {"confluent_kafka", "fastavro", "msgspec", "mmh3"} & set(loaded)


NOT_FOR_HELP = {
    *(
        "asyncio",
        "confluent_kafka",
        "fastavro",
        "http.client",
        "json",
        "logging",
        "mmh3",
        "msgspec",
    ),
    *("multiprocessing", "numpy", "prometheus_client", "pyspark", "rich.console", "rich.table"),
    *("ssl", "starlette", "textual", "uvicorn", "yaml"),
}
"""Modules that cost milliseconds each, and that a list of commands does not need."""

FOR_HELP = {
    *("kafka_keyshared", "kafka_keyshared.errors", "kafka_keyshared.former_names"),
    *(f"kafka_keyshared.cli{name}" for name in ("", ".app", ".arguments", ".options", ".output")),
}
"""All modules of the package that it needs, besides the declarations of the options."""


def test_the_list_of_commands_imports_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys\nfrom kafka_keyshared.cli import main\nsys.argv = ['keyshared', '--help']\n"
        "status = main()\nprint(*sorted(sys.modules), file=sys.stderr)\nsys.exit(status)"
    )
    ended = as_user(command=(sys.executable, "-c", program))
    assert ended.status == 0
    loaded = set(ended.err.split())
    assert {"typer", "kafka_keyshared.cli.verbs.run"} <= loaded
    assert not loaded & NOT_FOR_HELP
    own = {each for each in loaded if each.partition(".")[0] == "kafka_keyshared"}
    assert {each for each in own if not each.startswith("kafka_keyshared.cli.verbs")} <= FOR_HELP


def test_each_command_has_a_first_line_that_is_shown_whole(
    helped: dict[str, tuple[int, str, list[str]]],
) -> None:
    lists = [text for _, text, _ in helped.values() if "\nCommands:\n" in text]
    lines = [line for text in lists for line in text.partition("\nCommands:\n")[2].splitlines()]
    assert len(lines) > 40
    assert not [line for line in lines if line.endswith("...") or not line.endswith(".")]


def test_the_version_is_that_of_the_package() -> None:
    ended = as_user("--version")
    assert (ended.status, ended.out, ended.err) == (0, f"{version('kafka-keyshared')}\n", "")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_prints_the_install_line(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None\n" + (
        "from kafka_keyshared.cli import main\nsys.exit(main())"
    )
    ended = as_user("--help", command=(sys.executable, "-c", program))
    assert ended.status == 2
    assert ended.out == ""
    assert 'pip install "kafka-keyshared[cli]"' in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--no-such-option"], "--no-such-option"),
        (["no-such-verb"], "no-such-verb"),
        (["run"], "MODULE:ATTR"),
        (["bench", "noop", "--records", "many"], "--records"),
        (["demo", "-o", "xml"], "xml"),
        (["demo", "--sabotage", "gently"], "reorder, drop, duplicate, commit-early"),
        (["demo", "--sabotage", "drop", "--workers", "asyncio:8"], "it breaks threads alone"),
        (["demo", "--workers", "split:2"], "give one of these with a number"),
        (["demo", "--records", "0"], "from 1 to 362891"),
        (["demo", "load"], "-b host:port"),
        (["doctor"], "nothing to check"),
        (["doctor", "-b", "x:1", "-X", "no-equals-sign"], "give KEY=VALUE"),
        (["doctor", "--config", "no-such-file.toml"], "no-such-file.toml: No such file"),
        (["demo", "load", "-b", "x:1", "--partitions", "0"], "--partitions"),
        (["bench", "noop", "--records", "0"], "--records 0"),
        (["bench", "noop", "--workers", "thread:0"], "at least 1 worker"),
        (["bench", "noop", "--workers", "fibre:4"], "fibre:4"),
        (["bench", "noop", "--null-share", "2"], "--null-share"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    ended = in_process(capsys, *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""


def test_an_interrupt_is_a_failure_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafka_keyshared.cli.demo.load_verb", interrupted)
    ended = in_process(capsys, "demo", "load")
    assert ended.status == 1
    assert "interrupted" in ended.err
    assert "Traceback" not in ended.err


def test_a_defect_is_not_hidden(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("kafka_keyshared.cli.demo.load_verb", broken)
    with pytest.raises(ZeroDivisionError):
        in_process(capsys, "demo", "load")


def test_a_sigterm_during_the_start_ends_it_also_where_it_is_the_first_process() -> None:
    """A container's first process never gets a signal for which it has no handler."""
    program = (
        "import os, signal, sys, kafka_keyshared.cli.app as app\n"
        "def told(**_):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    signal.pause()\n"
        "app.app = told\n"
        "from kafka_keyshared.cli import main\n"
        "sys.exit(main())"
    )
    ended = as_user("demo", command=(sys.executable, "-c", program))
    assert ended.status == 1
    assert "interrupted" in ended.err
