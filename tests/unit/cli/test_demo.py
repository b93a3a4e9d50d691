"""What `keyshared demo` says while it judges."""

from __future__ import annotations

import threading

from kafka_keyshared.cli.demo import JUDGING, judging

PATIENCE = 30.0


def test_the_judge_is_announced_once_and_says_every_few_seconds_that_it_goes_on() -> None:
    said: list[str] = []
    thrice = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 4:
            thrice.set()

    with judging(say, every=0.001) as begin:
        assert said == []
        begin()
        begin()
        assert thrice.wait(PATIENCE)
    before = len(said)
    assert said.count(JUDGING) == 1 == said.index(JUDGING) + 1
    assert all(each.startswith("  the judge is still working, ") for each in said[1:])
    assert not [each for each in threading.enumerate() if each.name == "demo-judging"]
    assert len(said) == before, "nothing more after the end"


def test_a_run_that_is_never_judged_says_nothing_of_it() -> None:
    said: list[str] = []
    with judging(said.append, every=0.001):
        assert said == []
    assert said == []
