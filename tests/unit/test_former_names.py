"""Every former public name is refused, and the refusal names its successor."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.former_names import (
    FORMER_COMMANDS,
    FORMER_METHODS,
    FORMER_OPTIONS,
    FORMER_ORDERS,
)
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.command_list import VERBS, OrderRefused
from kafka_keyshared.observability.web.commands import ACTIONS, Asker, ordered
from tests.support.cli import in_process
from tests.support.offline_instance import CONF

Capture = pytest.CaptureFixture[str]
OBJECTS: dict[str, Callable[[], object]] = {
    "KeyShared": lambda: KeyShared(CONF, ["orders"]),
    "AdminClient": lambda: AdminClient("http://127.0.0.1:8787"),
}
METHODS = [
    ("KeyShared", "lanes", "closed_keys"),
    ("KeyShared", "release", "unblock"),
    ("AdminClient", "drain", "quiesce"),
    ("AdminClient", "release", "unblock"),
]


def of_python(kind: str) -> Callable[[Capture, str], str]:
    def refusal(_: Capture, name: str) -> str:
        with pytest.raises(AttributeError) as refused:
            getattr(OBJECTS[kind](), name)
        return str(refused.value)

    return refusal


def of_http(_: Capture, name: str) -> str:
    answer = ordered(None, ACTIONS + name, "", b"{}", Asker("127.0.0.1"))
    assert answer.status == 404
    return msgspec.json.decode(answer.text, type=OrderRefused).refused


def of_command_line(capsys: Capture, name: str) -> str:
    ended = in_process(capsys, name, "where", "a key", "--json")
    assert (ended.status, ended.out) == (2, "")
    return ended.err


@pytest.mark.parametrize(
    ("refusal", "former", "said"),
    [
        *(
            pytest.param(
                of_python(kind), name,
                f"{kind!r} object has no attribute {name!r}; it is {now!r} now",
                id=f"{kind}.{name}",
            )
            for kind, name, now in METHODS
        ),
        *(
            pytest.param(
                of_http, name, f"the order {name!r} is {now!r} now: send it to {ACTIONS}{now}",
                id=f"POST {name}",
            )
            for name, now in FORMER_ORDERS.items()
        ),
        *(
            pytest.param(
                of_command_line, name,
                f"keyshared: the command {name!r} is {now!r} now: "
                f"keyshared {now} where 'a key' --json\n",
                id=f"keyshared {name}",
            )
            for name, now in FORMER_COMMANDS.items()
        ),
    ],
)  # fmt: skip
def test_a_former_name_is_refused_with_its_successor(
    capsys: Capture, refusal: Callable[[Capture, str], str], former: str, said: str
) -> None:
    assert refusal(capsys, former) == said


def test_every_former_method_is_tried_and_every_successor_exists() -> None:
    assert {(name, now) for _, name, now in METHODS} == set(FORMER_METHODS.items())
    for kind, _, now in METHODS:
        assert callable(getattr(OBJECTS[kind](), now))
    assert set(FORMER_ORDERS.values()) <= set(VERBS)
    assert not set(FORMER_ORDERS) & set(VERBS)


@pytest.mark.parametrize("kind", OBJECTS)
def test_another_missing_attribute_is_the_usual_error(kind: str) -> None:
    with pytest.raises(AttributeError, match=f"^'{kind}' object has no attribute 'relase'$"):
        _ = OBJECTS[kind]().relase  # type: ignore[attr-defined]


def test_a_class_without_the_successor_never_had_the_former_name() -> None:
    with pytest.raises(AttributeError, match=r"^'KeyShared' object has no attribute 'drain'$"):
        getattr(OBJECTS["KeyShared"](), "drain")  # noqa: B009 - a name that mypy refuses


@pytest.mark.parametrize(("former", "now"), FORMER_OPTIONS.items())
def test_a_former_option_is_refused_with_its_successor(
    capsys: Capture, former: str, now: str
) -> None:
    ended = in_process(capsys, "routing", "assign", "0-9", former)
    assert (ended.status, ended.out) == (2, "")
    assert f"{former} has been renamed: give {now}" in ended.err
