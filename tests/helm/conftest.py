"""The chart's tests need the real helm."""

from __future__ import annotations

import os

import pytest

from tests.setup.helm import HOW_TO_GET_HELM, VERSION, find_helm


@pytest.fixture(scope="session", autouse=True)
def helm_is_here() -> None:
    """Skip the suite when helm is missing; fail it where it can be had."""
    if find_helm() is not None:
        return
    reason = f"helm {VERSION} is missing: {HOW_TO_GET_HELM}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"CI=true allows no skip: {reason}", pytrace=False)
    pytest.skip(reason)
