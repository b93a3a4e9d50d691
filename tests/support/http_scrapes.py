"""A running instance, asked over HTTP as a monitor asks it."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from kafka_keyshared import KeyShared
from kafka_keyshared.observability.web.prometheus_collector import GROUP_LABEL

Samples: TypeAlias = dict[tuple[str, tuple[str, ...]], float]
"""Values by the sample's name and its label values, in the order of the names of the labels.

The label ``group`` is left out: all samples of an instance have the same.
"""

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
"""Asks for that format."""


def get(url: str, accept: str = "") -> tuple[int, str, str]:
    """Status, content type and body."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers["Content-Type"], refused.read().decode()


def samples(text: str) -> Samples:
    """Every sample by its name and label values (in the order of label names)."""
    return {
        (
            sample.name,
            tuple(sample.labels[label] for label in sorted(sample.labels.keys() - {GROUP_LABEL})),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(url: str) -> Samples:
    """Every sample of a running instance."""
    return samples(get(f"{url}/metrics")[2])


@contextmanager
def running(app: KeyShared) -> Iterator[str]:
    """Run the app in a thread; yield where it serves."""
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(app.run()), daemon=True)
    thread.start()
    try:
        while app.http is None:
            assert thread.is_alive(), ended
            thread.join(0.02)
        yield app.http.url
    finally:
        app.stop()
        thread.join(60)
        assert not thread.is_alive()
