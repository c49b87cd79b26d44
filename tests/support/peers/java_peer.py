"""Apache Iceberg's own Spark runtime on the tables that lake writes: the judge of rows in tests.

One Spark with Iceberg's jar runs in a process of its own and answers JSON lines. It opens the SQLite file of
a lake warehouse as Iceberg's JdbcCatalog. Needs a JDK (17 or newer) and Maven, which fetches two jars once.
Where the environment variable LAKE_PEER_STORAGE has PyIceberg's storage properties in JSON, "warehouse" among them,
the tables of a process for one statement are in S3, for which Maven fetches one more jar (70 MB).

    java_peer.py WAREHOUSE "SELECT count(*) FROM lake.db.t"     (one statement, whole process)
    java_peer.py WAREHOUSE plan db.t                            (time planning)
    java_peer.py WAREHOUSE plan-rewrite db.t                    (plan rewrite_data_files)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run by its path, Python looks for modules beside this file only.
    sys.path[0] = str(Path(__file__).parents[2])

from support.peers.peer_process import PeerProcess

_VERSION = "1.12.0"
JARS = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", _VERSION),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
)
S3_JARS = (("org.apache.iceberg", "iceberg-aws-bundle", _VERSION),)
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lake-tests"
CATALOG = "lake"
HADOOP_CATALOG = "folders"

# Statements on a few rows: most of their time is Java's compilation of code that runs once, and tasks without rows.
_SHORT_STATEMENTS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def missing() -> str | None:
    """Return what the peer lacks on this machine, or None."""
    if not shutil.which("mvn"):
        return "Maven"
    if not shutil.which("java"):
        return "a JDK"
    return None


def jars(wanted: Sequence[tuple[str, str, str]] = JARS) -> str:
    """Return jars as Spark wants them, fetching them by Maven on first use."""
    CACHE.mkdir(parents=True, exist_ok=True)
    found = []
    for group, artifact, version in wanted:
        path = CACHE / f"{artifact}-{version}.jar"
        if not path.exists():
            subprocess.run(
                [
                    "mvn",
                    "-q",
                    "-B",
                    "dependency:copy",
                    f"-Dartifact={group}:{artifact}:{version}",
                    f"-DoutputDirectory={CACHE}",
                ],
                check=True,
                cwd=CACHE,
                stdout=sys.stderr,
            )
        found.append(str(path))
    return ",".join(found)


def catalog_conf(
    name: str, warehouse: str, storage: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the Spark settings of a JdbcCatalog on a lake warehouse, or of the REST catalog at an address.

    Args:
        name: the catalog's name.
        warehouse: the folder of its SQLite file, or the address.
        storage: the storage properties of tables in S3, as PyIceberg names them, and their "warehouse".
    """
    key = f"spark.sql.catalog.{name}"
    if warehouse.startswith("http"):
        return {
            key: "org.apache.iceberg.spark.SparkCatalog",
            f"{key}.type": "rest",
            f"{key}.uri": warehouse,
            f"{key}.cache-enabled": "false",
        }
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "jdbc",
        f"{key}.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        f"{key}.jdbc.schema-version": "V0",
        f"{key}.warehouse": f"file://{warehouse}",
        # lake commits from another process: nothing may be remembered.
        f"{key}.cache-enabled": "false",
        **{f"{key}.{name}": text for name, text in s3_conf(storage or {}).items()},
    }


