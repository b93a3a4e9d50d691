"""The option ``retry_on``: exception classes by import path, and the policy of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_keyshared import Backoff, Retry, never
from kafka_keyshared.config import Options, make_options
from kafka_keyshared.config.error_classes import (
    by_path,
    path_of,
    retry_policies,
    waited_classes,
)
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.errors import ConfigError

RETRY = {"attempts": 4, "backoff": 2.0, "factor": 3.0, "backoff_max": 50.0, "jitter": 0.5}


class OwnError(Exception):
    """An error of a program."""


def policies(retry_on: Any, **options: Any) -> dict[type[BaseException], RetryPolicy]:
    values, classes = by_path({"retry_on": retry_on, **options})
    return retry_policies(make_options(values), classes)


@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        (never, RetryPolicy(1, 2.0, 3.0, 50.0, 0.5)),
        (Backoff(), RetryPolicy(4, 2.0, 3.0, 50.0, 0.5)),
        (Backoff(forever=True, max=60), RetryPolicy(4, 2.0, 3.0, 60.0, 0.5, forever=True)),
        (Backoff(attempts=9, first=0, factor=1, jitter=0), RetryPolicy(9, 0, 1, 50.0, 0)),
        (Backoff(first=90), RetryPolicy(4, 90, 3.0, 90, 0.5)),
        ({"attempts": 9}, RetryPolicy(9, 2.0, 3.0, 50.0, 0.5)),
    ],
)
def test_what_a_back_off_does_not_say_comes_from_the_option_retry(
    rule: Any, policy: RetryPolicy
) -> None:
    assert policies({OwnError: rule}, retry=RETRY) == {OwnError: policy}


def test_classes_are_given_in_python_and_by_import_path() -> None:
    found = policies(
        {
            (OwnError, KeyError): never,
            "json.JSONDecodeError": Backoff(attempts=2),
            "builtins:OSError": Backoff(forever=True),
            "ConnectionError": never,
        }
    )
    assert list(found) == [OwnError, KeyError, json.JSONDecodeError, OSError, ConnectionError]


def test_the_path_of_a_file_counts_over_the_class_of_an_app() -> None:
    values, classes = by_path({"retry_on": {json.JSONDecodeError: never}})
    assert list(values["retry_on"]) == ["json.decoder.JSONDecodeError"]
    of_file = {**values["retry_on"], "json.JSONDecodeError": Backoff(attempts=7)}
    found = retry_policies(make_options({"retry_on": of_file}), classes)
    assert {each: policy.attempts for each, policy in found.items()} == {json.JSONDecodeError: 7}


def test_a_class_inside_a_function_needs_no_import() -> None:
    class InsideError(Exception):
        pass

    assert "<locals>" in path_of(InsideError)
    assert list(policies({InsideError: never})) == [InsideError]


@pytest.mark.parametrize(
    ("retry_on", "said"),
    [
        ([ValueError], r"retry_on=\[<class 'ValueError'>\]: give a mapping from exception classes"),
        ({int: never}, "<class 'int'> is not an exception class; give a class, a tuple"),
        ({7: never}, "7 is not an exception class"),
        ({(ValueError, "x", None): never}, "None is not an exception class"),
        ({ValueError: never, (KeyError, ValueError): never}, "has ValueError twice; leave one"),
        ({"no.such.Error": never}, "'no.such.Error' cannot be imported .ModuleNotFoundError"),
        ({"json.NoSuchError": never}, "'json.NoSuchError' cannot be imported .AttributeError"),
        ({"json.loads": never}, "'json.loads' is <function .* not an exception class"),
        ({"": never}, "'' cannot be imported"),
        ({Retry: never}, "Retry is a verdict, which says itself what follows; leave it out"),
        ({ValueError: "seldom"}, "give a table or 'never' for each import path"),
        ({ValueError: Backoff(attempts=0)}, "give a table or 'never' for each import path"),
        ({ValueError: {"tries": 3}}, "give a table or 'never' for each import path"),
        ({ValueError: Backoff(attempts=3, forever=True)}, "attempts=3 and is retried forever"),
        ({ValueError: Backoff(first=9, max=1)}, "maximum delay of 1 s, and a first delay of 9 s"),
    ],
)
def test_what_cannot_be_is_refused_by_name(retry_on: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policies(retry_on)


def waited(wait_on: Any) -> tuple[type[BaseException], ...]:
    values, classes = by_path({"wait_on": wait_on})
    return waited_classes(make_options(values), classes)


def test_classes_that_show_an_outage_are_given_in_python_and_by_import_path() -> None:
    found = waited([OwnError, (KeyError, TimeoutError), "json.JSONDecodeError"])
    assert found == (OwnError, KeyError, TimeoutError, json.JSONDecodeError)
    assert waited(()) == ()


@pytest.mark.parametrize(
    ("wait_on", "said"),
    [
        (OSError, "wait_on=<class 'OSError'>: give a list of exception classes"),
        ("OSError", "wait_on='OSError': give a list of exception classes"),
        ([7], "wait_on: 7 is not an exception class"),
        ([OSError, "OSError"], "wait_on has OSError twice"),
        (["no.such.Error"], "wait_on: 'no.such.Error' cannot be imported"),
        ([Retry], "wait_on: .*Retry is a verdict"),
    ],
)
def test_what_shows_no_outage_is_refused_by_name(wait_on: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        waited(wait_on)


def test_without_the_option_no_class_has_a_policy() -> None:
    assert retry_policies(Options(), {}) == {}
