"""The tables that a fleet has copies of, each made once with its ills by a program that is not `lake`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

from support.fleet.copies import copy_table
from support.fleet.files import TRANSFORMS, File, FileWriter, keys_of, rows_of
from support.fleet.ills import Ill
from support.tables import flink_fixtures
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tables.metadata_edits import metadata_path

NAMESPACE = "fleet"
# What is worth an action on a local disk.
_FILES, _DELETES, _COMMITS, _SNAPSHOTS, _ORPHANS = 230, 250, 85, 30, 12
_UNMERGED = {"commit.manifest-merge.enabled": "false"}
_AT_ONCE = {"history.expire.max-snapshot-age-ms": "1"}
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "ts", TimestamptzType(), required=False),
    NestedField(4, "amount", DoubleType(), required=False),
)
_SPECS: dict[str, tuple[int, Transform[Any, Any]]] = {
    "identity": (2, IdentityTransform()),
    "day": (3, DayTransform()),
}
_MONTH_SECONDS = 30 * 86_400


@dataclass(frozen=True, kw_only=True)
class Mould:
    """A table to make, and what is wrong with it.

    Args:
        name: its name in the namespace `NAMESPACE`.
        writer: `java`, `spark`, `pyiceberg` or `flink`.
        make: makes it.
        ills: what is wrong with it.
        version: its format version.
        transform: how it is partitioned, a key of `TRANSFORMS`.
        properties: its properties.
        damage: damages a copy, whose metadata file is the argument; the mould stays whole.
        refs: names of branches and tags whose rows must stay.
    """

    name: str
    writer: str
    make: Callable[[Maker, Mould], Path]
    ills: Sequence[Ill] = ()
    version: int = 2
    transform: str = "none"
    properties: dict[str, str] = field(default_factory=dict)
    damage: Callable[[Path], None] | None = None
    refs: Sequence[str] = ()


class Maker:
    """Makes moulds in a warehouse that Java and PyIceberg share.

    Args:
        warehouse: an empty folder.
        java: the peer.
    """

    def __init__(self, warehouse: Path, java: Any) -> None:
        self.warehouse = warehouse
        self._java = java
        self._catalog = pyiceberg_catalog(warehouse)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)

    def created(self, mould: Mould) -> FileWriter:
        """Create the table by Spark's SQL; return what writes files for it."""
        properties = {"format-version": str(mould.version), **mould.properties}
        listed = ", ".join(f"'{name}'='{text}'" for name, text in properties.items())
        by = f"PARTITIONED BY ({TRANSFORMS[mould.transform]})" if mould.transform != "none" else ""
        self.sql(
            f"CREATE TABLE {{t}} (id BIGINT, part STRING, ts TIMESTAMP, amount DOUBLE) USING iceberg "
            f"{by} TBLPROPERTIES ({listed})",
            mould,
        )
        return FileWriter(self.warehouse / NAMESPACE / mould.name, mould.transform)

    def sql(self, statement: str, mould: Mould) -> list[dict[str, Any]]:
        """Run a statement in which ``{t}`` stands for the table."""
        name = f"{{c}}.{NAMESPACE}.{mould.name}"
        found: list[dict[str, Any]] = self._java.sql(self.warehouse, statement.replace("{t}", name))
        return found

    def commit(self, mould: Mould, *commits: Sequence[File]) -> None:
        """Commit files by Iceberg Java, a snapshot for each list of them."""
        requests = [[file.request() for file in files] for files in commits]
        self._java.commit(self.warehouse, f"{NAMESPACE}.{mould.name}", requests)

    def created_by_pyiceberg(self, mould: Mould) -> Any:
        """Create the table by PyIceberg."""
        chosen = _SPECS.get(mould.transform)
        fields = [PartitionField(chosen[0], 1000, chosen[1], "p")] if chosen else []
        properties = {"format-version": str(mould.version), **mould.properties}
        name = (NAMESPACE, mould.name)
        return self._catalog.create_table(
            name, _SCHEMA, partition_spec=PartitionSpec(*fields), properties=properties
        )

    def metadata_of(self, mould: Mould) -> Path:
        """Return the current metadata file."""
        location = self._catalog.load_table((NAMESPACE, mould.name)).metadata_location
        return Path("/" + location.removeprefix("file:").lstrip("/"))


