"""Judge what `lake health` and `lake maintain` do about a fleet; rows are read by Iceberg Java and PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.cli.command_line import Result
from support.fleet.fleet import Fleet, Member
from support.fleet.ills import Ill, not_mended, not_named
from support.tables.iceberg_tables import pyiceberg_catalog

Row = Mapping[str, Any]
Rows = dict[str, Any]
DONE, PARTIAL = 0, 6
_WITH_LAYOUT = frozenset({Ill.OLD_SPEC, Ill.OLD_ORDER})
_WITH_KEYS = frozenset({Ill.EQUALITY_DELETES, Ill.FEW_EQUALITY_DELETES})


class Graded:
    """What `lake health` shows of each table of a fleet, and the layouts of those where it matters."""

    def __init__(self, fleet: Fleet) -> None:
        lake = fleet.lake()
        self.rows = {
            row["table"]: row for row in _document(lake.process("--json", "health"))["tables"]
        }
        self.layouts = {
            member.table: _document(lake.process("--json", "health", member.table))["view"][
                "layout"
            ]
            for member in fleet.members
            if _WITH_LAYOUT.intersection(member.ills)
        }


def maintained(
    fleet: Fleet, log: str, *words: object, new_log: bool = False, code: int | None = None
) -> dict[str, Any]:
    """Run `lake maintain` in a process of its own; return its result.

    Args:
        fleet: the fleet.
        log: the name of the run log.
        words: more options.
        new_log: begin with an empty log, so that no failure of earlier runs counts.
        code: the exit code that it must have; None for one of success, or of work that is left.
    """
    if new_log:
        fleet.log(log).unlink(missing_ok=True)
    result = fleet.lake().process("--json", *fleet.words(log), *words)
    assert code in {None, result.exit_code}, result
    return _document(result)


def _document(result: Result) -> dict[str, Any]:
    assert result.exit_code in {DONE, PARTIAL}, result
    found: dict[str, Any] = result.json()["result"]
    return found


def not_said(fleet: Fleet, before: Graded, result: Row) -> list[str]:
    """Return a line for each ill that was not named, and for each failure of a table that has nothing to cause it."""
    found = []
    for member in fleet.members:
        of_table = {
            name: [item for item in result[name] if item["table"] == member.table]
            for name in ("actions", "pending", "failed")
        }
        layout = before.layouts.get(member.table)
        said = {
            ill: not_named(ill, before.rows[member.table], layout, of_table) for ill in member.ills
        }
        found += [f"{member.table}: {ill}: {text}" for ill, text in said.items() if text]
        if member.is_mendable and of_table["failed"]:
            error = of_table["failed"][0]["error"]
            found.append(f"{member.table}: failed: {error['message']} ({error['hint']})")
        if member.is_mendable and not member.ills and before.rows[member.table]["needs"]:
            found.append(f"{member.table}: needs {before.rows[member.table]['needs']}")
    return found


def left(fleet: Fleet, after: Graded) -> list[str]:
    """Return a line for each ill that maintenance should have mended."""
    found = []
    for member in fleet.members:
        for ill in member.ills:
            row, layout = after.rows[member.table], after.layouts.get(member.table)
            if said := not_mended(ill, row, layout):
                found.append(f"{member.table}: {ill}: {said}")
        lost = list((fleet.warehouse / member.table.replace(".", "/", 1) / "data").glob("lost-*"))
        if lost and Ill.ORPHANS in member.ills:
            found.append(f"{member.table}: {len(lost)} orphan files are left")
    return found


def done_again(fleet: Fleet, result: Row) -> list[str]:
    """Return a line for each action of a run that should have had nothing to do."""
    mendable = {member.table for member in fleet.members if member.is_mendable}
    return [
        f"{item['table']}: {item['action']} was due again ({item['reason']}): {item['status']}"
        for item in result["actions"]
        if item["table"] in mendable or item["status"] == "done"
    ] + [f"{item['table']}: {item['action']} is left: {item['reason']}" for item in result["rest"]]


def rows_of(fleet: Fleet, java: Any, members: Sequence[Member] | None = None) -> Rows:
    """Return rows and hash of each readable table and of its refs, as Java and PyIceberg read them."""
    found: Rows = {}
    catalog = pyiceberg_catalog(fleet.warehouse)
    for member in members or fleet.members:
        if not member.is_readable:
            continue
        found[member.table] = java.checksum(fleet.warehouse, member.quoted)
        for ref in member.refs:
            suffix = f"VERSION AS OF '{ref}'"
            found[f"{member.table}@{ref}"] = java.checksum(fleet.warehouse, member.quoted, suffix)
        if member.version < 3 and not _WITH_KEYS.intersection(member.ills):
            name = tuple(member.table.split(".", 1))
            rows = catalog.load_table(name).scan().to_arrow()
            found[f"{member.table} by PyIceberg"] = hash_of(rows)
    return found


def hash_of(rows: Any) -> str:
    """Return the number of rows and a number that their order does not change."""
    lines = [json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist()]
    return f"{len(lines)} {sum(hash(line) for line in lines) & (2**64 - 1):x}"


def changed(before: Rows, after: Rows) -> list[str]:
    """Return a line for each table whose rows are not those of before."""
    return [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def by_moulds(fleet: Fleet, of_first: Rows) -> Rows:
    """Return the rows of all tables, given those of the first copy of each mould."""
    first = {}
    for member in fleet.members:
        first.setdefault(member.mould, member.table)
    found: Rows = {}
    for member in fleet.members:
        own = first[member.mould]
        for end in ("", " by PyIceberg", *(f"@{ref}" for ref in member.refs)):
            if own + end in of_first:
                found[member.table + end] = of_first[own + end]
    return found


def firsts(fleet: Fleet) -> list[Member]:
    """Return the first copy of each mould."""
    seen: dict[str, Member] = {}
    for member in fleet.members:
        seen.setdefault(member.mould, member)
    return list(seen.values())
