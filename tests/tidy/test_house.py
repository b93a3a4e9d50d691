"""The house stays small: packages, files, names, sizes and levels have limits."""

from __future__ import annotations

import pytest

from tests.tidy.house import TWICE, Measure, layered, measures, of_the_house, repeated, table
from tests.tidy.sources import PACKAGE, Module, modules, parse


def test_the_house_keeps_its_limits() -> None:
    found = of_the_house()
    assert not any(each.exceeded for each in found), f"\n{table(found)}"


def test_only_the_named_classes_are_defined_more_than_once() -> None:
    assert sorted(repeated(modules(PACKAGE))) == sorted(TWICE), "follow the table in house.py"


def planted() -> list[Module]:
    """A package that is over every limit."""
    long = "def f():\n" + "    x = 1\n" * 70 + "x = 1\n" * 430
    tops = [parse("", f"{PACKAGE}/part{n}/a.py") for n in range(14)]
    core = [parse("", f"{PACKAGE}/core/{n}.py") for n in "abcd"]
    circle = [
        parse("from . import there", f"{PACKAGE}/app/here.py"),
        parse("from . import here", f"{PACKAGE}/app/there.py"),
    ]
    levels = "class A: ...\nclass B(A): ...\nclass C(B): ...\nclass D(C): ...\nclass A: ..."
    again = [parse(levels, f"{PACKAGE}/app/levels{n}.py") for n in range(2)]
    return [*tops, *core, *circle, *again, parse(long, f"{PACKAGE}/app/long.py")]


@pytest.mark.parametrize("at", range(8))
def test_a_house_beyond_a_limit_is_found(at: int) -> None:
    measure = measures(planted(), ["helper.py"] * 46)[at]
    assert measure.exceeded
    first, *which = table([measure]).splitlines()
    assert first.endswith("TOO MANY")
    assert len(which) == len(measure.found)


def test_a_house_at_its_limits_is_in_order() -> None:
    tree = [parse("class A: ...\nclass B(A): ...", f"{PACKAGE}/core/window.py")]
    assert [str(each) for each in measures(tree, ["helper.py"] * 45) if each.exceeded] == []
    assert str(Measure("files", ["a.py"], 3)) == "   1 of   3  files"


def test_a_planted_second_class_is_found() -> None:
    tree = [
        parse("class Batch: ...", f"{PACKAGE}/one.py"),
        parse("def f():\n    class Batch: ...", f"{PACKAGE}/two.py"),
        parse("class Other: ...", f"{PACKAGE}/three.py"),
    ]
    assert repeated(tree) == {"Batch": [f"{PACKAGE}.one", f"{PACKAGE}.two"]}


def test_levels_are_counted_through_modules_and_without_protocols() -> None:
    tree = [
        parse("class Port(Protocol): ...\nclass Base(Port, Generic[T]): ...", f"{PACKAGE}/a.py"),
        parse("class Pool(base.Base[int]): ...", f"{PACKAGE}/executors/b.py"),
        parse("class Deep(Pool): ...", f"{PACKAGE}/executors/c.py"),
    ]
    assert layered(tree) == [f"{PACKAGE}.executors.c.Deep"]