def _small_files(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    files = [writer.data(number) for number in range(_FILES)]
    maker.commit(mould, files[: _FILES // 2], files[_FILES // 2 :])
    return maker.metadata_of(mould)


def _inserted(maker: Maker, mould: Mould) -> None:
    maker.sql(
        f"INSERT INTO {{t}} SELECT /*+ REPARTITION({_FILES}) */ id, 'a0', "
        f"timestamp'2026-03-01 05:00:00', id / 4 FROM range({_FILES * 20})",
        mould,
    )


def _small_files_by_spark(maker: Maker, mould: Mould) -> Path:
    maker.created(mould)
    _inserted(maker, mould)
    return maker.metadata_of(mould)


def _vectors_by_spark(maker: Maker, mould: Mould) -> Path:
    maker.created(mould)
    _inserted(maker, mould)
    maker.sql("DELETE FROM {t} WHERE id % 2 = 0", mould)
    return maker.metadata_of(mould)


def _position_deletes(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    file = writer.data(0, 1500)
    deletes = [writer.positions(file, [number * 5, number * 5 + 2]) for number in range(_DELETES)]
    maker.commit(mould, [file], *(deletes[at : at + 10] for at in range(0, _DELETES, 10)))
    return maker.metadata_of(mould)


def _equality_deletes(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    file, keys = writer.data(0, 1500), keys_of(0, 1500)
    deletes = [writer.keys([keys[number * 3]], file.partition) for number in range(_DELETES)]
    maker.commit(mould, [file], *(deletes[at : at + 10] for at in range(0, _DELETES, 10)))
    return maker.metadata_of(mould)


def _snapshots(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    # A sink that commits checkpoints without rows makes snapshots without files.
    files = [writer.data(0), writer.data(1)]
    maker.commit(mould, files[:1], *([()] * _SNAPSHOTS), files[1:])
    if mould.refs:
        maker.sql("ALTER TABLE {t} CREATE TAG keep", mould)
        maker.sql("ALTER TABLE {t} CREATE BRANCH audit", mould)
        maker.commit(mould, *([()] * _SNAPSHOTS), [writer.data(2)])
    return maker.metadata_of(mould)


def _manifests(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    maker.commit(mould, *([writer.data(number)] for number in range(_COMMITS)))
    return maker.metadata_of(mould)


def _old_spec(maker: Maker, mould: Mould) -> Path:
    _small_files(maker, mould)
    maker.sql("ALTER TABLE {t} ADD PARTITION FIELD months(ts)", mould)
    _insert_one(maker, mould)
    return maker.metadata_of(mould)


def _insert_one(maker: Maker, mould: Mould) -> None:
    maker.sql("INSERT INTO {t} VALUES (-1, 'b1', timestamp'2025-03-01 05:00:00', 1.5)", mould)


def _old_order(maker: Maker, mould: Mould) -> Path:
    _small_files(maker, mould)
    maker.sql("ALTER TABLE {t} WRITE ORDERED BY part, id", mould)
    _insert_one(maker, mould)
    return maker.metadata_of(mould)


def _statistics(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    maker.commit(mould, [writer.data(0)])
    name = f"{NAMESPACE}.{mould.name}"
    maker.sql(f"CALL {{c}}.system.compute_table_stats(table => '{name}')", mould)
    maker.commit(mould, [writer.data(1), writer.data(2)])
    return maker.metadata_of(mould)


def _tidy(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    maker.commit(mould, [writer.data(number) for number in range(3)])
    return maker.metadata_of(mould)


def _orphans(maker: Maker, mould: Mould) -> Path:
    writer = maker.created(mould)
    maker.commit(mould, [writer.data(number) for number in range(2 * _ORPHANS)])
    then = time.time() - _MONTH_SECONDS
    for number in range(_ORPHANS):
        path = Path(writer.data(number + 2 * _ORPHANS).path)
        lost = path.rename(path.with_name(f"lost-{number}.parquet"))
        os.utime(lost, (then, then))
    return maker.metadata_of(mould)


def _empty(maker: Maker, mould: Mould) -> Path:
    maker.created(mould)
    return maker.metadata_of(mould)


def _empty_by_pyiceberg(maker: Maker, mould: Mould) -> Path:
    maker.created_by_pyiceberg(mould)
    return maker.metadata_of(mould)


def _added_by_pyiceberg(maker: Maker, mould: Mould) -> Path:
    table = maker.created_by_pyiceberg(mould)
    folder = maker.warehouse / NAMESPACE / mould.name
    writer = FileWriter(folder, has_ids=False)
    table.add_files([f"file://{writer.data(number).path}" for number in range(_FILES)])
    if Ill.OLD_SPEC in mould.ills:
        with table.update_spec() as spec:
            spec.add_identity("part")
        table.append(rows_of(keys_of(_FILES), _FILES % 3))
    return maker.metadata_of(mould)


def _appended_by_pyiceberg(maker: Maker, mould: Mould) -> Path:
    table = maker.created_by_pyiceberg(mould)
    count = _COMMITS if Ill.MANIFESTS in mould.ills else _SNAPSHOTS
    for number in range(count):
        table.append(rows_of(keys_of(number), number % 3))
    if mould.refs:
        first = table.metadata.snapshots[3].snapshot_id
        table.manage_snapshots().create_tag(first, "keep").commit()
    return maker.metadata_of(mould)


def _of_flink(fixture: str) -> Callable[[Maker, Mould], Path]:
    def make(maker: Maker, mould: Mould) -> Path:
        with flink_fixtures.shared(fixture) as found:
            target = maker.warehouse / NAMESPACE / mould.name
            # The hint of a Hadoop catalog may be older than the newest version.
            versions = metadata_path(found.warehouse).parent.glob("v*.metadata.json")
            newest = max(
                versions, key=lambda path: int(path.name[1:].partition(".")[0]), default=None
            )
            copied = copy_table(newest or metadata_path(found.warehouse), target)
            # Else it would still be a table of a Hadoop catalog.
            (copied.parent / "version-hint.text").unlink(missing_ok=True)
            return copied

    return make


def _without_a_file(metadata_file: Path) -> None:
    min((metadata_file.parent.parent / "data").rglob("*.parquet")).unlink()


def _cut_metadata(metadata_file: Path) -> None:
    os.truncate(metadata_file, 700)


def _cut(pattern: str) -> Callable[[Path], None]:
    def damage(metadata_file: Path) -> None:
        for path in metadata_file.parent.glob(pattern):
            os.truncate(path, 1000)

    return damage


def _without_lists(metadata_file: Path) -> None:
    for path in metadata_file.parent.glob("snap-*.avro"):
        path.unlink()


def _moulds() -> Iterator[Mould]:
    for version, transform in ((1, "none"), (2, "bucket"), (3, "hour"), (2, "truncate")):
        yield Mould(
            name=f"small_files_{transform}",
            writer="java",
            make=_small_files,
            ills=[Ill.SMALL_FILES],
            version=version,
            transform=transform,
        )
    yield Mould(
        name="small_files_of_spark",
        writer="spark",
        make=_small_files_by_spark,
        ills=[Ill.SMALL_FILES],
        transform="day",
        properties={"write.distribution-mode": "none"},
    )
    merged = {"write.delete.mode": "merge-on-read", "write.distribution-mode": "none"}
    yield Mould(
        name="vectors",
        writer="spark",
        make=_vectors_by_spark,
        ills=[Ill.VECTORS, Ill.SMALL_FILES],
        version=3,
        transform="month",
        properties=merged,
    )
    for transform in ("none", "identity"):
        yield Mould(
            name=f"position_deletes_{transform}",
            writer="java",
            make=_position_deletes,
            ills=[Ill.POSITION_DELETES],
            transform=transform,
        )
    for version, transform in ((2, "none"), (2, "year"), (3, "day")):
        yield Mould(
            name=f"equality_deletes_{transform}",
            writer="java",
            make=_equality_deletes,
            ills=[Ill.EQUALITY_DELETES],
            version=version,
            transform=transform,
        )
    for version, transform in ((1, "day"), (3, "bucket")):
        yield Mould(
            name=f"snapshots_{transform}",
            writer="java",
            make=_snapshots,
            ills=[Ill.SNAPSHOTS],
            version=version,
            transform=transform,
            properties=_AT_ONCE,
        )
    yield Mould(
        name="held_snapshots",
        writer="java",
        make=_snapshots,
        ills=[Ill.SNAPSHOTS, Ill.HELD],
        transform="hour",
        properties=_AT_ONCE,
        refs=["keep", "audit"],
    )
    for version, transform in ((2, "month"), (1, "identity")):
        yield Mould(
            name=f"manifests_{transform}",
            writer="java",
            make=_manifests,
            ills=[Ill.MANIFESTS],
            version=version,
            transform=transform,
            properties=_UNMERGED,
        )
    yield Mould(
        name="old_spec", writer="java", make=_old_spec, ills=[Ill.OLD_SPEC, Ill.SMALL_FILES]
    )
    yield Mould(
        name="old_order",
        writer="java",
        make=_old_order,
        ills=[Ill.OLD_ORDER, Ill.SMALL_FILES],
        version=3,
    )
    yield Mould(
        name="statistics", writer="java", make=_statistics, ills=[Ill.STATISTICS], transform="year"
    )
    yield Mould(name="orphans", writer="java", make=_orphans, ills=[Ill.ORPHANS])
    for number, transform in enumerate(TRANSFORMS):
        yield Mould(
            name=f"tidy_{transform}",
            writer="java",
            make=_tidy,
            version=1 + number % 3,
            transform=transform,
        )
    yield Mould(name="empty", writer="java", make=_empty, version=3, transform="truncate")
    yield Mould(name="empty_of_pyiceberg", writer="pyiceberg", make=_empty_by_pyiceberg)
    for version, ills in ((1, [Ill.SMALL_FILES]), (2, [Ill.SMALL_FILES, Ill.OLD_SPEC])):
        yield Mould(
            name=f"added_v{version}",
            writer="pyiceberg",
            make=_added_by_pyiceberg,
            ills=ills,
            version=version,
        )
    yield Mould(
        name="many_appends",
        writer="pyiceberg",
        make=_appended_by_pyiceberg,
        ills=[Ill.MANIFESTS],
        transform="identity",
    )
    yield Mould(
        name="old_appends",
        writer="pyiceberg",
        make=_appended_by_pyiceberg,
        ills=[Ill.SNAPSHOTS, Ill.HELD],
        transform="day",
        properties=_AT_ONCE,
        refs=["keep"],
    )
    for fixture, version in (("c-upsert", 2), ("c2-upsert-part", 2), ("c3-upsert-v3", 3)):
        yield Mould(
            name=f"flink_{fixture}".replace("-", "_"),
            writer="flink",
            make=_of_flink(fixture),
            ills=[Ill.FEW_EQUALITY_DELETES, Ill.PENDING],
            version=version,
        )
    for fixture, version, ills in (
        ("a2-append-fv1", 1, []),
        ("l-spec-evolved", 2, [Ill.PENDING]),
        ("m-other-writer", 2, [Ill.PENDING]),
        ("b-append-pending", 2, [Ill.PENDING]),
        ("b2-append-pending", 2, [Ill.PENDING]),
        ("f2-overwrite-pending", 2, [Ill.PENDING]),
    ):
        yield Mould(
            name=f"flink_{fixture}".replace("-", "_"),
            writer="flink",
            make=_of_flink(fixture),
            version=version,
            ills=ills,
        )
    yield from _damaged()


def _damaged() -> Iterator[Mould]:
    """Yield tables that maintenance cannot mend."""
    kinds = {
        "missing_file": (_small_files, Ill.MISSING_FILE, _without_a_file),
        "cut_metadata": (_tidy, Ill.UNREADABLE, _cut_metadata),
        "cut_manifest": (_tidy, Ill.UNREADABLE, _cut("*-m*.avro")),
        "missing_list": (_tidy, Ill.UNREADABLE, _without_lists),
    }
    for name, (make, ill, damage) in kinds.items():
        yield Mould(name=name, writer="java", make=make, ills=[ill], damage=damage)


MOULDS: Sequence[Mould] = tuple(_moulds())