def s3_conf(storage: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's properties for tables in S3; most have the same names as PyIceberg's."""
    if not storage:
        return {}
    region = storage["s3.region"]
    return {**storage, "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "client.region": region}


def hadoop_conf(warehouse: str) -> dict[str, str]:
    """Return the Spark settings of a HadoopCatalog on the same folder."""
    key = f"spark.sql.catalog.{HADOOP_CATALOG}"
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "hadoop",
        f"{key}.warehouse": f"file://{warehouse}",
        f"{key}.cache-enabled": "false",
    }


def session(
    warehouse: str | None = None,
    storage: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Any:
    """Start a Spark with Iceberg's extensions, and with ``more`` settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("peer")
        .config("spark.jars", jars((*JARS, *S3_JARS) if storage else JARS))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", os.environ.get("LAKE_PEER_MEMORY", "4g"))
        .config("spark.sql.session.timeZone", "UTC")
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
    )
    conf = catalog_conf(CATALOG, warehouse, storage) if warehouse else {}
    for key, value in {**conf, **(more or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows_of(spark: Any, statement: str) -> list[dict[str, Any]]:
    """Run a statement and return its rows."""
    return [row.asDict(recursive=True) for row in spark.sql(statement).collect()]


def options_read(spark: Any, table: str, options: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows that Iceberg reads with options."""
    return [
        row.asDict(recursive=True) for row in spark.read.options(**options).table(table).collect()
    ]


def checksum_of(spark: Any, source: str) -> dict[str, Any]:
    """Return the row count and a hash over all columns that no order of rows changes."""
    kinds = dict(spark.sql(f"SELECT * FROM {source}").dtypes)
    # Spark hashes no maps, but their entries.
    columns = ", ".join(
        f"map_entries(`{name}`)" if kinds[name].startswith("map<") else f"`{name}`"
        for name in sorted(kinds)
    )
    statement = (
        f"SELECT count(*) n, sum(cast(xxhash64({columns}) AS decimal(38,0))) h FROM {source}"
    )
    row = spark.sql(statement).first()
    return {"rows": row.n, "hash": str(row.h)}


def loaded_by(spark: Any, table: str) -> Any:
    """Return Iceberg's own table object."""
    # Iceberg looks the catalog up in the thread's own session.
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    util = spark._jvm.org.apache.iceberg.spark.Spark3Util
    return util.loadIcebergTable(spark._jsparkSession, table)


def stream(
    spark: Any, table: str, output: str, checkpoint: str, warehouse: str | None = None
) -> None:
    """Write all appends that are new since a checkpoint to Parquet files, and end.

    Args:
        spark: the session.
        table: the table.
        output: the folder for the files.
        checkpoint: the folder of the checkpoint.
        warehouse: the warehouse of the table for a stream of lake; None for one of Iceberg.
    """
    reader = spark.readStream.format("iceberg")
    if warehouse is not None:
        from lake.commands.spark.source import LakeSource

        spark.dataSource.register(LakeSource)
        reader = spark.readStream.format("lake").option("warehouse", warehouse)
    rows = reader.load(table)
    written = rows.writeStream.format("parquet").option("path", output)
    written = written.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    written.start().awaitTermination()


def sink(
    spark: Any, source: str, table: str, checkpoint: str, warehouse: str | None = None
) -> None:
    """Write the files of a folder into a table, an epoch for each, and end.

    Args:
        spark: the session.
        source: the folder with the files, JSON with ids.
        table: the table.
        checkpoint: the folder of the checkpoint.
        warehouse: the warehouse of the table for lake's sink; None for Iceberg's.
    """
    # Spark looks the format up in the thread's own session.
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(source)
    written = rows.writeStream.format("iceberg")
    if warehouse is not None:
        from lake.commands.spark.source import LakeSource

        spark.dataSource.register(LakeSource)
        written = rows.writeStream.format("lake").option("warehouse", warehouse)
    written = written.option("checkpointLocation", checkpoint).option("path", table)
    written.trigger(availableNow=True).start().awaitTermination()


def splits_of(spark: Any, table: str, options: dict[str, str]) -> list[list[tuple[str, int, int]]]:
    """Return the splits of Iceberg's own planner: (path, start, length) of each piece."""
    scan = loaded_by(spark, table).newScan()
    for name, value in options.items():
        scan = scan.option(name, value)
    lists = spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    return [
        [
            (str(piece.file().location()), piece.start(), piece.length())
            for piece in lists.newArrayList(task.files())
        ]
        for task in lists.newArrayList(scan.planTasks())
    ]


def plan_of(spark: Any, table: str) -> dict[str, Any]:
    """Plan a scan with Iceberg's own planner; return the files and the seconds."""
    jvm = spark._jvm
    loaded = loaded_by(spark, table)
    started = time.perf_counter()
    iterables = jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables
    files = iterables.size(loaded.newScan().planFiles())
    return {"files": files, "seconds": round(time.perf_counter() - started, 3)}


def files_with(spark: Any, table: str, column: str, sets: list[list[Any]]) -> list[list[str]]:
    """Return for each set of values the data files that Iceberg's planner keeps for ``column IN (values)``."""
    expressions = spark._jvm.org.apache.iceberg.expressions.Expressions
    loaded = loaded_by(spark, table)
    kept = []
    for values in sets:
        chosen = spark._jvm.java.util.ArrayList()
        for value in values:
            chosen.add(value)
        condition = getattr(expressions, "in")(column, chosen)
        found = loaded.newScan().filter(condition).planFiles()
        try:
            each, paths = found.iterator(), []
            while each.hasNext():
                paths.append(str(each.next().file().location()))
            kept.append(sorted(paths))
        finally:
            found.close()
    return kept


def partition_statistics_of(spark: Any, table: str) -> list[dict[str, Any]]:
    """Return the rows of the current snapshot's partition statistics file in their order, as Iceberg reads them."""
    objects = spark._jvm.java.lang.Class.forName("java.lang.Object")
    loaded = loaded_by(spark, table)
    rows = []
    found = loaded.newPartitionStatisticsScan().scan()
    try:
        each = found.iterator()
        while each.hasNext():
            row = each.next()
            partition = row.partition()
            values = (partition.get(at, objects) for at in range(partition.size()))
            rows.append(
                {
                    "partition": [None if value is None else str(value) for value in values],
                    "spec_id": row.specId(),
                    "data_record_count": row.dataRecordCount(),
                    "data_file_count": row.dataFileCount(),
                    "total_data_file_size_in_bytes": row.totalDataFileSizeInBytes(),
                    "position_delete_record_count": row.positionDeleteRecordCount(),
                    "position_delete_file_count": row.positionDeleteFileCount(),
                    "equality_delete_record_count": row.equalityDeleteRecordCount(),
                    "equality_delete_file_count": row.equalityDeleteFileCount(),
                    "total_record_count": row.totalRecords(),
                    "last_updated_at": row.lastUpdatedAt(),
                    "last_updated_snapshot_id": row.lastUpdatedSnapshotId(),
                    "dv_count": row.dvCount(),
                }
            )
    finally:
        found.close()
    return rows


def add_columns(spark: Any, table: str, columns: list[list[str]]) -> None:
    """Add columns with an initial default and then another write default, as Iceberg's API does; SQL cannot."""
    jvm = spark._jvm
    expressions = jvm.org.apache.iceberg.expressions.Expressions

    def literal(kind: Any, text: str) -> Any:
        return expressions.lit(jvm.org.apache.iceberg.SingleValueParser.fromJson(kind, text)).to(
            kind
        )

    loaded = loaded_by(spark, table)
    for name, type_name, initial, write in columns:
        parent, _, leaf = name.rpartition(".")
        kind = jvm.org.apache.iceberg.types.Types.fromPrimitiveString(type_name)
        at = [parent] if parent else []
        change = loaded.updateSchema().addColumn(*at, leaf, kind, "", literal(kind, initial))
        change.commit()
        loaded.updateSchema().updateColumnDefault(name, literal(kind, write)).commit()


def commit_files(spark: Any, table: str, commits: list[list[dict[str, Any]]]) -> None:
    """Commit files that exist by Iceberg's API, one snapshot for each list, which may be empty."""
    api, gateway = spark._jvm.org.apache.iceberg, spark.sparkContext._gateway
    loaded = loaded_by(spark, table)
    spec = loaded.spec()
    names = [each.name() for each in spec.fields()]

    def built(file: dict[str, Any]) -> Any:
        if file["content"] == 0:
            builder = api.DataFiles.builder(spec)
        elif file["content"] == 1:
            builder = api.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
            builder.withReferencedDataFile(file["data_file"])
        else:
            ids = gateway.new_array(gateway.jvm.int, 1)
            ids[0] = 1
            builder = api.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
        if file["partition"]:
            values = zip(names, file["partition"], strict=True)
            builder.withPartitionPath("/".join(f"{name}={text}" for name, text in values))
        builder.withPath(file["path"]).withFormat("PARQUET")
        return builder.withFileSizeInBytes(file["bytes"]).withRecordCount(file["rows"]).build()

    for files in commits:
        has_deletes = any(file["content"] for file in files)
        change = loaded.newRowDelta() if has_deletes else loaded.newFastAppend()
        for file in files:
            rows = change.addRows if has_deletes else change.appendFile
            (change.addDeletes if file["content"] else rows)(built(file))
        change.commit()


def rewrite_plan_of(spark: Any, table: str) -> dict[str, Any]:
    """Plan rewrite_data_files with Iceberg's own planner; return how many groups of files it made."""
    actions = spark._jvm.org.apache.iceberg.actions
    planner = actions.BinPackRewriteFilePlanner(loaded_by(spark, table))
    planner.init(spark._jvm.java.util.HashMap())
    return {"groups": planner.plan().totalGroupCount()}


class JavaPeer(PeerProcess):
    """The peer as a test sees it; `lake` warehouses are opened under names of their own."""

    def __init__(self) -> None:
        """Start the process; it answers when Spark is up."""
        super().__init__([sys.executable, __file__, "--serve"], ('{"answer"', '{"error"'))

    def _ask(self, **request: Any) -> Any:
        return self.ask(request)["answer"]

    def sql(self, warehouse: Path | str, statement: str) -> list[dict[str, Any]]:
        """Run a statement in which ``{c}`` stands for the warehouse's catalog, ``{h}`` for it as folders."""
        return self._ask(op="sql", warehouse=str(warehouse), statement=statement)

    def read(self, warehouse: Path | str, table: str, **options: object) -> list[dict[str, Any]]:
        """Return a table's rows as read with Iceberg's options, ``_`` in whose names stands for ``-``."""
        named = {name.replace("_", "-"): str(value) for name, value in options.items()}
        return self._ask(op="read", warehouse=str(warehouse), table=table, options=named)

    def splits(
        self, warehouse: Path | str, table: str, options: dict[str, str]
    ) -> list[list[list[Any]]]:
        """Return the splits of Iceberg's own planner: [path, start, length] of each piece."""
        return self._ask(op="splits", warehouse=str(warehouse), table=table, options=options)

    def stream(
        self, warehouse: Path | str, table: str, folder: Path, *, of_lake: bool
    ) -> list[dict[str, Any]]:
        """Run a stream of lake or of Iceberg with the checkpoint of a folder; return all rows that it has written."""
        output, checkpoint = str(folder / "rows"), str(folder / "checkpoint")
        more = {"output": output, "checkpoint": checkpoint, "warehouse": str(warehouse)}
        self._ask(op="lake-stream" if of_lake else "stream", table=table, **more)
        return self.sql(warehouse, f"SELECT * FROM parquet.`{output}`")

    def sink(
        self, warehouse: Path | str, table: str, source: Path, checkpoint: Path, *, of_lake: bool
    ) -> None:
        """Run a query of lake's or Iceberg's sink that goes on from a checkpoint; see `sink`."""
        folders = {"source": str(source), "checkpoint": str(checkpoint)}
        op = "lake-sink" if of_lake else "sink"
        self._ask(op=op, table=table, warehouse=str(warehouse), **folders)

    def files_with(
        self, warehouse: Path | str, table: str, column: str, sets: Sequence[Sequence[Any]]
    ) -> list[list[str]]:
        """Return for each set of texts or integers the files that Iceberg plans for ``column IN (values)``."""
        chosen = [list(values) for values in sets]
        return self._ask(
            op="files", warehouse=str(warehouse), table=table, column=column, sets=chosen
        )

    def partition_statistics(self, warehouse: Path | str, table: str) -> list[dict[str, Any]]:
        """Return the rows of the partition statistics file of the current snapshot; values of partitions as texts."""
        return self._ask(op="partition-statistics", warehouse=str(warehouse), table=table)

    def add_columns(self, warehouse: Path | str, table: str, columns: list[list[str]]) -> None:
        """Add columns with defaults: [name, type, initial default, write default], these two in JSON."""
        self._ask(op="columns", warehouse=str(warehouse), table=table, columns=columns)

    def commit(
        self, warehouse: Path | str, table: str, commits: Sequence[Sequence[Mapping[str, Any]]]
    ) -> None:
        """Commit Parquet files that exist, one snapshot for each list of them (`fleet.files.File.request`)."""
        listed = [list(files) for files in commits]
        self._ask(op="commit", warehouse=str(warehouse), table=table, commits=listed)

    def checksum(self, warehouse: Path | str, table: str, suffix: str = "") -> dict[str, Any]:
        """Return rows and hash of a table; ``suffix`` as in ``VERSION AS OF 1``."""
        return self._ask(op="checksum", warehouse=str(warehouse), table=table, suffix=suffix)


def _named(statement: str) -> str:
    return statement.replace("{c}", CATALOG).replace("{h}", HADOOP_CATALOG)


def _answer(spark: Any, request: Mapping[str, Any]) -> Any:
    """Do what a request asks for."""
    table = f"{CATALOG}.{request.get('table')}"
    operations: Mapping[str, Callable[[], Any]] = {
        "sql": lambda: rows_of(spark, _named(request["statement"])),
        "read": lambda: options_read(spark, table, request["options"]),
        "splits": lambda: splits_of(spark, table, request["options"]),
        "stream": lambda: stream(spark, table, request["output"], request["checkpoint"]),
        "sink": lambda: sink(spark, request["source"], table, request["checkpoint"]),
        "lake-sink": lambda: sink(
            spark,
            request["source"],
            request["table"],
            request["checkpoint"],
            request["warehouse"],
        ),
        "lake-stream": lambda: stream(
            spark, request["table"], request["output"], request["checkpoint"], request["warehouse"]
        ),
        "files": lambda: files_with(spark, table, request["column"], request["sets"]),
        "partition-statistics": lambda: partition_statistics_of(spark, table),
        "columns": lambda: add_columns(spark, table, request["columns"]),
        "commit": lambda: commit_files(spark, table, request["commits"]),
        "checksum": lambda: checksum_of(spark, f"{table} {request['suffix']}"),
    }
    return operations[request["op"]]()


def serve() -> None:
    """Answer requests until standard input ends."""
    first = session(more=_SHORT_STATEMENTS)
    sessions: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        warehouse = request["warehouse"]
        try:
            if warehouse not in sessions:
                # The catalog's name is part of its tables' keys, so each warehouse needs a session.
                sessions[warehouse] = first.newSession()
                conf = catalog_conf(CATALOG, warehouse) | hadoop_conf(warehouse)
                for key, value in conf.items():
                    sessions[warehouse].conf.set(key, value)
            spark = sessions[warehouse]
            answer = _answer(spark, request)
            reply = json.dumps({"answer": answer}, default=str)
        except Exception as error:
            reply = json.dumps({"error": str(error)[:2000]})
        print(reply, flush=True)


def main() -> None:
    """Serve, or run statements as a whole process and print what they took, and the rows of the last one."""
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    started = time.perf_counter()
    storage = json.loads(os.environ.get("LAKE_PEER_STORAGE", "{}"))
    spark = session(os.path.abspath(sys.argv[1]), storage)
    up = time.perf_counter()
    if sys.argv[2] == "plan":
        result: Any = plan_of(spark, f"{CATALOG}.{sys.argv[3]}")
    elif sys.argv[2] == "plan-rewrite":
        result = rewrite_plan_of(spark, f"{CATALOG}.{sys.argv[3]}")
    elif sys.argv[2] == "stream":
        stream(spark, f"{CATALOG}.{sys.argv[3]}", output=sys.argv[4], checkpoint=sys.argv[5])
        result = None
    elif sys.argv[2] == "checksum":
        result = checksum_of(spark, f"{CATALOG}.{sys.argv[3]}")
    else:
        for statement in sys.argv[2:]:
            result = rows_of(spark, statement)
    done = time.perf_counter()
    print(
        json.dumps(
            {
                "session_s": round(up - started, 2),
                "op_s": round(done - up, 2),
                "result": result,
            },
            default=str,
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
