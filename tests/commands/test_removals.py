"""What an overwrite removes: rows, files and partitions, in dry runs and results; rows are counted by PyIceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in, open_session, request_of

from lake.core.load.ingest.execute import execute
from lake.core.load.ingest.options import REPLACE
from lake.core.load.ingest.plan import plan_ingest

BY_DAY = ("--create", "--partition-by", "day")


def source(folder: Path, *rows: tuple[int, str]) -> Path:
    """Write rows of (id, day) to a CSV file; an empty day is NULL."""
    path = folder / f"{len(list(folder.glob('*.csv')))}.csv"
    path.write_text("id,day\n" + "".join(f"{number},{day}\n" for number, day in rows))
    return path


def some_rows(first: int, days: int = 3, each: int = 2) -> list[tuple[int, str]]:
    return [(first + number, f"d{number % days:02}") for number in range(days * each)]


def removed(facts: dict[str, Any]) -> tuple[Any, ...]:
    names = ("removed_rows", "removed_rows_at_least", "removed_rows_at_most")
    return (*(facts[name] for name in names), facts["removed_files"], facts["rewritten_files"])


@pytest.mark.parametrize(
    ("option", "rows", "partitions"),
    [
        (["--overwrite"], (12, 12, 12, 6, 0), ["day=d00", "day=d01", "day=d02"]),
        (["--replace-partitions"], (4, 4, 4, 2, 0), ["day=d01"]),
        (["--overwrite-where", "day = 'd01'"], (4, 4, 4, 2, 0), ["day=d01"]),
    ],
)
def test_a_dry_run_and_the_result_name_the_rows_files_and_partitions_that_go(
    lake: CommandLine,
    tmp_path: Path,
    option: list[str],
    rows: tuple[int, ...],
    partitions: list[str],
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY)
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(100)))
    command = ("ingest", "db.t", source(tmp_path, (900, "d01")), *option)
    before = files_below(lake.warehouse)

    plan = lake.ok(*command, "--dry-run")["plan"]
    shown = lake(*command, "--dry-run")

    assert files_below(lake.warehouse) == before
    assert removed(plan) == rows
    assert [item["partition"] for item in plan["removed_partitions"]] == partitions
    assert sum(item["removed_rows_at_most"] for item in plan["removed_partitions"]) == rows[0]
    assert (
        f"would remove {rows[0]} rows in {rows[3]} files of {len(partitions)} partition"
        in shown.stderr
    )
    assert f"{partitions[0]}\t2\t4\n" in shown.stdout
    result = lake.ok(*command)["result"]
    assert removed(result) == rows
    assert result["removed_partitions"] == plan["removed_partitions"]
    assert len(ids_in(lake.warehouse)) == 12 - rows[0] + 1


def test_an_overwrite_says_how_many_rows_it_replaced(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY)

    done = lake("ingest", "db.t", source(tmp_path, (900, "d01")), "--overwrite")
    nothing = lake("ingest", "db.t", source(tmp_path, (901, "d09")), "--replace-partitions")

    assert done.stdout.startswith("db.t: replaced 6 rows by 1 in 1 file (")
    assert nothing.stdout.startswith("db.t: loaded 1 row in 1 file (")
    assert "; no row was replaced" in nothing.stdout


def test_rows_of_files_that_a_filter_selects_in_part_are_known_after_the_rewrite(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY)
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(4)))
    command = ("ingest", "db.t", source(tmp_path, (1, "d01")), "--overwrite-where", "id < 4")
    before = len(ids_in(lake.warehouse))

    plan = lake.ok(*command, "--dry-run")["plan"]
    told = lake(*command, "--dry-run").stderr
    result = lake.ok(*command)["result"]

    assert removed(plan) == (None, 2, 6, 1, 2)
    assert "would remove up to 6 rows in 3 files of 3 partitions (2 of them in part)" in told
    assert removed(result) == (4, 4, 4, 1, 2)
    assert len(ids_in(lake.warehouse)) == before - 4 + 1


def test_rows_that_delete_files_may_have_removed_are_not_counted_as_certain(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY)
    upsert = ("--upsert", "--key", "id,day", "--deletes")
    lake.ok("ingest", "db.t", source(tmp_path, (0, "d00")), *upsert, "equality")
    lake.ok("ingest", "db.t", source(tmp_path, (1, "d01")), *upsert, "position")
    command = ("ingest", "db.t", source(tmp_path, (9, "d01")), "--overwrite")

    plan = lake.ok(*command, "--dry-run")["plan"]

    # Two files of one row each were added. Of the old files, one may have lost all rows and one has lost one.
    assert removed(plan) == (None, 2 + 2 + 1, 2 + 6, 5, 0)
    assert lake(*command).stdout.startswith("db.t: replaced up to 8 rows by 1 in 1 file (")


def test_the_rows_that_deletion_vectors_leave_are_known(lake: CommandLine, tmp_path: Path) -> None:
    create = (*BY_DAY, "--property", "format-version=3")
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *create)
    lake.ok("ingest", "db.t", source(tmp_path, (1, "d01")), "--upsert", "--key", "id,day")

    plan = lake.ok("ingest", "db.t", source(tmp_path, (9, "d01")), "--overwrite", "--dry-run")[
        "plan"
    ]

    assert len(ids_in(lake.warehouse)) == 6
    assert removed(plan) == (6, 6, 6, 4, 0)


def test_null_and_the_text_null_are_different_partitions(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, (1, '"null"'), (2, ""), (3, "")), *BY_DAY)
    command = ("ingest", "db.t", source(tmp_path, (9, "")), "--replace-partitions")

    plan, result = (
        lake.ok(*command, *dry)[part] for dry, part in ((["--dry-run"], "plan"), ([], "result"))
    )

    assert removed(plan) == removed(result) == (2, 2, 2, 1, 0)
    assert ids_in(lake.warehouse) == [1, 9]


def test_replacing_the_partitions_of_an_unpartitioned_table_removes_all_rows(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), "--create")
    command = ("ingest", "db.t", source(tmp_path, (9, "d01")), "--replace-partitions")

    shown = lake(*command, "--dry-run")

    assert "would remove 6 rows in 1 file and load" in shown.stderr
    assert "partitions that lose rows" not in shown.stdout
    assert removed(lake.ok(*command)["result"]) == (6, 6, 6, 1, 0)


def test_a_dry_run_shows_twenty_partitions_and_json_has_all(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0, days=23, each=1)), *BY_DAY)
    command = ("ingest", "db.t", source(tmp_path, (9, "d01")), "--overwrite", "--dry-run")

    shown, every = lake(*command), lake("-v", *command)

    assert shown.stdout.count("day=d") == 20
    assert "3 more partitions are not shown (--verbose shows all)" in shown.stderr
    assert every.stdout.count("day=d") == 23
    assert len(lake.ok(*command)["plan"]["removed_partitions"]) == 23


def test_a_dry_run_of_an_upsert_says_what_it_compares_with_its_keys(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY)
    command = ("ingest", "db.t", source(tmp_path, (1, "d01")), "--upsert", "--key", "id,day")

    plan = lake.ok(*command, "--dry-run")["plan"]
    blind = lake.ok(*command, "--deletes", "equality", "--dry-run")["plan"]

    assert (plan["examined_files"], plan["updated_rows_at_most"]) == (3, 6)
    assert plan["examined_partitions"] == ["day=d00", "day=d01", "day=d02"]
    assert (blind["examined_files"], blind["updated_rows_at_most"]) == (0, 6)
    assert (
        "up to 6 rows in 3 files of 3 partitions may have the same keys"
        in lake(*command, "--dry-run").stderr
    )


def test_rows_that_another_writer_added_meanwhile_are_counted_by_the_commit(
    lake: CommandLine, tmp_path: Path
) -> None:
    property_ = ("--property", "write.delete.isolation-level=snapshot")
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(0)), *BY_DAY, *property_)
    session = open_session(lake.warehouse)
    request = request_of(source(tmp_path, (9, "d01")), mode=REPLACE)
    plan = plan_ingest(session, "db.t", request)
    lake.ok("ingest", "db.t", source(tmp_path, *some_rows(100)))

    result = execute(session, plan).result.document()

    head = lake.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["deleted-records"] == "4"
    assert (result["removed_rows"], result["removed_rows_at_most"]) == (None, 4)
