"""What whoever may not do everything can do with dead letters, and what to ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    ResourceType,
)

from tests.support.cli import Ended, in_process
from tests.support.letters import ends, write_letters
from tests.support.secured_broker import Secured

Verb = Callable[..., Ended]
LETTERS = [(0, number) for number in range(6)]
FILE = "or keep the progress in a file with --state PATH"
NEEDED = "That needs READ and WRITE on this topic, and CREATE if it does not exist"


@pytest.fixture
def verb(secured: Secured, topic: str, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb as alice, who may write to ``topic`` and read its dead letters."""
    secured.cluster.create_topic(topic, 1)
    secured.cluster.create_topic(f"{topic}.dlq", 2)
    write_letters(secured.cluster, topic, LETTERS, keys=2)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE):
        secured.allow(ResourceType.TOPIC, f"{topic}.dlq", operation)
    secured.allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    conf = secured.alice("unused")
    settings = [each for name in conf if "." in name for each in ("-X", f"{name}={conf[name]}")]

    def run(name: str, *more: object) -> Ended:
        return in_process(capsys, "dlq", name, "-t", topic, *settings, *more)

    return run


def replay_by_another(secured: Secured, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who may do everything replays the letters of one key."""
    verb = ("dlq", "replay", "-b", secured.cluster.bootstrap, "-t", topic, "--json")
    done = in_process(capsys, *verb, "--execute", "--record-key", "key-0")
    assert json.loads(done.out)["replayed"] == 3, done.err


def assert_refused(ended: Ended, secured: Secured, topic: str, before: int) -> None:
    """It said what is missing and what to do, and has sent nothing."""
    assert (ended.status, ended.out) == (2, ""), ended.err
    assert "nothing was replayed, because the progress cannot be recorded" in ended.err
    assert NEEDED in ended.err
    assert FILE in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ends(secured.cluster, topic) == before


def test_without_a_right_on_the_progress_one_can_look_and_not_replay(
    secured: Secured, topic: str, verb: Verb, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is hidden is not taken for what is not there: it would all be sent again."""
    replay_by_another(secured, topic, capsys)
    listed = verb("ls", "--json")
    assert listed.status == 0, listed.err
    found = json.loads(listed.out)
    assert (found["letters"], found["outstanding"], found["replayed"]) == (6, None, None)
    assert "the replay progress is unknown: " in listed.err
    assert "allow this user to READ it, if it is there" in listed.err
    assert verb("show", "0:0").status == 0
    plan = verb("replay", "--json")
    assert plan.status == 0, plan.err
    assert json.loads(plan.out)["to_replay"] == 6
    assert json.loads(plan.out)["already_replayed"] is None
    assert "letters that were replayed before are counted, too; --execute is refused" in plan.err
    assert_refused(verb("replay", "--execute"), secured, topic, before=3)
    export = verb("export", "--outstanding")
    assert (export.status, export.out) == (2, ""), "half-known is not outstanding"
    with_file = verb("replay", "--execute", "--json", "--state", tmp_path / "progress")
    assert json.loads(with_file.out)["replayed"] == 6, with_file.err


def test_who_may_read_the_progress_and_not_write_to_it_knows_and_does_not_replay(
    secured: Secured, topic: str, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    replay_by_another(secured, topic, capsys)
    progress = f"{topic}.dlq.replays"
    secured.allow(ResourceType.TOPIC, progress, AclOperation.READ)
    found = json.loads(verb("ls", "--json").out)
    assert (found["outstanding"], found["replayed"]) == (3, 3)
    plan = json.loads(verb("replay", "--json").out)
    assert (plan["to_replay"], plan["already_replayed"]) == (3, 3)
    refused = verb("replay", "--execute")
    assert_refused(refused, secured, topic, before=3)
    assert (
        f"{progress}: Broker: Topic authorization failed: allow this user to WRITE" in refused.err
    )
    secured.allow(ResourceType.TOPIC, progress, AclOperation.WRITE)
    done = verb("replay", "--execute", "--json")
    assert json.loads(done.out)["replayed"] == 3, done.err


def test_who_may_not_make_the_topic_is_told_what_to_ask_for(
    secured: Secured, topic: str, verb: Verb
) -> None:
    for operation in (AclOperation.READ, AclOperation.WRITE):
        secured.allow(ResourceType.TOPIC, f"{topic}.dlq.replays", operation)
    plan = verb("replay", "--json")
    assert json.loads(plan.out)["to_replay"] == 6, plan.err
    assert "no earlier replay is recorded" in plan.err
    refused = verb("replay", "--execute")
    assert_refused(refused, secured, topic, before=0)
    assert f"topic '{topic}.dlq.replays' cannot be made or seen by this user" in refused.err
    secured.allow(ResourceType.TOPIC, f"{topic}.dlq.replays", AclOperation.CREATE)
    done = verb("replay", "--execute", "--json")
    assert json.loads(done.out)["replayed"] == 6, done.err
