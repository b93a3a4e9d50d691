"""What is wrong, as metrics."""

from __future__ import annotations

from kafka_keyshared.diagnosis.judge import diagnose
from kafka_keyshared.status import Status
from kafka_keyshared.web.family import Family, one


def _number(status: Status) -> float:
    return diagnose(status).number


def _failures(status: Status) -> float:
    return sum(each.level == "fail" for each in diagnose(status).findings)


DIAGNOSIS = (
    Family(
        "keyshared_diagnosis",
        "gauge",
        "The number of the cause that is to be mended first, 0 where nothing is wrong; "
        "docs/reference/diagnosis.md has them.",
        (),
        one(_number),
    ),
    Family(
        "keyshared_diagnosis_failures",
        "gauge",
        "How many things stand still until somebody sees to them.",
        (),
        one(_failures),
    ),
)
