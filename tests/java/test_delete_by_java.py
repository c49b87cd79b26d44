"""`lake delete`: Java reads the same rows as after its own DELETE, with the row ids that they had before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java

_WHERE = "(id % 7 = 3 AND part <> 1) OR part = 2"
# The same rows in lake's filters, which have no arithmetic.
_MATCHING = [number for number in range(300) if number % 7 == 3 and number % 3 != 1]


def load(lake: CommandLine, lines: list[str], *options: str) -> None:
    lake.load("id,part,value\n" + "".join(f"{line}\n" for line in lines), *options)


def rows(java: JavaPeer, warehouse: Path, columns: str) -> list[dict[str, Any]]:
    return java.sql(warehouse, f"SELECT {columns} FROM lake.db.t ORDER BY id")


@pytest.mark.parametrize(
    ("version", "mode", "partitioned"),
    [
        ("1", "copy-on-write", True),
        ("2", "position", True),
        ("2", "copy-on-write", False),
        ("3", "position", False),
        ("3", "copy-on-write", True),
    ],
)
def test_java_reads_the_rows_that_its_own_delete_leaves(
    warehouse: Path, java: JavaPeer, version: str, mode: str, partitioned: bool
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    by = ("--partition-by", "part") if partitioned else ()
    load(
        lake,
        [f"{number},{number % 3},{number if number % 5 else ''}" for number in range(300)],
        *("--create", "--property", f"format-version={version}", *by),
    )
    if version != "1":
        # Rows that are deleted already, by position and by key.
        upsert = ("--upsert", "--key", "id,part")
        load(lake, [f"{number},{number % 3},7" for number in range(0, 300, 17)], *upsert)
        keys = ("--deletes", "equality")
        load(lake, [f"{number},{number % 3},8" for number in range(0, 300, 23)], *upsert, *keys)
    columns = "id, part, value"
    if version == "3":
        columns += ", _row_id, _last_updated_sequence_number"
    before = rows(java, warehouse, columns)
    gone = java.sql(warehouse, f"SELECT count(*) AS n FROM lake.db.t WHERE {_WHERE}")[0]["n"]

    chosen = f"(id in ({', '.join(map(str, _MATCHING))}) and part <> 1) or part = 2"
    done = lake.ok("delete", "db.t", "--where", chosen, "--deletes", mode)

    assert done["result"]["rows"] == gone
    left = [row for row in before if row["part"] != 2 and row["id"] not in _MATCHING]
    assert rows(java, warehouse, columns) == left
    # Java goes on with the table: value is NULL for some rows, which stay.
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE value > 100")
    expected = [row for row in left if row["value"] is None or row["value"] <= 100]
    assert rows(java, warehouse, columns) == expected
    again = lake.ok("delete", "db.t", "--where", "value <= 50", "--deletes", mode)
    rest = [row for row in expected if row["value"] is None or row["value"] > 50]
    assert again["result"]["rows"] == len(expected) - len(rest)
    assert rows(java, warehouse, columns) == rest
