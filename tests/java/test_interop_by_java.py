"""All commands on tables that Iceberg Java wrote, by version and transform, evolved and upgraded: Java judges."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.foreign_course import TRANSFORMS, Course, Rows, Values, made
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

_MERGE = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
# Every transform once, and every format version and upgrade at least once. Version 1 keeps a dropped partition
# field as a void transform, so its tables and those upgraded from it have transforms that are dropped.
_VERSIONS = {
    "bucket": "2 to 3",
    "unpartitioned": "2",
    "identity": "1",
    "truncate": "3",
    "year": "1",
    "month": "2",
    "day": "1 to 2",
    "hour": "3",
}
assert _VERSIONS.keys() == TRANSFORMS.keys()
_EVERYDAY = "bucket"
_CHOSEN = [
    pytest.param(
        version,
        transform,
        id=f"{version} by {transform}",
        marks=[] if transform == _EVERYDAY else [pytest.mark.slow],
    )
    for transform, version in _VERSIONS.items()
]


def literal(number: int, row: Values) -> str:
    part, ts, n, more = row
    texts = [
        str(number),
        "NULL" if part is None else f"'{part}'",
        f"TIMESTAMP_NTZ '{ts.isoformat(sep=' ')}'",
        "NULL" if n is None else str(n),
        "NULL" if more is None else f"'{more}'",
    ]
    return ", ".join(texts)


class Maker:
    """Iceberg Java as the writer and the reader of one table."""

    def __init__(self, warehouse: Path, java: JavaPeer) -> None:
        self.warehouse, self.java = warehouse, java

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self.java.sql(self.warehouse, statement.replace("db.t", "{c}.db.t"))

    def insert(self, rows: Mapping[int, Values], columns: int) -> None:
        values = ", ".join(
            f"({', '.join(literal(key, row).split(', ')[:columns])})" for key, row in rows.items()
        )
        self.sql(f"INSERT INTO db.t VALUES {values}")

    def rows(self) -> Rows:
        found = self.sql("SELECT id, label, cast(ts AS string) ts, n, more FROM db.t")
        assert len({row["id"] for row in found}) == len(found)
        return {
            row["id"]: (
                row["label"],
                datetime.datetime.fromisoformat(row["ts"]),
                row["n"],
                row["more"],
            )
            for row in found
        }


def course(folder: Path, warehouse: Path, java: JavaPeer, version: str, transform: str) -> Course:
    """Let Java write a table: appends, an evolved schema and spec, deletions as its version has them."""
    maker = Maker(warehouse, java)
    pyiceberg_catalog(warehouse).create_namespace("db")
    by = f"PARTITIONED BY ({TRANSFORMS[transform]})" if TRANSFORMS[transform] else ""
    merging = f", {_MERGE}" if not version.startswith("1") else ""
    maker.sql(
        f"CREATE TABLE db.t (id BIGINT, part STRING, ts TIMESTAMP_NTZ, n INT) USING iceberg {by} "
        f"TBLPROPERTIES ('format-version' = '{version[0]}'{merging})"
    )
    first, second, third = made(range(6)), made(range(6, 10)), made(range(10, 14), more="m")
    maker.insert(first, 4)
    maker.insert(second, 4)
    maker.sql("ALTER TABLE db.t ADD COLUMN more STRING")
    maker.sql("ALTER TABLE db.t RENAME COLUMN part TO label")
    maker.sql("ALTER TABLE db.t ALTER COLUMN n TYPE BIGINT")
    if transform in {"identity", "day"}:
        named = {"identity": "label", "day": "days(ts)"}[transform]
        maker.sql(f"ALTER TABLE db.t DROP PARTITION FIELD {named}")
    maker.sql(
        f"ALTER TABLE db.t ADD PARTITION FIELD bucket(2, {'n' if transform == 'bucket' else 'id'})"
    )
    maker.insert(third, 5)
    maker.sql("DELETE FROM db.t WHERE id IN (1, 12)")
    model = {k: v for k, v in (first | second | third).items() if k not in {1, 12}}
    if " to " in version:
        maker.sql(f"ALTER TABLE db.t SET TBLPROPERTIES ('format-version' = '{version[-1]}')")
        # What is deleted after the upgrade meets files from before it.
        maker.sql("DELETE FROM db.t WHERE id = 2")
        del model[2]
    return Course(warehouse, folder, model, first, second | third, judge=maker.rows)


@pytest.mark.parametrize(("version", "transform"), _CHOSEN)
def test_all_commands_work_on_a_table_of_java(
    warehouse: Path, tmp_path: Path, java: JavaPeer, version: str, transform: str
) -> None:
    run = course(tmp_path, warehouse, java, version, transform)

    run.run()

    maker = Maker(warehouse, java)
    maker.sql("DELETE FROM db.t WHERE id = 90")
    del run.model[90]
    run.check("deleted by Java at the end")
    assert run.scanned() == run.model
    if version.endswith("3"):
        found = maker.sql("SELECT id, _row_id FROM db.t")
        assert None not in {row["_row_id"] for row in found}
        assert len({row["_row_id"] for row in found}) == len(found)


def test_a_compaction_right_after_an_upgrade_gives_every_row_an_id(
    warehouse: Path, java: JavaPeer
) -> None:
    maker = Maker(warehouse, java)
    pyiceberg_catalog(warehouse).create_namespace("db")
    maker.sql("CREATE TABLE db.t (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for number in range(3):
        maker.sql(f"INSERT INTO db.t VALUES ({2 * number}), ({2 * number + 1})")
    maker.sql("ALTER TABLE db.t SET TBLPROPERTIES ('format-version' = '3')")
    lake = CommandLine(warehouse, engine="inline")

    lake.ok("compact", "db.t", "--option", "min-input-files=2", "--max-files", 2)

    first = {row["id"]: row["_row_id"] for row in maker.sql("SELECT id, _row_id FROM db.t")}
    assert sorted(first) == list(range(6))
    assert len({*first.values()} - {None}) == 6
    lake.ok("compact", "db.t", "--rewrite-all")
    assert {row["id"]: row["_row_id"] for row in maker.sql("SELECT id, _row_id FROM db.t")} == first
