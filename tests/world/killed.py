"""The command lines that are killed at each of their calls, and the results of a second and a third run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate
from support.tables.replay_plans import take_checkpoint, write_manifest

from lake.core.table.catalogs.catalog import Table
from lake.core.table.flink.state import FLINK_SINK
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from world.foreign import data_files
from world.places import KINDS, TABLE, Place

NOTHING, SAME, ONCE, GONE, REFUSED = "nothing", "same", "once", "gone", "refused"
_BY_PART = ("--partition-by", "part")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line.

    Args:
        arguments: after the catalog; ``{source}`` represents a file of the rows, ``{numbered}`` one with
            field ids, ``{evolving}`` one with another column, ``{oldest}`` the first snapshot, ``{metadata}``
            its last metadata file, ``{checkpoint}``, ``{drop}`` and ``{state}`` folders, ``{inventory}`` a list of
            its files, ``{run}`` the run that moved files to the trash.
        rows: the rows that it loads.
        leaves: whether a killed run may leave files that no snapshot references.
        first: command lines that are run before it.
        prepare: a function that is called before it.
        then: a command line that is run at the end; the rows after it must agree too.
        again: the result of a run after a complete one: ``nothing``; the ``same`` rows; it must be run ``once`` only,
            because a second run cannot detect the first; or it reports what is ``gone``; or it is ``refused``.
        versions: the table's format versions.
        table: how the table is created; None if the command creates it.
        parts: whether a killed run may leave some of its rows: it commits several times.
        resume: command lines that end a killed run which no second run can end; they fail if nothing is left of it.
        keeps: whether every file that was there stays.
        breaks: whether a killed run may leave a table that lacks files: it deletes the table, and a next run goes on.
        catalogs: the kinds of places.
        divides: whether a second run divides what the first left into commits again, so that there are more.
        damages: whether `prepare` removes files that the table needs, so that it cannot be read before.
    """

    arguments: Sequence[str]
    rows: Sequence[Mapping[str, Any]] = ()
    leaves: bool = True
    first: Sequence[Sequence[str]] = ()
    prepare: Callable[[Place], None] | None = None
    then: Sequence[str] = ()
    again: str = NOTHING
    versions: Sequence[int] = (1, 2, 3)
    table: Sequence[str] | None = ()
    parts: bool = False
    resume: Sequence[Sequence[str]] = ()
    keeps: bool = False
    breaks: bool = False
    catalogs: Sequence[str] = KINDS
    divides: bool = False
    damages: bool = False


def rows(*ids: int, value: int, **more: Any) -> list[dict[str, Any]]:
    """Return a row for each id."""
    return [{"id": one, "part": "x" if one % 2 else "y", "value": value, **more} for one in ids]


