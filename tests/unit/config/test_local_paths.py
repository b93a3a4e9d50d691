"""Paths of this machine, and what is none: it must not become a folder called `s3a:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/log", "/data/log"),
        ("log", "log"),
        ("a:b", "a:b"),
        ("./s3a:/b", "s3a:/b"),
        ("file:///data/my%20log", "/data/my log"),
        ("file:/data/log", "/data/log"),
        ("FILE://localhost/data", "/data"),
        (Path("file:///data"), "/data"),
    ],
)
def test_a_path_and_a_file_uri_are_taken(given: str | Path, path: str) -> None:
    assert local_path("--state", given) == Path(path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("s3a://bucket/log", "s3a: is not supported here; give a folder of this machine"),
        (Path("s3a://bucket/log"), "s3a: is not supported here"),
        ("S3://bucket", "s3: is not supported here"),
        ("hdfs:///log", "hdfs: is not supported here"),
        ("dbfs:/log", "dbfs: is not supported here"),
        ("abfss://c@a.dfs.core.windows.net/log", "abfss: is not supported here"),
        ("file://nas/log", "names the machine 'nas'; give file:///PATH"),
        (r"C:\log", "a path of Windows"),
        ("C:/log", "a path of Windows"),
        (r"\\nas\log", "a path of Windows"),
    ],
)
def test_anything_else_is_refused_by_the_option_that_has_it(given: str | Path, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        local_path("--state", given)
    assert str(refused.value).startswith(f"--state {given}: ")
    assert why in str(refused.value)
