"""The settings of Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lake.core.base.settings import Settings
from lake.core.engine.inline import usable_cores
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.engine import SparkEngine

FOLDER = Path("/tmp/lake-x")


def test_without_a_master_all_usable_cores_work() -> None:
    conf = SparkConf.of(None, {})

    assert conf.master == f"local[{usable_cores()}]"
    assert conf.parallelism == usable_cores()
    assert conf.is_local


@pytest.mark.parametrize(
    ("master", "local", "parallelism"),
    [
        ("local", True, 1),
        ("local[3]", True, 3),
        ("local[4,2]", True, 4),
        ("local[*]", True, usable_cores()),
        ("local[-1]", True, usable_cores()),
        ("local-cluster[2,1,1024]", False, 32),
        ("spark://host:7077", False, 32),
        ("yarn", False, 32),
    ],
)
def test_parallelism_follows_the_master(master: str, local: bool, parallelism: int) -> None:
    conf = SparkConf.of(master, {})

    assert (conf.is_local, conf.parallelism) == (local, parallelism)


def test_the_users_word_on_a_clusters_width_is_taken() -> None:
    assert SparkConf.of("yarn", {"spark.default.parallelism": "200"}).parallelism == 200


@pytest.mark.parametrize(
    ("given", "parallelism"), [({}, 32), ({"spark.default.parallelism": "7"}, 7)]
)
def test_a_server_is_as_wide_as_a_cluster(given: dict[str, str], parallelism: int) -> None:
    engine = SparkEngine(Settings(remote="sc://host:15002", spark_conf=given))

    assert engine.parallelism == parallelism


def test_the_users_settings_win_over_lakes() -> None:
    given = {
        "spark.ui.enabled": "true",
        "spark.driver.host": "10.0.0.1",
        "spark.master": "local[7]",
    }

    settings = SparkConf.of(None, given).complete(FOLDER)

    assert {key: settings[key] for key in given} == given


def test_the_option_wins_over_the_setting_of_a_master() -> None:
    conf = SparkConf.of("local[1]", {"spark.master": "local[7]"})

    assert conf.complete(FOLDER)["spark.master"] == "local[1]"
    assert "spark.master=local[7]" not in conf.arguments()


def test_a_cluster_gets_no_addresses_and_folders_of_this_machine() -> None:
    settings = SparkConf.of("yarn", {}).complete(FOLDER)

    assert not {"spark.driver.host", "spark.local.dir"} & set(settings)


def test_secrets_stay_off_the_command_line() -> None:
    given = {
        "spark.hadoop.fs.s3a.secret.key": "canary-secret-1",
        "spark.authenticate.secret": "canary-secret-2",
        "spark.executor.memory": "3g",
    }

    arguments = " ".join(SparkConf.of("yarn", given).arguments())

    assert "canary" not in arguments
    assert "spark.executor.memory=3g" in arguments
    assert SparkConf.of("yarn", given).complete(FOLDER).items() >= given.items()


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "-Xmx1g"),
        ("2g", "-Xmx2g"),
        ("1024", "-Xmx1024m"),
        ("3GB", "-Xmx3g"),
        ("512m", "-Xmx512m"),
    ],
)
def test_memory_is_said_in_javas_words(given: str | dict[str, str], option: str) -> None:
    conf = {"spark.driver.memory": given} if isinstance(given, str) else given

    assert SparkConf.of(None, conf).java_options() == [option]


def test_options_and_classes_of_the_user_reach_the_jvm() -> None:
    given = {
        "spark.driver.extraJavaOptions": "-Da=1 '-Db=two words'",
        "spark.driver.extraClassPath": "/x/a.jar:/x/b.jar",
    }
    conf = SparkConf.of(None, given)

    assert conf.java_options()[1:] == ["-Da=1", "-Db=two words"]
    assert conf.class_path() == ["/x/a.jar", "/x/b.jar"]
    assert conf.changes_classes


def test_a_long_folder_gets_no_sockets() -> None:
    key = "spark.python.unix.domain.socket.enabled"

    assert SparkConf.of(None, {}).complete(FOLDER)[key] == "true"
    assert SparkConf.of(None, {}).complete(Path("/" + "x" * 90))[key] == "false"


@pytest.mark.parametrize(
    "name",
    ["token", "secret", "password", "credential", "access-key", "session-key", "sas", "oauth2"],
)
def test_sparks_own_redaction_knows_the_names_of_secrets(name: str) -> None:
    settings = SparkConf.of(None, {}).complete(FOLDER)

    for key in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        assert re.search(settings[key], f"spark.sql.catalog.x.S3.{name.upper()}.y")


@pytest.mark.parametrize(
    ("key", "given", "settled"),
    [
        (
            "spark.jars",
            "a.jar, /srv/b.jar,hdfs://h/c.jar",
            "{here}/a.jar,/srv/b.jar,hdfs://h/c.jar",
        ),
        (
            "spark.archives",
            "environment.tar.gz#environment",
            "{here}/environment.tar.gz#environment",
        ),
        ("spark.driver.extraClassPath", "a.jar::lib/*", "{here}/a.jar:{here}/lib/*"),
        ("spark.pyspark.python", "./environment/bin/python", "./environment/bin/python"),
        ("spark.app.name", "a/b", "a/b"),
    ],
)
def test_paths_are_those_of_the_working_folder_though_spark_starts_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, given: str, settled: str
) -> None:
    monkeypatch.chdir(tmp_path)

    assert SparkConf.of(None, {key: given}).given == {key: settled.format(here=tmp_path)}
