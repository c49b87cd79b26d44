"""Commands on a real cluster: by its master and by Spark Connect, in tasks on its executors."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.cli.lasting_engine import Lasting
from support.servers.spark_cluster import ConnectServer, SparkCluster, descendants, options, until
from support.tables.cluster_tables import begun, files_of_rows, rows, rows_of, sources, strangers

from lake.core.table.manifests import batches
from lake.core.transaction.session import Session

CREATE = ["--create", "--partition-by", "part"]


@pytest.mark.parametrize("distribution", ["none", "hash", "range"])
def test_an_ingest_writes_every_row_once(
    lake_there: CommandLine, there: Lasting, tmp_path: Path, distribution: str
) -> None:
    files = sources(tmp_path / "in", *(rows(n * 20, n * 20 + 20) for n in range(4)))

    document = lake_there.ok("ingest", "db.t", *files, *CREATE, "--distribution", distribution)

    assert document["result"]["rows_written"] == 80
    assert rows_of(lake_there) == rows(0, 80)
    # By hash each partition has one writer; by range two tasks share the middle one; without, each of two
    # tasks writes to every partition.
    files_of = {"none": 6, "hash": 3, "range": 4}
    assert document["result"]["data_files"] == files_of[distribution]
    assert strangers(lake_there) == set()
    # No attempt was lost, and of an application of its own lake knows that: it looks for no leftovers.
    assert there.may_have_lost_attempts == (there.is_shared)


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_compaction_keeps_every_row_and_drops_the_deleted(
    lake_there: CommandLine, tmp_path: Path, version: str
) -> None:
    begun(lake_there, tmp_path / "in", "--property", f"format-version={version}")
    local = CommandLine(lake_there.warehouse, engine="inline")
    (changed,) = sources(tmp_path / "in", rows(5, 25, value=1))
    local.ok("ingest", "db.t", changed, "--upsert", "--key", "id")

    document = lake_there.ok("compact", "db.t", "--rewrite-all", "--verify")

    assert document["result"]["rows_dropped_by_deletes"] == 20
    assert document["result"]["rewritten_files"] == 7
    assert rows_of(lake_there) == [*rows(0, 5), *rows(5, 25, value=1), *rows(25, 60)]
    assert strangers(lake_there) == set()


def test_executors_read_manifests_for_the_plan_that_this_process_makes(
    lake_there: CommandLine, there: Lasting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(lake_there, tmp_path / "in")
    local = CommandLine(lake_there.warehouse, engine="inline")
    (changed,) = sources(tmp_path / "in", rows(5, 25, value=1))
    local.ok("ingest", "db.t", changed, "--upsert", "--key", "id")
    asked = (
        ("scan", "db.t", "--plan", "--where", "part = 'p1' or id > 50"),
        ("compact", "db.t", "--dry-run", "--rewrite-all"),
    )
    expected = [local.ok(*each)["plan"] for each in asked]
    monkeypatch.setattr(batches, "_TASK_BYTES", 1)
    monkeypatch.setattr(Session, "planning_engine", lambda *_: there)

    assert [lake_there.ok(*each)["plan"] for each in asked] == expected
    assert lake_there.ok("compact", "db.t", "--rewrite-all")["result"]["rewritten_files"] == 7
    assert rows_of(lake_there) == [*rows(0, 5), *rows(5, 25, value=1), *rows(25, 60)]


def test_a_sorted_compaction_gives_each_task_a_range(
    lake_there: CommandLine, tmp_path: Path
) -> None:
    begun(lake_there, tmp_path / "in")
    asked = ["--strategy", "sort", "--by", "value desc", "--rewrite-all", "--target-size", "2KB"]

    document = lake_there.ok("compact", "db.t", *asked, "--verify")

    assert rows_of(lake_there) == rows(0, 60)
    assert strangers(lake_there) == set()
    found = files_of_rows(lake_there, "value")
    assert len(found) == document["plan"]["expected_output_files"] > 1
    assert [value for values in sorted(found, reverse=True) for value in values] == [
        number * 10 for number in reversed(range(60))
    ]


@pytest.mark.parametrize(
    "deletes", ["position", pytest.param("equality", marks=pytest.mark.slow), "copy-on-write"]
)
def test_an_upsert_leaves_the_sources_row_of_each_key(
    lake_there: CommandLine, tmp_path: Path, deletes: str
) -> None:
    begun(lake_there, tmp_path / "in", "--partition-by", "part")
    # Keys that come twice: the second file's rows win.
    files = sources(tmp_path / "in", rows(50, 70, value=1), rows(55, 65, value=2))

    lake_there.ok("ingest", "db.t", *files, "--upsert", "--key", "id,part", "--deletes", deletes)

    expected = [*rows(0, 50), *rows(50, 55, 1), *rows(55, 65, 2), *rows(65, 70, 1)]
    assert rows_of(lake_there) == expected
    assert strangers(lake_there) == set()


def test_a_change_log_is_applied_in_its_order(lake_there: CommandLine, tmp_path: Path) -> None:
    begun(lake_there, tmp_path / "in")
    log = [("+U", 3, "p0", 1), ("-D", 4, "p1", 0), ("+I", 90, "p0", 1), ("+U", 90, "p0", 2)]
    files = []
    for number in range(2):
        # The second file says the same with larger values.
        columns = zip(
            *[(op, key, part, value + number) for op, key, part, value in log], strict=True
        )
        names = ("op", "id", "part", "value")
        files.append(tmp_path / f"log-{number}.parquet")
        pq.write_table(pa.table(dict(zip(names, columns, strict=True))), files[-1])

    lake_there.ok(
        "ingest",
        "db.t",
        *files,
        "--changes-column",
        "op",
        "--changes-mode",
        "upsert",
        "--key",
        "id",
    )

    kept = [row for row in rows(0, 60) if row[0] not in {3, 4}]
    assert rows_of(lake_there) == sorted([*kept, (3, "p0", 2), (90, "p0", 3)])
    assert strangers(lake_there) == set()


@pytest.mark.parametrize("place", ["--master spark://host:1", "--remote sc://host:1"])
def test_a_scan_to_a_folder_of_this_machine_is_read_by_this_process(
    lake: CommandLine, tmp_path: Path, place: str
) -> None:
    begun(lake, tmp_path / "in")

    document = lake.ok(
        *place.split(), "scan", "db.t", "--output", tmp_path / "out", "--output-format", "parquet"
    )

    assert pq.read_table(tmp_path / "out").num_rows == 60
    assert any("not on the cluster" in warning for warning in document["warnings"])


def test_tasks_run_on_executors_with_the_lake_that_was_sent(
    lake: CommandLine, cluster: SparkCluster, tmp_path: Path
) -> None:
    begun(lake, tmp_path / "in")
    before = {item["id"] for item in cluster.status()["completedapps"]}
    for path in cluster.gate.folder.glob("from-*"):
        path.unlink()
    # An environment as an archive: here a Python that calls another.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {cluster.python} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "bin", "bin")
    conf = {
        **cluster.conf(),
        "spark.archives": f"{tmp_path}/environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }

    done = lake.process(
        *("-q", "--master", cluster.master, *options(conf)), "compact", "db.t", "--rewrite-all"
    )

    assert (done.exit_code, done.stderr) == (0, ""), done
    assert rows_of(lake) == rows(0, 60)
    # The master gets to know of the end when the process may have ended.
    (application,) = until(
        lambda: [a for a in cluster.status()["completedapps"] if a["id"] not in before],
        "the application's end",
    )
    assert (application["name"], application["state"]) == ("lake", "FINISHED")
    tasks = list(cluster.events("SparkListenerTaskEnd", application["id"]))
    assert tasks
    assert "driver" not in {event["Task Info"]["Executor ID"] for event in tasks}
    origins = cluster.gate.origins()
    assert origins
    assert all("/lake-" in origin and ".zip/lake/core" in origin for origin in origins), origins


def test_a_client_of_spark_connect_needs_and_starts_no_java(
    lake: CommandLine, server: ConnectServer, tmp_path: Path
) -> None:
    begun(lake, tmp_path / "in")
    # Where Java cannot be found.
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}

    running = lake.start(
        *("-q", "--remote", server.url, "compact", "db.t", "--rewrite-all"), env=environment
    )
    seen: set[str] = set()
    while running.poll() is None:
        seen |= set(descendants(running.pid).values())
        time.sleep(0.05)

    assert (running.returncode, *running.communicate()) == (0, b"", b"")
    assert not [command for command in seen if "java" in command]
    assert rows_of(lake) == rows(0, 60)
