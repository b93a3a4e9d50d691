"""Reports of made-up instances."""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_keyshared.observability.web.group.report import InstanceReport, Who, report_of
from kafka_keyshared.observability.web.group.view import GroupView, Heard, Looker, group_view
from tests.support.doctor_survey import instance, partition

EVERY = 5.0
GROUP = "billing"


def who(name: str, **more: Any) -> Who:
    """Which instance it is: the name says it."""
    return Who(f"{name}-1-0", name, name, 1, "", "1.0")._replace(**more)


def report(name: str, /, *numbers: int, **more: Any) -> InstanceReport:
    """A report of an instance that holds these partitions of ``orders``, and is well."""
    own = {"fetched": {"orders": 0}, "partitions": [partition(number) for number in numbers]}
    said = report_of(instance(**own), who(name), EVERY)
    return msgspec.structs.replace(said, **more)


def heard(name: str, /, *numbers: int, ago: float = 0.0, does: float = 0.0, **more: Any) -> Heard:
    """An instance that was heard so long ago, and settles so many records a second."""
    return Heard(report(name, *numbers, **more), ago, does)


def seen(*those: Heard, size: int = 0) -> GroupView:
    """The group of these, as the first of them sees it; its topic has so many partitions."""
    sizes = {"orders": size} if size else {}
    looker = Looker(GROUP, those[0].report.instance if those else "", "a", "topic", "reports")
    return group_view(those, sizes, looker)


def codes(view: GroupView) -> list[str]:
    """What the rules have found."""
    return [each.code for each in view.remarks]