JOB = "a" * 32
# The statistics file that `damaged` names and does not write.
LOST = "lost.stats"
_RUN = ("--run-id", "run-1")
_INGEST = ("ingest", "db.t", "{source}")
_ADD = ("add-files", "db.t", "{numbered}")
_UPSERT = (*_INGEST, "--upsert", "--key", "id")
_CHANGES = (*_INGEST, "--changes-column", "op", "--key", "id", "--changes-mode")
_STAGE = (*_INGEST, "--stage", *_RUN)
# Of the two first files rows go and stay.
_DELETE = ("delete", "db.t", "--where", "id < 6 and id != 1")
_REPLAY = ("replay", "db.t", "--job", "run-1", "--completed", "1")
_REPLAY_ALL = ("replay", "db.t", "--all-staged")
_CHECKPOINT = ("replay", "db.t", "--checkpoint", "{checkpoint}", "--quiet-time", "0s")
_COMPACT = ("compact", "db.t", "--min-input-files", "2", "--delete-file-threshold", "1")
_EXPIRE = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
_CLEAN = ("clean", "db.t", "--older-than", "0s", "--unsafe-retention", "--max-share", "100%")
_STAGED = ("ref", "db.t", "--branch-create", "staged")
_PUBLISH = ("publish", "db.t", "--wap-id", "w")
_EVOLVE = ("ingest", "db.t", "{evolving}", "--evolve")
_AUDIT = ("ingest", "db.t", "{evolving}", "--evolve", "--branch", "audit")
_PARTITIONS = ("stats", "db.t", "--partitions")
_ONE_FILE = ("compact", "db.t", "--rewrite-all")
_DROP = ("drop", "db.t")
_PURGE = (*_DROP, "--purge", "--yes")
_REGISTER = ("register", "db.t", "{metadata}")
_REPAIR = (
    *("check", "db.t", "--yes", "--repair", "dangling-deletes", "--repair", "totals"),
    *("--repair", "statistics"),
)
_NEW = rows(50, 51, 52, value=9)
_KEYED = rows(1, 2, 53, value=9)
_PARTIAL = ("--merge", "partial-update")
# Rows of which one keeps its part, one its value, and one is in the source twice.
_SOME = [
    {"id": 1, "part": None, "value": 9},
    {"id": 2, "part": "z", "value": None},
    *rows(53, value=9),
    {"id": 53, "part": "z", "value": None},
]
_LOOKUP = (*_CHANGES, "upsert", "--deletes")
_DIVIDED = ("ingest", "db.{{part}}", "{source}", "--create", "--route", "part")
_DIVIDED = (*_DIVIDED, *_LOOKUP[3:], "position")
_UPSERTED = [*rows(1, 54, value=9, op="+I"), *rows(2, 3, value=9, op="-D")]
_RETRACTED = [
    *rows(54, 55, value=9, op="+I"),
    *rows(1, value=0, op="-U"),
    *rows(1, value=9, op="+U"),
    *rows(8, value=2, op="-D"),
]
# Two changes move a row to another partition, one deletes a row by the key only, and one has no row.
_MOVED = [
    *rows(1, 54, value=9, op="+I"),
    {"id": 1, "part": "z", "value": 10, "op": "+U"},
    {"id": 4, "part": "x", "value": 11, "op": "+U"},
    *({"id": one, "part": None, "value": None, "op": "-D"} for one in (2, 77)),
]
# Changes that a column orders: two move a row, one deletes a row, and three are older than another one.
_ORDERED = [
    {"id": 1, "part": "z", "value": 12, "op": "+U"},
    {"id": 1, "part": "y", "value": 11, "op": "+U"},
    {"id": 4, "part": "x", "value": 13, "op": "+U"},
    {"id": 5, "part": "y", "value": 0, "op": "+U"},
    {"id": 2, "part": "y", "value": 9, "op": "-D"},
    {"id": 2, "part": "x", "value": 8, "op": "+U"},
    *rows(54, value=9, op="+I"),
]
_WITH_DELETES = (2, 3)
_IN_PARTS = ("--partial-progress", "--max-commits", "2")
_MANY_DELETES = (
    (*_UPSERT, "--deletes", "position"),
    (*_UPSERT, "--deletes", "position"),
    ("alter", "db.t", "--set", "write.delete.granularity=partition"),
)


def checkpoints(place: Place) -> None:
    """Leave the files of a Flink job that died after its third checkpoint, without any commit."""
    table = place.session().table(TABLE)
    taken = {number: rows(60 + number, value=number) for number in (1, 2, 3)}
    leave_checkpoint(table, place.warehouse / "checkpoint", taken)


