"""The image's recipe: what can be said of it without a container engine."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from typing import NamedTuple

import pytest

from kafka_keyshared.executors.handling.handlers import maker
from tests.helm.chart import CHART, DEFAULTS, ROOT

IGNORED = CHART / "Dockerfile.dockerignore"


EXTRAS = ("cli", "console", "tracing", "blake3", "uvloop", "schemaregistry")

NOT_IN_THE_IMAGE = {"tui", "testing", "peers", "spark", "test"}
"""Extras for a person's terminal, for tests, for comparisons, and for a Spark driver."""


class Step(NamedTuple):
    """An instruction of a Dockerfile."""

    name: str
    rest: str

    def list(self) -> list[str]:
        """The exec form; raises ValueError for the shell form, in which SIGTERM ends a shell."""
        read = json.loads(self.rest)
        assert isinstance(read, list)
        return read


def steps(text: str) -> list[Step]:
    """The instructions of a Dockerfile, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines()]


def complaints(text: str) -> list[str]:
    """What a careful reader would not let pass."""
    found, made = [], steps(text)
    arguments = dict(step.rest.split("=", 1) for step in made if step.name == "ARG")
    stages = [index for index, step in enumerate(made) if step.name == "FROM"]
    named = {step.rest.rpartition(" AS ")[2] for step in made if " AS " in step.rest}
    for index in stages:
        base = made[index].rest.partition(" AS ")[0]
        image = arguments.get(base.strip("${}"), base)
        if not re.fullmatch(
            r"[a-z0-9./-]+(:(?!latest)[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})", image
        ):
            found.append(f"base without a version: {image}")
    final = made[stages[-1] :]
    if len(stages) < 2:
        found.append("build tools stay in the image")
    users = [step.rest for step in final if step.name == "USER"]
    if not users or not re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", users[-1]):
        found.append("user is root or no number")
    for name in ("ENTRYPOINT", "CMD"):
        forms = [step for step in final if step.name == name]
        if len(forms) != 1 or not forms[0].rest.startswith("["):
            found.append(f"{name} is not in the exec form")
    if any(step.name == "ADD" for step in made):
        found.append("ADD fetches and unpacks: COPY says what it does")
    for step in made:
        if step.name in ("ARG", "ENV") and re.search("password|secret|token", step.rest, re.I):
            found.append(f"secret: {step.rest}")
        if step.name == "RUN" and " install " in step.rest and "--constraint" not in step.rest:
            found.append(f"versions are not pinned: {step.rest}")
        source = step.rest.removeprefix("--from=").split()[0] if "--from=" in step.rest else None
        if step.name == "COPY" and source is not None and source not in named:
            found.append(f"copies from elsewhere: {source}")
    return found


TEXT = (CHART / "Dockerfile").read_text("utf-8")


def test_nothing_is_wrong_with_the_dockerfile() -> None:
    assert complaints(TEXT) == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("python:3.13-slim-bookworm", "python", "base without a version: python"),
        ("python:3.13-slim-bookworm", "python:latest", "base without a version: python:latest"),
        ("USER 10001:10001", "USER keyshared", "user is root or no number"),
        ("USER 10001:10001", "USER 0:0", "user is root or no number"),
        ("USER 10001:10001\n", "", "user is root or no number"),
        ('ENTRYPOINT ["keyshared"]', "ENTRYPOINT keyshared", "ENTRYPOINT is not in the exec form"),
        ("COPY ${APP} /app", "ADD https://example.org/app.tgz /app", "ADD fetches"),
        ("WORKDIR /app", "ENV SASL_PASSWORD=x", "secret: SASL_PASSWORD=x"),
        ("--constraint constraints.txt setuptools", "setuptools", "versions are not pinned"),
        ("--from=build", "--from=example.org/tools", "copies from elsewhere"),
    ],
)
def test_a_planted_fault_is_found(before: str, after: str, found: str) -> None:
    assert before in TEXT
    assert any(found in each for each in complaints(TEXT.replace(before, after)))


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    ignored = IGNORED.read_text("utf-8").split()
    copied = [step.rest.split()[:-1] for step in steps(TEXT) if step.name == "COPY"]
    (app,) = [step.rest.split("=")[1] for step in steps(TEXT) if step.rest.startswith("APP=")]
    for sources in copied:
        if sources[0].startswith("--from"):
            continue
        for source in (each.replace("${APP}", app) for each in sources):
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] not in ignored


def test_what_goes_in_is_the_wheel_with_the_command_line() -> None:
    runs = [" ".join(step.rest.split()) for step in steps(TEXT) if step.name == "RUN"]
    built = "pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels ."
    assert runs[0].endswith(built)
    assert runs[1].endswith(f'"$(ls /wheels/kafka_keyshared-*.whl)[{",".join(EXTRAS)}]"')


def test_the_image_has_every_extra_that_a_running_instance_may_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - NOT_IN_THE_IMAGE


def test_image_and_chart_agree() -> None:
    final = {step.name: step for step in steps(TEXT)}
    assert final["ENTRYPOINT"].list() == ["keyshared"]
    assert final["CMD"].list() == ["run", "app:handle"]
    assert final["WORKDIR"].rest == DEFAULTS["app"]["dir"]
    assert int(final["EXPOSE"].rest) == DEFAULTS["config"]["http_port"]
    context = DEFAULTS["podSecurityContext"]
    assert final["USER"].rest == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_handler_of_an_image_without_one_is_a_handler() -> None:
    found = importlib.util.spec_from_file_location("handler_of_the_image", CHART / "app" / "app.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert maker(module.handle) is not None
