"""Servers of the JVM, whose jars Maven fetches once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.peers.java_peer import CACHE


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    if not shutil.which("mvn"):
        return "Maven"
    return None if shutil.which("java") else "a JDK"


def class_path(name: str, pom: Path) -> str:
    """Return the class path of a server's POM; its jars are kept under a name and the POM's digest."""
    CACHE.mkdir(parents=True, exist_ok=True)
    known = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}.classpath"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (known.exists() and all(map(os.path.exists, known.read_text().split(":")))):
            command = ["mvn", "-q", "-B", "-f", pom, "dependency:build-classpath"]
            subprocess.run(
                [*command, f"-Dmdep.outputFile={known}"], check=True, cwd=CACHE, stdout=sys.stderr
            )
    return known.read_text().strip()
