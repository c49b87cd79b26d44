"""Drops, purges, renames and registrations of a world's table, and what they leave of it."""

from __future__ import annotations

from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.definition.facts import DropFacts
from world.model import Operation, adding
from world.reference import missing
from world.simulation import TABLE, World

_MOVED = "db.moved"


def drop(world: World) -> object:
    """Drop the table; its files stay."""
    return world.step(Operation("drop", enters=True), "drop")


def purge(world: World) -> object:
    """Drop the table and delete its files: all of them, if nothing was committed since they were listed."""
    operation = Operation("purge", enters=True, purges=True)
    done = world.step(operation, "drop", "--purge", "--yes")
    if isinstance(done, Outcome) and done.status is Status.DONE and done.result:
        if DropFacts.of(done.plan).metadata_location == world.location:
            metadata = world.metadata
            files: dict[str, int | None] = {world.location: None}
            files |= {entry.metadata_file: None for entry in metadata.metadata_log}
            for snapshot in metadata.snapshots:
                files |= world.reference.contents(metadata, snapshot).files
            left = files.keys() - {line.removesuffix(" is gone") for line in missing(files)}
            own = [path for path in left if "/elsewhere/" not in path]
            assert not own, f"a purge left {own[:3]}"
        else:
            world.counts["purge: changed meanwhile"] += 1
    return done


def rename(world: World) -> object:
    """Give the table another name."""
    return world.step(Operation("rename", enters=True), "rename", _MOVED)


def register_again(world: World) -> object:
    """Drop the table and register it with its newest metadata."""
    drop(world)
    return register(world)


def register(world: World) -> object:
    """Register the table with its newest metadata."""
    return world.step(Operation("register", enters=True), "register", world.location)


def replace(world: World) -> object:
    """Drop the table, and let a load create another one with its name in its folder."""
    drop(world)
    rows = world.new_rows([200, 201], "x")
    operation = Operation("create another", adding(rows), enters=True)
    return world.step(operation, "ingest", world.source(rows), "--create")


def create(world: World) -> object:
    """Create an empty table with the name of the table."""
    columns = ("id long", "part string", "value long")
    return world.step(Operation("create empty", enters=True), "create", *columns)


def is_there(world: World) -> bool:
    """Whether the table has its name."""
    return TABLE in world.names


def bring_back(world: World) -> None:
    """Check what others have left of the table; unless it was purged, bring it back under its name."""
    names = world.names
    assert len(names) <= 1, f"the table has two names: {names}"
    for name, metadata in world.catalog.entries().items():
        for snapshot in metadata.snapshots:
            lost = missing(world.reference.contents(metadata, snapshot).files)
            assert not lost, f"{name} lacks {lost[:3]}"
    if world.purged:
        assert not names, "the files of a table that exists were purged"
        return
    if names != [TABLE]:
        if world.catalog.current(TABLE) is not None:
            assert isinstance(drop(world), Outcome)
        name = next(iter(names), TABLE)
        if names:
            operation = Operation("rename back", enters=True)
            with world.operation(operation):
                world.catalog.rename_table(name, TABLE)
        else:
            done = register(world)
            assert not isinstance(done, LakeError), repr(done)
    world.check_all()
