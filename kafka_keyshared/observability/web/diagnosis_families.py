"""Metrics of the diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.metric_family import MetricFamily, Sample, one
from kafka_keyshared.status import Status


def _number(status: Status) -> float:
    return diagnose(status).number


def _failures(status: Status) -> float:
    return sum(each.level == "fail" for each in diagnose(status).findings)


def _causes(status: Status) -> Iterator[Sample]:
    found = {each.code for each in diagnose(status).findings}
    for cause in CAUSES:
        yield (cause.code,), cause.code in found


DIAGNOSIS = (
    MetricFamily(
        "keyshared_diagnosis",
        "gauge",
        "The number of the cause that is to be mended first, 0 where nothing is wrong; "
        "docs/reference/diagnosis.md has them.",
        (),
        one(_number),
    ),
    MetricFamily(
        "keyshared_diagnosis_failures",
        "gauge",
        "Number of findings that need operator action.",
        (),
        one(_failures),
    ),
    MetricFamily(
        "keyshared_diagnosis_cause",
        "gauge",
        "1 for each cause that the diagnosis names, 0 for the others.",
        ("cause",),
        _causes,
    ),
)