def leave_checkpoint(
    table: Table, folder: Path, taken: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """Leave a Flink job's last checkpoint, with uncommitted rows of the given checkpoints."""
    named = {}
    for number, loaded in taken.items():
        files = data_files(table, loaded)
        named[number] = [(write_manifest(table, files, checkpoint_id=number, counter=number), 0)]
    folder.mkdir()
    take_checkpoint(folder, FLINK_SINK, named, table.storage.size)


def staged(place: Place) -> None:
    """Commit rows to the branch ``staged`` under a WAP id."""
    session = place.session()
    table = session.table(TABLE)
    added = AppendFiles(added=data_files(table, rows(70, 71, value=7)))
    request = CommitRequest(operation_id=str(uuid.uuid4()), branch="staged")
    commit_snapshot(session, table, added, request, summary={"wap.id": "w"})


def orphans(place: Place) -> None:
    """Leave files in the table's folders that nothing references."""
    table = place.session().table(TABLE)
    location = table.metadata.location
    for name in ("data/lost.parquet", "data/lost/part.orc", "metadata/lost-m0.avro"):
        table.storage.write(f"{location}/{name}", b"lost")


def listed_orphans(place: Place) -> None:
    """Leave files that nothing references, and an inventory of all files."""
    orphans(place)
    files = place.files()
    times = [file.modified_us for file in files]
    inventory = pa.table(
        {
            "path": [file.location for file in files],
            "size": [file.size for file in files],
            "last_modified": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(inventory, place.warehouse / "inventory.parquet")


def removed_orphans(place: Place) -> None:
    """Move files that nothing references to the trash."""
    orphans(place)
    place.wait()
    place.run(*_CLEAN, "--quarantine")


def damaged(place: Place) -> None:
    """Leave a wrong total, and the entry of a statistics file that is gone."""
    session = place.session()
    table = session.table(TABLE)
    added = AppendFiles(added=data_files(table, rows(70, value=7)))
    request = CommitRequest(operation_id=str(uuid.uuid4()))
    wrong = {"total-records": "99"}
    table = commit_snapshot(session, table, added, request, summary=wrong).table
    lost = StatisticsFile(
        snapshot_id=table.metadata.current_snapshot_id or 0,
        statistics_path=f"{table.metadata.location}/metadata/{LOST}",
        file_size_in_bytes=10,
        file_footer_size_in_bytes=5,
        blob_metadata=[],
    )
    change = ChangeSet((), (SetStatisticsUpdate(statistics=lost),))
    commit_changes(session, table, lambda _: change, lambda now: lost in now.statistics or None)


def bereaved(place: Place) -> None:
    """Leave a wrong total, and the entry of a data file that is gone."""
    damaged(place)
    session = place.session()
    table = session.table(TABLE)
    (lost,) = data_files(table, rows(80, value=8))
    request = CommitRequest(operation_id=str(uuid.uuid4()))
    commit_snapshot(session, table, AppendFiles(added=[lost]), request)
    table.storage.delete([lost.path])


def dropped(*loaded: Sequence[Mapping[str, Any]]) -> Callable[[Place], None]:
    """Return a function that drops a file of each of the given rows into a watched folder."""

    def prepare(place: Place) -> None:
        folder = place.warehouse / "drop"
        folder.mkdir()
        for number, given in enumerate(loaded):
            path = folder / f"{number}.parquet"
            pq.write_table(pa.Table.from_pylist([dict(row) for row in given]), path)

    return prepare


def _watching() -> dict[str, Command]:
    watch = ("ingest", "db.t", "--watch", "{drop}", "--stream", "s", "--state", "{state}", "--once")
    watch = (*watch, "--settle", "0s", "--done")
    divide = ("--create", "--route", "part", *watch[2:])
    files = dropped(_NEW[:1], _NEW[1:], rows(58, value=9))
    keyed = dropped(_KEYED[:1], _KEYED[1:], rows(1, value=10))
    changes = ("--changes-column", "op", "--key", "id", "--changes-mode", "upsert")
    return {
        "watch": Command(arguments=(*watch, "keep"), prepare=files),
        "watch and move": Command(arguments=(*watch, "move:{drop}/done"), prepare=files),
        "watch in epochs": Command(
            arguments=(*watch, "keep", "--commit-files", "1"), prepare=files, parts=True
        ),
        "watch, move and compact": Command(
            arguments=(
                *watch,
                *("move:{drop}/done", "--commit-files", "2", "--then-compact", "files >= 1"),
            ),
            prepare=files,
            parts=True,
        ),
        "watch and delete": Command(arguments=(*watch, "delete"), prepare=files),
        "watch upserts": Command(
            arguments=(*watch, "keep", "--upsert", "--key", "id"),
            prepare=keyed,
            versions=_WITH_DELETES,
        ),
        "watch changes": Command(
            arguments=(*watch, "delete", *changes),
            prepare=dropped(_UPSERTED[:2], _UPSERTED[2:]),
            versions=_WITH_DELETES,
        ),
        "watch moving changes": Command(
            arguments=(*watch, "keep", *changes, "--deletes", "position"),
            prepare=dropped(_MOVED[:2], _MOVED[2:]),
            versions=_WITH_DELETES,
            table=_BY_PART,
        ),
        "watch and divide moving changes": Command(
            arguments=("ingest", "db.{{part}}", *divide, "keep", *changes, "--deletes", "position"),
            prepare=dropped(_UPSERTED[:2], [*_UPSERTED[2:], *_UPSERTED[:1]]),
            first=(_DIVIDED,),
            rows=_UPSERTED,
            table=None,
            parts=True,
        ),
        "watch and create": Command(
            arguments=(*watch, "keep", "--create", *_BY_PART), prepare=files, table=None
        ),
        "watch and divide": Command(
            arguments=("ingest", "db.{{part}}", *divide, "keep", "--commit-files", "2"),
            prepare=files,
            table=None,
            parts=True,
        ),
        "watch, divide and move": Command(
            arguments=("ingest", "db.{{part}}", *divide, "move:{drop}/done"),
            prepare=files,
            table=None,
            parts=True,
        ),
        "watch and evolve": Command(
            arguments=(*watch, "keep", "--evolve"),
            prepare=dropped(rows(90, value=0, more=1), rows(91, value=0, more=2)),
        ),
    }


def _commands() -> dict[str, Command]:
    ways = {
        "append": Command(arguments=_INGEST, rows=_NEW, again=ONCE),
        "overwrite": Command(arguments=(*_INGEST, "--overwrite"), rows=_NEW, again=SAME),
        "overwrite where": Command(
            arguments=(*_INGEST, "--overwrite-where", "id < 4"),
            rows=rows(1, 2, value=9),
            again=SAME,
        ),
        "delete by position": Command(
            arguments=(*_DELETE, "--deletes", "position"), versions=_WITH_DELETES
        ),
        "delete by copying": Command(arguments=(*_DELETE, "--deletes", "copy-on-write")),
        "replace partitions": Command(
            arguments=(*_INGEST, "--replace-partitions"),
            rows=rows(51, 53, value=9),
            again=SAME,
            table=_BY_PART,
        ),
        "upsert by position": Command(
            arguments=_UPSERT, rows=_KEYED, again=SAME, versions=_WITH_DELETES
        ),
        "upsert by equality": Command(
            arguments=(*_UPSERT, "--deletes", "equality"),
            rows=_KEYED,
            again=SAME,
            versions=_WITH_DELETES,
        ),
        "upsert by copying": Command(
            arguments=(*_UPSERT, "--deletes", "copy-on-write"), rows=_KEYED, again=SAME
        ),
        "upsert of newer rows": Command(
            arguments=(*_UPSERT, "--sequence", "value"),
            rows=[*_KEYED, *rows(3, value=-1)],
            again=SAME,
            versions=_WITH_DELETES,
        ),
        "first rows": Command(
            arguments=(*_UPSERT, "--merge", "first-row"), rows=_KEYED, again=SAME
        ),
        "partial update": Command(
            arguments=(*_UPSERT, *_PARTIAL), rows=_SOME, again=SAME, versions=_WITH_DELETES
        ),
        "partial update by copying": Command(
            arguments=(*_UPSERT, *_PARTIAL, "--deletes", "copy-on-write"), rows=_SOME, again=SAME
        ),
        "upserted changes": Command(
            arguments=(*_CHANGES, "upsert"), rows=_UPSERTED, again=SAME, versions=_WITH_DELETES
        ),
        "retracted changes": Command(
            arguments=(*_CHANGES, "retract"), rows=_RETRACTED, again=ONCE, versions=_WITH_DELETES
        ),
        "changes by position": Command(
            arguments=(*_LOOKUP, "position"),
            rows=_MOVED,
            again=SAME,
            versions=_WITH_DELETES,
            table=_BY_PART,
        ),
        "changes by copying": Command(
            arguments=(*_LOOKUP, "copy-on-write"), rows=_MOVED, again=SAME, table=_BY_PART
        ),
        "create": Command(
            arguments=(*_INGEST, "--create", *_BY_PART), rows=_NEW, again=ONCE, table=None
        ),
    }
    by_run = {
        f"{name}, with run id": Command(
            **{
                **{key: getattr(one, key) for key in Command.__dataclass_fields__},
                "arguments": (*one.arguments, *_RUN),
                "again": NOTHING,
            }
        )
        for name, one in ways.items()
    }
    return {**by_run, **ways}


# In a Hadoop catalog a table is its folder and has no entry.
_WITH_ENTRIES = ("sql", "postgres", "rest")
_ENTRIES: Mapping[str, Command] = {
    "drop": Command(
        arguments=_DROP, then=_REGISTER, again=GONE, keeps=True, catalogs=_WITH_ENTRIES
    ),
    "drop and purge": Command(
        arguments=_PURGE,
        table=_BY_PART,
        first=(_ONE_FILE, ("stats", "db.t"), _PARTITIONS),
        leaves=False,
        again=GONE,
        resume=(_REGISTER, _PURGE),
        catalogs=_WITH_ENTRIES,
    ),
    "purge a folder": Command(
        arguments=_PURGE,
        first=(_ONE_FILE, ("stats", "db.t")),
        leaves=False,
        again=GONE,
        breaks=True,
        catalogs=("hadoop",),
    ),
    "rename": Command(
        arguments=("rename", "db.t", "other.renamed"),
        again=GONE,
        keeps=True,
        catalogs=_WITH_ENTRIES,
    ),
    "register": Command(arguments=_REGISTER, first=(_DROP,), keeps=True, catalogs=_WITH_ENTRIES),
}
COMMANDS: Mapping[str, Command] = {
    **_commands(),
    **_watching(),
    "follow changes of a table": Command(
        arguments=(
            *("ingest", "db.t", "--from-table", "db.s", "--follow", "--stream", "c", "--once"),
            *(*_LOOKUP[3:], "position", "--sequence", "value"),
        ),
        rows=_ORDERED,
        first=(("ingest", "db.s", "{source}", "--create"),),
        versions=_WITH_DELETES,
        table=_BY_PART,
    ),
    "divide moving changes, with run id": Command(
        arguments=(*_DIVIDED, *_RUN),
        rows=_UPSERTED,
        first=(_DIVIDED,),
        table=None,
        parts=True,
    ),
    **_ENTRIES,
    "stage": Command(arguments=_STAGE, rows=_NEW, then=_REPLAY),
    "stage changes": Command(
        arguments=(*_CHANGES, "upsert", "--stage", *_RUN),
        rows=_UPSERTED,
        then=_REPLAY,
        versions=_WITH_DELETES,
    ),
    "commit what is staged": Command(arguments=(*_INGEST, *_RUN), rows=_NEW, first=(_STAGE,)),
    "discard": Command(
        arguments=("ingest", "db.t", "--discard", "run-1"), rows=_NEW, first=(_STAGE,), leaves=False
    ),
    "compact": Command(arguments=_COMPACT),
    "compact in parts": Command(
        arguments=(*_COMPACT, "--partial-progress", "--max-commits", "2"),
        table=_BY_PART,
    ),
    "compact and remove deletes": Command(
        arguments=(*_COMPACT, "--remove-dangling-deletes"), versions=_WITH_DELETES
    ),
    "convert deletes": Command(
        arguments=("deletes", "db.t", "--convert"),
        rows=_KEYED,
        first=((*_UPSERT, "--deletes", "equality"),),
        versions=_WITH_DELETES,
    ),
    "convert deletes in parts": Command(
        arguments=("deletes", "db.t", "--convert", *_IN_PARTS),
        rows=_KEYED,
        first=((*_UPSERT, "--deletes", "equality"), (*_UPSERT, "--deletes", "equality")),
        versions=_WITH_DELETES,
        divides=True,
    ),
    "rewrite deletes": Command(
        arguments=("deletes", "db.t", "--rewrite"),
        rows=_KEYED,
        first=_MANY_DELETES,
        versions=(2,),
    ),
    "rewrite deletes in parts": Command(
        arguments=("deletes", "db.t", "--rewrite", *_IN_PARTS),
        rows=_KEYED,
        first=_MANY_DELETES,
        versions=(2,),
        divides=True,
    ),
    "expire": Command(arguments=_EXPIRE, first=(_ONE_FILE,), leaves=False),
    "expire, keeping files": Command(arguments=(*_EXPIRE, "--keep-files"), first=(_ONE_FILE,)),
    "expire and clean metadata": Command(
        arguments=(*_EXPIRE, "--clean-metadata"), first=(_EVOLVE, _ONE_FILE), leaves=False
    ),
    "expire one": Command(
        arguments=("expire", "db.t", "--snapshot", "{oldest}"),
        first=(_ONE_FILE,),
        leaves=False,
        again=GONE,
    ),
    "rewrite manifests": Command(arguments=("manifests", "db.t")),
    "repair": Command(arguments=_REPAIR, prepare=damaged, keeps=True),
    "repair what is missing": Command(
        arguments=(*_REPAIR, "--repair", "missing-files"),
        prepare=bereaved,
        keeps=True,
        damages=True,
    ),
    "repair deletes": Command(
        arguments=_REPAIR,
        rows=_KEYED,
        first=(
            (*_UPSERT, "--deletes", "equality"),
            ("compact", "db.t", "--rewrite-all", "--no-starting-sequence-number"),
        ),
        prepare=damaged,
        keeps=True,
        versions=_WITH_DELETES,
    ),
    "statistics": Command(arguments=("stats", "db.t")),
    "partition statistics": Command(arguments=_PARTITIONS, table=_BY_PART),
    "create an empty table": Command(
        arguments=("create", "db.other", "id long", "--if-not-exists")
    ),
    "create a branch": Command(arguments=("ref", "db.t", "--branch-create", "audit")),
    "move a branch forward": Command(
        arguments=("ref", "db.t", "--fast-forward", "main", "--to", "audit"),
        first=(("ref", "db.t", "--branch-create", "audit"), _AUDIT),
    ),
    "drop a branch": Command(
        arguments=("ref", "db.t", "--drop", "audit"),
        first=(("ref", "db.t", "--branch-create", "audit"),),
        again=GONE,
    ),
    "alter": Command(arguments=("alter", "db.t", "--set", "owner=lake", "--sort-by", "id")),
    "cherry-pick": Command(
        arguments=("cherry-pick", "db.t", "audit"),
        first=(("ref", "db.t", "--branch-create", "audit"), _AUDIT, _INGEST),
        rows=_NEW,
        again=REFUSED,
    ),
    "add files": Command(arguments=_ADD, rows=_NEW, again=REFUSED),
    "add files, with run id": Command(arguments=(*_ADD, *_RUN), rows=_NEW),
    "publish": Command(
        arguments=_PUBLISH,
        rows=_NEW,
        first=(_STAGED, _INGEST),
        prepare=staged,
        again=REFUSED,
    ),
    "publish on the head": Command(
        arguments=_PUBLISH, first=(_STAGED,), prepare=staged, again=REFUSED
    ),
    "alter the columns": Command(
        arguments=("alter", "db.t", "--add-column", "more long", "--drop-column", "extra"),
        first=(("alter", "db.t", "--add-column", "extra string"),),
        again=GONE,
    ),
    "alter the partitioning and the version": Command(
        arguments=("alter", "db.t", "--partition-by", "part", "--format-version", "3"),
        versions=(1, 2),
    ),
    "tag": Command(arguments=("tag", "db.t", "kept", "--at", "{oldest}"), first=(_ONE_FILE,)),
    "move a tag": Command(
        arguments=("tag", "db.t", "kept", "--move"), first=(("tag", "db.t", "kept"), _ONE_FILE)
    ),
    "drop a tag": Command(
        arguments=("tag", "db.t", "--drop", "kept"), first=(("tag", "db.t", "kept"),), again=GONE
    ),
    "roll back": Command(arguments=("rollback", "db.t", "{oldest}"), leaves=False),
    "delete rows by position": Command(
        arguments=("delete", "db.t", "--where", "id > 1", "--deletes", "position"),
        versions=_WITH_DELETES,
    ),
    "delete rows by copying": Command(
        arguments=(*("delete", "db.t", "--where", "id > 1"), "--deletes", "copy-on-write", *_RUN),
        table=_BY_PART,
    ),
    "expire partitions": Command(
        arguments=(
            *("expire-partitions", "db.t", "--strategy", "update-time"),
            *("--older-than", "0s", "--unsafe-retention"),
        ),
        table=_BY_PART,
    ),
    "clean by an inventory": Command(
        arguments=(*_CLEAN, "--inventory", "{inventory}", "--delete"),
        prepare=listed_orphans,
        leaves=False,
    ),
    "restore what was cleaned": Command(
        arguments=("clean", "db.t", "--restore", "{run}"),
        prepare=removed_orphans,
        leaves=False,
    ),
    "purge what was cleaned": Command(
        arguments=("clean", "db.t", "--purge", "{run}"),
        prepare=removed_orphans,
        leaves=False,
    ),
    "clean": Command(arguments=(*_CLEAN, "--delete"), prepare=orphans, leaves=False),
    "clean to the trash": Command(arguments=(*_CLEAN, "--quarantine"), prepare=orphans),
    "replay": Command(arguments=_REPLAY, rows=_NEW, first=(_STAGE,)),
    "replay all staged": Command(
        arguments=_REPLAY_ALL,
        rows=_NEW,
        first=(_STAGE, ("ingest", "db.t", "{source}", "--stage", "--run-id", "run-2")),
    ),
    "replay all staged, with deletes": Command(
        arguments=_REPLAY_ALL,
        rows=_KEYED,
        first=(_STAGE, (*_UPSERT, "--deletes", "equality", "--stage", "--run-id", "run-2")),
        versions=_WITH_DELETES,
    ),
    "replay a checkpoint": Command(arguments=_CHECKPOINT, prepare=checkpoints),
}
