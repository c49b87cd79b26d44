"""A cached archive of the classes that Spark loads, which shortens every start by seconds.

This is HotSpot's class data sharing: ``-XX:ArchiveClassesAtExit`` writes the archive at the end of a representative
run (`lake.core.engine.spark.build_class_archive`), ``-XX:SharedArchiveFile`` maps it. For a Java without an archive
of its own classes, that is created first (``-Xshare:dump``). With ``-Xshare:auto`` the JVM checks the file against
itself and the class path, and starts without it if they do not match.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lake.core.base.clock import Clock, SystemClock
from lake.core.engine.jvm.java import Java
from lake.core.io.storage.flock import locked

_CACHE = "LAKE_CACHE_DIR"
_MS_PER_DAY = 24 * 3600 * 1000
# Retry after a failure, because its cause may be fixed.
_RETRY_DAYS = 7
_UNUSED_DAYS = 90


def cache_folder() -> Path:
    """Return lake's cache folder: LAKE_CACHE_DIR, or a folder in the user's cache."""
    if chosen := os.environ.get(_CACHE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lake"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java with one class path and one set of options.

    Args:
        folder: the folder of archives, which only its owner may write to.
        key: a hash of everything that the archive depends on.
        needs_base: whether the Java lacks an archive of its own classes.
    """

    folder: Path
    key: str
    needs_base: bool

    @classmethod
    def of(cls, java: Java, class_path: Sequence[str], options: Sequence[str]) -> ClassArchive:
        """Return the archive for a command line."""
        parts = [str(java.home), java.build, *class_path, "", *options]
        key = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return cls(cache_folder(), f"spark-{key}", not java.has_class_archive)

    @property
    def path(self) -> Path:
        """The location of the archive."""
        return self.folder / f"{self.key}.jsa"

    @property
    def base(self) -> Path:
        """The location of the archive of Java's own classes."""
        return self.folder / f"{self.key}-base.jsa"

    @property
    def failure(self) -> Path:
        """The location of the file that marks a failed build."""
        return self.folder / f"{self.key}.failed"

    def options(self) -> list[str]:
        """Return the options to use it; empty if it does not exist or other users could have written it."""
        files = [self.base, self.path] if self.needs_base else [self.path]
        if not private(self.folder) or not all(path.is_file() for path in files):
            return []
        for path in files:
            os.utime(path)
        return [
            # Otherwise corruption on disk would crash the JVM at some later time.
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:+VerifySharedSpaces",
            f"-XX:SharedArchiveFile={':'.join(map(str, files))}",
        ]

    def discard(self) -> None:
        """Remove the archive, because the JVM did not start with it."""
        for path in (self.path, self.base):
            path.unlink(missing_ok=True)

    def build_in_background(self, java: Java, clock: Clock | None = None) -> None:
        """Start a detached process of low priority that builds the archive, unless it exists."""
        if self.options() or not self._worth_trying(clock or SystemClock()):
            return
        train = [
            sys.executable,
            "-P",
            "-m",
            "lake.core.engine.spark.build_class_archive",
            str(java.home),
        ]
        # The shell exits and leaves the process to init, so that no parent has to wait for it.
        subprocess.run(  # noqa: S603 - our own module
            ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *train],
            start_new_session=True,
            check=False,
            cwd="/",
            env={**os.environ, _CACHE: str(self.folder)},
        )

    def _worth_trying(self, clock: Clock) -> bool:
        if ":" in str(self.folder) or not self.folder.is_absolute():
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            failed_ms = int(self.failure.stat().st_mtime * 1000)
        except FileNotFoundError:
            return private(self.folder)
        except OSError:
            return False
        return private(self.folder) and clock.now_ms() - failed_ms > _RETRY_DAYS * _MS_PER_DAY


def private(folder: Path) -> bool:
    """Whether a folder exists and only this user can write to it, because archives are code."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


@contextmanager
def build_lock(archive: ClassArchive) -> Iterator[bool]:
    """Hold the lock to build an archive; yield False if another process holds it.

    Files of earlier attempts are removed.
    """
    descriptor = os.open(archive.folder / f"{archive.key}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with ExitStack() as held:
            try:
                held.enter_context(locked(descriptor, wait=False))
            except BlockingIOError:
                yield False
                return
            for path in archive.folder.glob(f"{archive.key}*.new"):
                path.unlink(missing_ok=True)
            yield True
    finally:
        os.close(descriptor)


def remove_unused(folder: Path, clock: Clock) -> None:
    """Delete archives that were not used for long, such as those of an uninstalled Java or PySpark."""
    for path in folder.glob("spark-*.jsa"):
        try:
            unused_ms = clock.now_ms() - int(path.stat().st_mtime * 1000)
            if unused_ms > _UNUSED_DAYS * _MS_PER_DAY:
                path.unlink()
        except FileNotFoundError:
            continue
