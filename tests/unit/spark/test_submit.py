"""Arguments of spark-submit become settings, and what cannot be passed on is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark import session
from kafka_keyshared.spark.session import SparkOptions
from kafka_keyshared.spark.submit import settings_of

KUBERNETES = """
  --master k8s://https://10.0.0.1:6443 --deploy-mode client --name backlog
  --conf spark.kubernetes.container.image=registry/spark:4.0.0
  --conf spark.kubernetes.namespace=data -c spark.driver.host=driver.data.svc
  --conf "spark.executor.extraJavaOptions=-Xss4m -Dname=value"
  --num-executors 8 --executor-cores=2 --executor-memory 4g
  --archives /srv/env.tar.gz#environment --archives /srv/more.zip
"""


def test_a_command_line_for_kubernetes_is_passed_on() -> None:
    assert settings_of(KUBERNETES) == {
        "spark.master": "k8s://https://10.0.0.1:6443",
        "spark.app.name": "backlog",
        "spark.kubernetes.container.image": "registry/spark:4.0.0",
        "spark.kubernetes.namespace": "data",
        "spark.driver.host": "driver.data.svc",
        "spark.executor.extraJavaOptions": "-Xss4m -Dname=value",
        "spark.executor.instances": "8",
        "spark.executor.cores": "2",
        "spark.executor.memory": "4g",
        "spark.archives": "/srv/env.tar.gz#environment,/srv/more.zip",
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--version", "'--version' cannot be passed on; there are --conf, --master"),
        ("--executor-memory", "--executor-memory has no value"),
        ("--conf spark.cores.max", "--conf spark.cores.max: give KEY=VALUE"),
        ("--name 'half", "close the quotation"),
        ("--deploy-mode cluster", "call spark-submit itself"),
        ("app.py", "'app.py' cannot be passed on"),
    ],
)
def test_what_cannot_be_passed_on_is_named(given: str, told: str) -> None:
    with pytest.raises(ConfigError, match="--submit-args") as caught:
        settings_of(given)
    assert told in str(caught.value)


def test_they_go_over_the_options_and_lists_are_added_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "needed_files", lambda: [Path("/jars/a.jar"), Path("/jars/b.jar")])
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    options = SparkOptions(
        "local[2]",
        executor_memory="1g",
        conf={"spark.cores.max": "2", "spark.executor.memory": "2g"},
        py_files=(Path("/own.zip"),),
        submit=f"{KUBERNETES} --jars /more.jar --py-files /their.zip",
    )
    assert (options.where, options.here, options.apart) == (
        "k8s://https://10.0.0.1:6443",
        False,
        True,
    )
    found = options.settings()
    assert found["spark.master"] == options.where
    assert found["spark.executor.memory"] == "4g"
    assert found["spark.cores.max"] == "2"
    assert found["spark.jars"] == "/jars/a.jar,/jars/b.jar,/more.jar"
    assert found["spark.submit.pyFiles"] == "/own.zip,/their.zip"
    assert found["spark.pyspark.python"] == "./environment/bin/python"
    assert found["spark.driver.host"] == "driver.data.svc"
    named = SparkOptions(submit=f"{KUBERNETES} -c spark.pyspark.python=/usr/bin/python3")
    assert named.settings()["spark.pyspark.python"] == "/usr/bin/python3"


@pytest.mark.parametrize(
    ("master", "here", "apart"),
    [
        ("local[*]", True, False),
        ("local-cluster[2,1,1024]", True, True),
        ("spark://there:7077", False, True),
    ],
)
def test_what_is_here_keeps_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, master: str, here: bool, apart: bool
) -> None:
    monkeypatch.setattr(session, "needed_files", list)
    options = SparkOptions(master)
    assert (options.here, options.apart) == (here, apart)
    assert ("spark.driver.bindAddress" in options.settings()) is here
