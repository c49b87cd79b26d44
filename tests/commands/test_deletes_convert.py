"""`lake deletes --convert` through the command line; rows are read again by PyIceberg where it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.partitioned_tables import add

import lake.core.compaction.execute as compaction
import lake.core.delete_conversion.execute as conversion
from lake.core.compaction.options import CompactionOptions
from lake.core.compaction.plan import plan_compaction


def load(lake: CommandLine, text: str, *options: str) -> None:
    source = Path(lake.warehouse.parent / "changed.csv")
    source.write_text(text)
    lake.ok("ingest", "db.t", source, *options)


def upsert(lake: CommandLine, text: str, key: str, kind: str = "equality") -> None:
    load(lake, text, "--upsert", "--key", key, "--deletes", kind)


def rows(lake: CommandLine) -> list[Any]:
    target = lake.warehouse.parent / "out.csv"
    target.unlink(missing_ok=True)
    lake.ok("scan", "db.t", "--output", target)
    return sorted(target.read_text().splitlines()[1:])


def kinds(lake: CommandLine) -> list[str]:
    return sorted(row["kind"] for row in lake.ok("deletes", "db.t")["result"]["delete_files"])


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_rows_stay_and_no_equality_delete_is_left(lake: CommandLine, version: str) -> None:
    created = ("--create", "--property", f"format-version={version}", "--partition-by", "day")
    load(lake, "id,day,x\n1,a,1\n2,a,1\n3,b,1\n4,b,1\n", *created)
    upsert(lake, "id,day,x\n1,a,2\n4,b,2\n", "id,day", "position")
    upsert(lake, "id,day,x\n2,a,3\n4,b,3\n", "id,day")
    upsert(lake, "id,day,x\n2,a,4\n", "id,day")
    before = rows(lake)

    dry = lake.ok("deletes", "db.t", "--convert", "--dry-run")
    assert rows(lake) == before
    assert dry["plan"]["equality_deletes"] == 3

    done = lake.ok("deletes", "db.t", "--convert")
    assert done["result"]["removed_equality_deletes"] == 3
    assert done["result"]["deleted_rows"] == 3
    assert set(kinds(lake)) == {"position" if version == "2" else "vector"}
    assert rows(lake) == before
    assert lake.ok("check", "db.t")["result"]["errors"] == 0
    assert lake.ok("deletes", "db.t", "--convert")["status"] == "nothing-to-do"


@pytest.mark.parametrize("version", ["2", "3"])
def test_null_and_negative_zero_are_keys(lake: CommandLine, version: str) -> None:
    created = ("--create", "--property", f"format-version={version}")
    load(lake, "k,n,x\n1.5,1,1\nNaN,2,1\n,3,1\n-0.0,4,1\n0.0,4,1\n2.5,,1\n", *created)
    upsert(lake, "k,n,x\n1.5,1,2\n-0.0,4,2\n", "k,n")
    upsert(lake, "k,n,x\n9.5,1,3\n", "n")
    before = rows(lake)
    lake.ok("deletes", "db.t", "--convert")
    assert "equality" not in kinds(lake)
    assert rows(lake) == before


def test_deletes_that_match_no_row_are_removed(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "3,2026-01-01")
    upsert(lake, "id,day\n2,2026-01-01\n", "id,day")
    before = rows(lake)
    done = lake.ok("deletes", "db.t", "--convert")
    assert (done["result"]["added_deletes"], done["result"]["deleted_rows"]) == (0, 0)
    assert (kinds(lake), rows(lake)) == ([], before)


@pytest.mark.parametrize("other", ["append", "upsert", "compaction"])
def test_a_concurrent_writer_loses_nothing(
    lake: CommandLine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(lake, "id,x\n1,1\n2,1\n3,1\n", "--create")
    upsert(lake, "id,x\n2,2\n", "id")
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            if other == "append":
                load(lake, "id,x\n2,9\n")
            elif other == "upsert":
                upsert(lake, "id,x\n3,9\n", "id")
            else:
                # As another engine would: without lake's lock.
                session, plan = given[:2]
                options = CompactionOptions(rewrite_all=True)
                compaction.execute(session, plan_compaction(plan.table, options))
        return real(*given)

    monkeypatch.setattr(conversion, "_commit", overtaken)
    lake.ok("deletes", "db.t", "--convert")
    expected = {
        "append": ["1,1", "2,2", "2,9", "3,1"],
        "upsert": ["1,1", "2,2", "3,9"],
        "compaction": ["1,1", "2,2", "3,1"],
    }
    assert rows(lake) == expected[other]
    assert "equality" not in kinds(lake)
    # The plan holds after an append only.
    assert len(calls) == (1 if other == "append" else 2)


def test_options_of_a_conversion_need_it(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01")
    result = lake("deletes", "db.t", "--dry-run")
    assert result.exit_code != 0
    assert "--convert" in result.stderr
