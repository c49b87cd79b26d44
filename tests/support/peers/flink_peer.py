"""A real Flink with Iceberg's sinks: the judge of checkpoints in tests.

One Flink runs in a process of its own and answers JSON lines (`flink/FlinkPeer.java`). It restores a job from a
checkpoint, lets the sink commit what is pending there, feeds it rows, takes checkpoints (which the sink commits)
and savepoints (which it does not: what they hold stays pending), and stops it. Needs a JDK (17 or newer) and
Maven, which fetches the jars of `flink/pom.xml` once.

    peer = FlinkPeer()
    peer.restore(fixture)
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.peers.java_peer import CACHE
from support.peers.peer_process import PeerProcess
from support.tables.flink_fixtures import FlinkFixture

_HERE = Path(__file__).parent / "flink"
_UID = "lab-sink"
# Flink's own way with the module system, as its start scripts have it.
_OPENED = ("java.lang", "java.lang.reflect", "java.nio", "java.util", "java.util.concurrent")

# Jobs of a few rows: the better of Java's two compilers takes longer than they do.
_SHORT_JOBS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that writes one table.

    Args:
        catalog: ``hadoop`` or ``jdbc``, of the warehouse (a path or ``file:`` URL).
        sink: ``v1`` (FlinkSink), ``v2`` (IcebergSink) or ``dynamic`` (DynamicIcebergSink).
        uid: the prefix or suffix of the operators' uids.
        mode: ``append``, ``upsert``, ``retract`` or ``overwrite``.
        checkpoints: a folder for the job's checkpoints.
        flink: further settings of Flink.
    """

    catalog: str
    warehouse: str
    table: str
    checkpoints: str
    sink: str = "v1"
    uid: str = _UID
    mode: str = "append"
    keys: tuple[str, ...] = ()
    branch: str = "main"
    parallelism: int = 1
    flink: dict[str, str] = field(default_factory=dict)


def classpath() -> str:
    """Return what the peer runs on, fetched by Maven and compiled on first use."""
    pom, source = _HERE / "pom.xml", _HERE / "FlinkPeer.java"
    key = hashlib.sha256(pom.read_bytes() + source.read_bytes()).hexdigest()[:16]
    folder = CACHE / f"flink-{key}"
    jars = folder / "jars"
    if not jars.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fetched = folder / f"jars-{os.getpid()}"
        _run(
            "mvn",
            "-q",
            "-B",
            "-f",
            pom,
            "dependency:build-classpath",
            f"-Dmdep.outputFile={fetched}",
        )
        _run("javac", "-nowarn", "-cp", fetched.read_text(), "-d", folder, source)
        fetched.rename(jars)
    return f"{folder}:{jars.read_text()}"


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


class FlinkPeer(PeerProcess):
    """The peer as a test sees it."""

    def __init__(self) -> None:
        """Start the process; it answers when its Flink is up."""
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        super().__init__(
            ["java", "-Xmx1g", *_SHORT_JOBS, *opened, "-cp", classpath(), "FlinkPeer"], "{"
        )

    def run(
        self, job: Job, *steps: tuple[str, ...], restore: Path | str | None = None
    ) -> dict[str, Any]:
        """Run a job through its steps and stop it; return its id (``job``) and what they made (``made``).

        Args:
            job: what to run.
            steps: ``("rows", parquet file)``, ``("checkpoint",)`` or ``("savepoint", folder, form)``, where the
                form is ``CANONICAL`` or ``NATIVE``.
            restore: a checkpoint or savepoint to start from.
        """
        request = {**vars(job), "steps": steps, "restore": str(restore) if restore else None}
        return self.ask(request)

    def restore(self, fixture: FlinkFixture, folder: Path) -> dict[str, Any]:
        """Restore the job that left a fixture from its newest checkpoint and let it commit; then stop it."""
        replay = fixture.truth["replay"]
        return self.run(job_of(fixture, folder), restore=fixture.root / replay["from_checkpoint"])


def job_of(fixture: FlinkFixture, folder: Path) -> Job:
    """Return the job that wrote a fixture, as far as restoring its sink needs."""
    arguments = fixture.truth["arguments"]
    stream = fixture.truth["replay"]["stream"]
    phase = next(item for item in arguments["phases"] if item.get("stream", "1") == stream)
    settings = {**arguments["common"], **phase}
    return Job(
        catalog=settings["catalog"],
        warehouse=f"{settings.get('scheme', '')}{fixture.warehouse}",
        table=settings["table"],
        sink=settings["sink"],
        uid=settings.get("uid", _UID),
        mode=settings.get("mode", "append"),
        keys=tuple(settings["keys"].split(",")) if "keys" in settings else (),
        checkpoints=str(folder),
    )
