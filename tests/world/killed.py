"""The command lines that are killed at each of their calls, and the results of a second and a third run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.tables.replay_plans import take_checkpoint, write_manifest

from lake.core.catalogs import pyiceberg_patches
from lake.core.catalogs.catalog import Table
from lake.core.catalogs.selection import open_catalog
from lake.core.flink.state import FLINK_SINK
from lake.core.session import Session
from lake.core.settings import Settings
from world.foreign import data_files

NOTHING, SAME, ONCE, GONE = "nothing", "same", "once", "gone"
_BY_PART = ("--partition-by", "part")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line.

    Args:
        arguments: after the catalog; ``{source}`` represents a file of the rows, ``{evolving}`` one with
            another column, ``{oldest}`` the first snapshot, ``{checkpoint}`` a folder.
        rows: the rows that it loads.
        leaves: whether a killed run may leave files that no snapshot references.
        first: command lines that are run before it.
        prepare: a function that is called before it, with the warehouse and the catalog's type.
        then: a command line that is run at the end; the rows after it must agree too.
        again: the result of a run after a complete one: ``nothing``; the ``same`` rows; it must be run ``once`` only,
            because a second run cannot detect the first; or it reports what is ``gone``.
        versions: the table's format versions.
        table: how the table is created; None if the command creates it.
    """

    arguments: Sequence[str]
    rows: Sequence[Mapping[str, Any]] = ()
    leaves: bool = True
    first: Sequence[Sequence[str]] = ()
    prepare: Callable[[Path, str], None] | None = None
    then: Sequence[str] = ()
    again: str = NOTHING
    versions: Sequence[int] = (1, 2, 3)
    table: Sequence[str] | None = ()


def rows(*ids: int, value: int, **more: Any) -> list[dict[str, Any]]:
    """Return a row for each id."""
    return [{"id": one, "part": "x" if one % 2 else "y", "value": value, **more} for one in ids]


JOB = "a" * 32
_RUN = ("--run-id", "run-1")
_INGEST = ("ingest", "db.t", "{source}")
_UPSERT = (*_INGEST, "--upsert", "--key", "id")
_CHANGES = (*_INGEST, "--changes-column", "op", "--key", "id", "--changes-mode")
_STAGE = (*_INGEST, "--stage", *_RUN)
_REPLAY = ("replay", "db.t", "--job", "run-1", "--completed", "1")
_CHECKPOINT = ("replay", "db.t", "--checkpoint", "{checkpoint}", "--quiet-time", "0s")
_COMPACT = ("compact", "db.t", "--min-input-files", "2", "--delete-file-threshold", "1")
_EXPIRE = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
_EVOLVE = ("ingest", "db.t", "{evolving}", "--evolve")
_ONE_FILE = ("compact", "db.t", "--rewrite-all")
_NEW = rows(50, 51, 52, value=9)
_KEYED = rows(1, 2, 53, value=9)
_UPSERTED = [*rows(1, 54, value=9, op="+I"), *rows(2, 3, value=9, op="-D")]
_RETRACTED = [
    *rows(54, 55, value=9, op="+I"),
    *rows(1, value=0, op="-U"),
    *rows(1, value=9, op="+U"),
    *rows(8, value=2, op="-D"),
]
_WITH_DELETES = (2, 3)


def checkpoints(warehouse: Path, kind: str) -> None:
    """Leave the files of a Flink job that died after its third checkpoint, without any commit."""
    pyiceberg_patches.apply()
    settings = Settings(warehouse=str(warehouse), catalog_type=kind)
    table = Session(settings=settings, catalog=open_catalog(settings)).table("db.t")
    taken = {number: rows(60 + number, value=number) for number in (1, 2, 3)}
    leave_checkpoint(table, warehouse / "checkpoint", taken)


def leave_checkpoint(
    table: Table, folder: Path, taken: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """Leave a Flink job's last checkpoint, with uncommitted rows of the given checkpoints."""
    named = {}
    for number, loaded in taken.items():
        files = data_files(table, loaded)
        named[number] = [(write_manifest(table, files, checkpoint_id=number, counter=number), 0)]
    folder.mkdir()
    take_checkpoint(folder, FLINK_SINK, named)


def _commands() -> dict[str, Command]:
    ways = {
        "append": Command(arguments=_INGEST, rows=_NEW, again=ONCE),
        "overwrite": Command(arguments=(*_INGEST, "--overwrite"), rows=_NEW, again=SAME),
        "overwrite where": Command(
            arguments=(*_INGEST, "--overwrite-where", "id < 4"),
            rows=rows(1, 2, value=9),
            again=SAME,
        ),
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
        "upserted changes": Command(
            arguments=(*_CHANGES, "upsert"), rows=_UPSERTED, again=SAME, versions=_WITH_DELETES
        ),
        "retracted changes": Command(
            arguments=(*_CHANGES, "retract"), rows=_RETRACTED, again=ONCE, versions=_WITH_DELETES
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


COMMANDS: Mapping[str, Command] = {
    **_commands(),
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
    "replay": Command(arguments=_REPLAY, rows=_NEW, first=(_STAGE,)),
    "replay a checkpoint": Command(arguments=_CHECKPOINT, prepare=checkpoints),
}
