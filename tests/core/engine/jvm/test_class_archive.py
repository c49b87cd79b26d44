"""Class archives: which file belongs to which Java, which users may write them, and which process makes them."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lake.core.base.clock import SystemClock
from lake.core.engine.jvm import class_archive as archives
from lake.core.engine.jvm.class_archive import (
    ClassArchive,
    build_lock,
    cache_folder,
    private,
    remove_unused,
)
from lake.core.engine.jvm.java import Java

DAY = 24 * 3600


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    return Java(home, 17, "17.0.15 Vendor")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("LAKE_CACHE_DIR", str(path))
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have made archives."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> None:
        commands.append(command)

    monkeypatch.setattr(archives.subprocess, "run", run)
    return commands


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/cache")
    assert cache_folder() == Path("/x/cache/lake")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "lake"


def test_whatever_an_archive_depends_on_changes_its_name(java: Java, folder: Path) -> None:
    others = [
        ClassArchive.of(java, ["/a/*"], ["-x"]),
        ClassArchive.of(java, ["/b/*"], ["-x"]),
        ClassArchive.of(java, ["/a/*"], ["-y"]),
        ClassArchive.of(java, ["/a/*", "-x"], []),
        ClassArchive.of(replace(java, build="17.0.16"), ["/a/*"], ["-x"]),
        ClassArchive.of(replace(java, home=java.home.parent), ["/a/*"], ["-x"]),
    ]

    assert len({archive.path for archive in others}) == len(others)
    assert ClassArchive.of(java, ["/a/*"], ["-x"]) == others[0]


def test_an_archive_is_used_when_all_of_it_is_there(java: Java, folder: Path) -> None:
    archive = replace(ClassArchive.of(java, ["/a/*"], []), needs_base=True)
    assert archive.options() == []
    archive.path.touch()
    assert archive.options() == []
    archive.base.touch()

    assert f"-XX:SharedArchiveFile={archive.base}:{archive.path}" in archive.options()


def test_an_archive_that_others_could_have_written_is_not_used(java: Java, folder: Path) -> None:
    archive = ClassArchive.of(java, ["/a/*"], [])
    archive.path.touch()
    assert archive.options()
    folder.chmod(0o770)

    assert archive.options() == []
    assert not private(folder)


def test_a_missing_archive_is_made_aside_in_a_private_folder(
    java: Java, folder: Path, made: list[list[str]]
) -> None:
    folder.rmdir()

    ClassArchive.of(java, ["/a/*"], []).build_in_background(java)

    assert made[0][-4:] == [
        "-P",
        "-m",
        "lake.core.engine.spark.build_class_archive",
        str(java.home),
    ]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_archive_that_is_there_is_not_made(
    java: Java, folder: Path, made: list[list[str]]
) -> None:
    archive = ClassArchive.of(java, ["/a/*"], [])
    archive.path.touch()

    archive.build_in_background(java)

    assert made == []


def test_after_a_failure_a_week_passes(java: Java, folder: Path, made: list[list[str]]) -> None:
    archive = ClassArchive.of(java, ["/a/*"], [])
    archive.failure.touch()
    archive.build_in_background(java)
    assert made == []
    os.utime(archive.failure, (time.time() - 8 * DAY,) * 2)

    archive.build_in_background(java)

    assert len(made) == 1


def test_where_nothing_can_be_written_nothing_is_made(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[list[str]]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAKE_CACHE_DIR", str(tmp_path / "file" / "cache"))

    ClassArchive.of(java, ["/a/*"], []).build_in_background(java)

    assert made == []


def test_what_makes_an_archive_is_not_waited_for(
    java: Java, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process is this fake interpreter, which would take ten minutes.
    fake = folder / "python"
    fake.write_text("#!/bin/sh\necho $$ > " + str(folder / "pid") + "\nexec sleep 600\n")
    fake.chmod(0o700)
    monkeypatch.setattr(archives.sys, "executable", str(fake))
    before = time.monotonic()

    ClassArchive.of(java, ["/a/*"], []).build_in_background(java)

    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        time.sleep(0.01)
    pid = int((folder / "pid").read_text())
    assert os.getsid(pid) != os.getsid(0)
    os.kill(pid, 9)
    assert time.monotonic() - before < 500


def test_two_processes_do_not_make_one_archive(java: Java, folder: Path) -> None:
    archive = ClassArchive.of(java, ["/a/*"], [])

    with build_lock(archive) as first, build_lock(archive) as second:
        assert (first, second) == (True, False)
    with build_lock(archive) as third:
        assert third


def test_what_a_killed_maker_left_is_removed(java: Java, folder: Path) -> None:
    archive = ClassArchive.of(java, ["/a/*"], [])
    archive.path.with_suffix(".new").touch()

    with build_lock(archive):
        assert not archive.path.with_suffix(".new").exists()


def test_only_archives_long_unused_are_removed(folder: Path) -> None:
    old, young, other = folder / "spark-a.jsa", folder / "spark-b.jsa", folder / "notes.jsa"
    for path in (old, young, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (time.time() - 100 * DAY,) * 2)

    remove_unused(folder, SystemClock())

    assert sorted(path.name for path in folder.iterdir()) == ["notes.jsa", "spark-b.jsa"]


def test_a_builder_with_a_broken_java_records_the_reason(folder: Path, tmp_path: Path) -> None:
    from lake.core.engine.spark import build_class_archive
    from lake.core.engine.spark.session import archive_for

    home = tmp_path / "broken"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()

    command = [
        build_class_archive.sys.executable,
        "-P",
        "-m",
        "lake.core.engine.spark.build_class_archive",
        str(home),
    ]
    subprocess.run(command, check=True, capture_output=True)

    (failure,) = folder.glob("*.failed")
    assert "no such luck" in failure.read_text()
    assert failure.name == archive_for(Java(home, 17, 'JAVA_VERSION="17.0.1"\n')).failure.name
