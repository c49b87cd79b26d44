"""No file of the working folder is read but those of the manual, whatever Python, Spark or a client looks for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.peers import java_peer

from lake.core.engine.jvm.class_archive import cache_folder

_CANARY = "ran"
# What would be read: by Python and libraries that it imports, by the JVM, Spark and Hadoop, and by clients of stores.
_MODULES = (
    *(
        "sitecustomize",
        "usercustomize",
        "lake",
        "json",
        "typing",
        "os",
        "signal",
        "encodings",
        "site",
        "abc",
    ),
    *(
        "pyiceberg",
        "pyspark",
        "pyarrow",
        "numpy",
        "pandas",
        "typer",
        "rich",
        "botocore",
        "boto3",
        "sqlalchemy",
    ),
    *(
        "grpc",
        "confluent_kafka",
        "fastavro",
        "py4j",
        "psycopg2",
        "canary",
        "daemon",
        "worker",
        "orjson",
        "IPython",
    ),
)
_FILES = {
    **dict.fromkeys(("pyvenv.cfg", "python311._pth", "lake.pth", "setup.cfg", "tox.ini", ".env"), "home = .\n"),
    **dict.fromkeys(("PYTHONSTARTUP", ".pythonrc", ".pdbrc", "lake.cfg", ".lake.toml"), "raise SystemExit(9)\n"),
    **dict.fromkeys((".hotspotrc", ".jvmopts", "jvm.options", ".hotspot_compiler", "java.opts"), "-XX:+Crash\n"),
    **dict.fromkeys(("jvm.cfg", "JDK_JAVA_OPTIONS", "argfile", "hs_err.log"), "-agentpath:./evil.so\n"),
    **dict.fromkeys(("log4j2.properties", "log4j.properties", "log4j2.component.properties"), "status = nonsense\n"),
    **dict.fromkeys(("log4j2.xml", "log4j2.json", "log4j2.yaml", "logback.xml", "logging.properties"), "<nonsense"),
    **dict.fromkeys(("core-site.xml", "hdfs-site.xml", "hive-site.xml", "yarn-site.xml"), "<nonsense"),
    **dict.fromkeys(("hadoop-metrics2.properties", "metrics.properties", "fairscheduler.xml"), "*.sink=Evil\n"),
    **dict.fromkeys(("spark-defaults.conf", "conf/spark-defaults.conf"), "spark.plugins Evil\n"),
    **dict.fromkeys(("spark-env.sh", "conf/spark-env.sh", "bin/spark-submit", "bin/spark-class"), "touch ran\n"),
    **dict.fromkeys(("bin/java", "java", "python3", "python", "spark-submit", "load-spark-env.sh"), "touch ran\n"),
    **dict.fromkeys(("krb5.conf", "krb5.ini", "derby.properties", "derby.log", "jaas.conf"), "nonsense\n"),
    **dict.fromkeys((".aws/config", ".aws/credentials", ".boto", "boto.cfg", ".s3cfg"), "[default]\nregion = x\n"),
    **dict.fromkeys((".netrc", "_netrc", ".pgpass", ".pg_service.conf", "pg_service.conf"), "default login x\n"),
    **dict.fromkeys(("librdkafka.conf", "client.properties", "kafka.properties"), "plugin.library.paths=./evil\n"),
    **dict.fromkeys(("credentials.json", "application_default_credentials.json"), "{}"),
    **dict.fromkeys(("openssl.cnf", "cacert.pem", "ca-bundle.crt", "resolv.conf", "hosts"), "nonsense\n"),
    **dict.fromkeys(("META-INF/services/java.sql.Driver", "org/apache/spark/SparkConf.class"), "x"),
    **dict.fromkeys(("jars/evil.jar", "evil.jar", "lib/libevil.so", "libjvm.so", "libc.so.6"), "x"),
    **dict.fromkeys(("metastore_db/service.properties", "spark-warehouse/x", "artifacts/x"), "x"),
}  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder full of such files, below one that looks like an installation of Spark."""
    above, home = tmp_path / "above", tmp_path / "own"
    folder = above / "here"
    folder.mkdir(parents=True)
    home.mkdir()
    for place in (above, folder):
        for name, text in _FILES.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f"#!/bin/sh\ntouch {folder / _CANARY}\n" if text == "touch ran\n" else text
            )
            path.chmod(0o755)
        for name in _MODULES:
            code = f"open({str(folder / _CANARY)!r}, 'w').close()\n"
            (place / f"{name}.py").write_text(code)
            (place / name).mkdir(exist_ok=True)
            (place / name / "__init__.py").write_text(code)
    # A read sets the time of the last access, if that is older than the last change.
    for path in above.rglob("*"):
        if path.is_file():
            os.utime(path, (1, path.stat().st_mtime))
    for name in [name for name in os.environ if name.startswith(("AWS_", "SPARK_", "PG"))]:
        monkeypatch.delenv(name)
    # Otherwise each start of Spark would begin to make a class archive in the new home.
    monkeypatch.setenv("LAKE_CACHE_DIR", str(cache_folder()))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("PYICEBERG_HOME")
    monkeypatch.chdir(folder)
    return folder


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "lake.cli", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def left_or_read(folder: Path) -> list[str]:
    """Return what code left, and which files were read."""
    above = folder.parent
    files = [path for path in above.rglob("*") if path.is_file()]
    is_recorded = has_times_of_reads(above.parent)
    return sorted(
        str(path.relative_to(above))
        for path in files
        if path.name == _CANARY or (is_recorded and path.stat().st_atime != 1)
    )


def has_times_of_reads(folder: Path) -> bool:
    """Whether the file system of a folder records when a file was read."""
    probe = folder / "probe"
    probe.write_text("x")
    os.utime(probe, (1, probe.stat().st_mtime))
    probe.read_text()
    return probe.stat().st_atime != 1


def test_a_file_that_is_read_or_left_is_noticed(hostile: Path) -> None:
    (hostile / _CANARY).touch()
    (hostile / ".env").read_text()

    is_recorded = has_times_of_reads(hostile.parent.parent)
    assert left_or_read(hostile) == [*(["here/.env"] if is_recorded else []), "here/ran"]


def test_commands_in_this_process_read_none_of_them(hostile: Path, tmp_path: Path) -> None:
    warehouse, source = tmp_path / "warehouse", tmp_path / "a.csv"
    source.write_text("id\n1\n")

    load = ("--warehouse", warehouse, "ingest", "db.t", source, "--create", "--on-commit", "true")
    done = run(*load)
    assert done.returncode == 0, done.stderr
    # Nothing listens there; the client has looked for a login by then.
    store = ("--warehouse", "s3://none/x", "--catalog-type", "hadoop")
    assert run(*store, "scan", "db.t").returncode > 2

    assert left_or_read(hostile) == []


@pytest.mark.spark
@pytest.mark.parametrize("start", ["direct", "ordinary"])
def test_spark_and_its_workers_read_none_of_them(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    if reason := java_peer.missing():
        pytest.skip(f"needs {reason}")
    if start == "ordinary":
        # A folder of Spark's configuration, empty, lets PySpark's own scripts start Spark.
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "own"))
    warehouse, source = tmp_path / "warehouse", tmp_path / "a.csv"
    source.write_text("id\n1\n")

    done = run("--warehouse", warehouse, "--engine", "spark", "ingest", "db.t", source, "--create")

    assert done.returncode == 0, done.stderr
    assert left_or_read(hostile) == []
