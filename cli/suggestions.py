"""Words for shell completion that depend on the catalog: tables, branches, tags, columns and catalogs.

A completion script runs ``_LAKE_COMPLETE=KIND lake WORD...`` with the words up to the cursor. Each line of the output
completes the last word. The words come from a cache, because a shell waits for them. Another process refreshes the
cache. It opens the catalog, and never Spark. Errors are silent: a shell would print them into the command line.

The user has not started a command yet, so the other process imports nothing from the working folder. In a folder that
is not trusted, it connects to no server that a file there chooses.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from lake.core.base.clock import SystemClock
from lake.core.base.locations import has_scheme, parse
from lake.core.base.trust.folders import trusted_folders

if TYPE_CHECKING:
    from lake.commands.defaults import Setting
    from lake.core.table.catalogs.catalog import Catalog
    from lake.core.transaction.session import Session

VARIABLE = "_LAKE_COMPLETE"
_CLOCK = SystemClock()
_OPTIONS = ("catalog", "warehouse", "catalog-type")
_TABLE = re.compile(r"[\w-]+(\.[\w-]+)+")
# A name with another character would need quotes, which depend on the shell.
_SAFE = re.compile(r"[\w.-]+")
# The part of the last word that is completed, in lists of columns and in filters.
_LAST_NAME = re.compile(r"[\w.-]*$")
_FRESH_SECONDS, _KEPT_SECONDS = 60.0, 86_400.0
_LONGEST_WAIT, _STEP = 0.8, 0.02
_LONGEST_REFRESH = 30
_MOST_WORDS, _MOST_BYTES = 5000, 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be completed.

    Args:
        kind: ``tables``, ``refs``, ``branches``, ``columns`` or ``catalogs``.
        given: the global options that choose the catalog, by name.
        table: the table on the command line; None if there is none before the last word.
        last: the word that is completed.
    """

    kind: str
    given: Mapping[str, str]
    table: str | None
    last: str

    @property
    def about(self) -> str | None:
        """The table that the words belong to; None if they belong to the catalog."""
        return self.table if self.kind in {"refs", "branches", "columns"} else None


def read_request(kind: str, words: Sequence[str]) -> Request:
    """Return what is to be completed after a command line's words without the program's name."""
    *before, last = words or [""]
    given: dict[str, str] = {}
    table = None
    values = iter(before)
    for word in values:
        name, assigned, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _OPTIONS:
            given[name] = value if assigned else next(values, "")
        elif table is None and _TABLE.fullmatch(word):
            table = word
    return Request(kind, given, table, last)


def suggest(kind: str, words: Sequence[str]) -> int:
    """Print the words that complete the last word; return the exit code 0."""
    with suppress(Exception):
        request = read_request(kind, words)
        lines = [f"{word}\n" for word in completed(request, _known(request, words))]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    return 0


def completed(request: Request, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the words that complete the last word of a command line.

    Args:
        request: what is to be completed.
        known: words by kind.
    """
    begin, end = "", request.last
    if request.kind == "columns":
        # Columns are listed with commas, or are part of a filter.
        end = found[0] if (found := _LAST_NAME.search(request.last)) else ""
        begin = request.last.removesuffix(end)
    elif request.kind == "tables" and request.table:
        return
    for word in known.get(request.kind, ()):
        if word.startswith(end) and _SAFE.fullmatch(word):
            yield begin + word


def _known(request: Request, words: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return words by kind from the cache; start a refresh if they are old, and wait if there are none."""
    path = _cache_file(request)
    known, age = _read(path)
    if known is not None and age < _FRESH_SECONDS:
        return known
    _start_refresh(request.kind, words, path)
    end = _CLOCK.monotonic() + _LONGEST_WAIT
    while known is None and _CLOCK.monotonic() < end:
        _CLOCK.sleep(_STEP)
        known, _ = _read(path)
    return known or {}


def _cache_file(request: Request) -> str:
    """Return the cache file of a catalog or a table. Its name contains a hash of what chooses the catalog."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("LAKE_")
        or re.search("^PYICEBERG_.*(URI|TYPE|WAREHOUSE|CATALOG|HOME)$", name)
    }
    about = [request.kind == "catalogs", request.about]
    chosen = [os.getcwd(), dict(request.given), sorted(environment.items()), *about]
    shared = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("LAKE_CACHE_DIR") or os.path.join(shared, "lake")
    name = sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:32]
    return os.path.join(folder, f"completion-{name}.json")


def _read(path: str) -> tuple[Mapping[str, Sequence[str]] | None, float]:
    """Return the words of a cache file and their age in seconds; None if there are none, or another user's."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            state = os.fstat(file.fileno())
            age = _age(state)
            if state.st_uid != os.geteuid() or age >= _KEPT_SECONDS:
                return None, 0.0
            return json.loads(file.read(_MOST_BYTES)), age
    except (OSError, ValueError):
        return None, 0.0


def _age(state: os.stat_result) -> float:
    """Return the seconds since a file was written."""
    return _CLOCK.now_ms() / 1000 - state.st_mtime


def _start_refresh(kind: str, words: Sequence[str], path: str) -> None:
    """Start a process that refreshes a cache file, unless one works on it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    pending = f"{path}.pending"
    with suppress(OSError):
        if _age(os.stat(pending)) > _LONGEST_REFRESH:
            os.unlink(pending)
    try:
        os.close(os.open(pending, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    subprocess.Popen(  # noqa: S603 - this program
        # The option keeps modules of the working folder out.
        [sys.executable, "-P", "-m", "lake.cli.suggestions", kind, *words],
        env={name: value for name, value in os.environ.items() if name != VARIABLE},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def refresh(kind: str, words: Sequence[str]) -> None:
    """Write the words of a catalog or a table to the cache; after an error none, so that it is not repeated soon."""
    request = read_request(kind, words)
    path = _cache_file(request)
    known: dict[str, list[str]] = {}
    try:
        with suppress(Exception):
            known = _looked_up(request)
    finally:
        _write(path, {name: sorted(set(found))[:_MOST_WORDS] for name, found in known.items()})
        with suppress(OSError):
            os.unlink(f"{path}.pending")


def _write(path: str, known: Mapping[str, Sequence[str]]) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # Only the user can read a temporary file, and what it is renamed to. One that is left after a
    # kill is removed by its age, as old words are.
    descriptor, made = tempfile.mkstemp(prefix="completion-", dir=folder)
    with open(descriptor, "w") as file:
        json.dump(known, file)
    os.replace(made, path)
    for entry in os.scandir(folder):
        if entry.name.startswith("completion-"):
            with suppress(OSError):
                if _age(entry.stat(follow_symlinks=False)) > _KEPT_SECONDS:
                    os.unlink(entry.path)


def _looked_up(request: Request) -> dict[str, list[str]]:
    from lake.commands.defaults import effective, settings_of  # noqa: PLC0415 - slow
    from lake.core.table.catalogs.configuration import read_configuration  # noqa: PLC0415
    from lake.core.transaction.session import open_session  # noqa: PLC0415

    if request.kind == "catalogs":
        return {"catalogs": list(read_configuration().catalogs)}
    found = effective(request.given)
    settings = settings_of(found, verbose=False)
    configuration = read_configuration(working_folder=settings.warehouse is None)
    in_folder = settings.warehouse is not None or not configuration.catalogs
    if not (_is_trusted(found["warehouse"]) if in_folder else not configuration.is_found):
        return {}
    session = open_session(settings)
    try:
        if request.about and in_folder and _is_elsewhere(session.catalog, request.about):
            return {}
        if request.about:
            return _words_of_table(session, request.about)
        return {"tables": list(_tables(session))}
    finally:
        session.close()


def _is_trusted(warehouse: Setting) -> bool:
    """Whether a warehouse may be opened before a command was started."""
    if not os.path.isabs(warehouse.source) or not has_scheme(warehouse.value):
        # An option, a variable, or a folder of this machine.
        return True
    return trusted_folders().covers(os.path.dirname(warehouse.source))


def _is_elsewhere(catalog: Catalog, table: str) -> bool:
    """Whether the catalog of a folder has an address of a server as the place of a table."""
    if not catalog.database or not os.path.exists(catalog.database):
        return False
    place = dict(catalog.metadata_locations()).get(table, "")
    return has_scheme(place) and not parse(place).is_local


def _words_of_table(session: Session, name: str) -> dict[str, list[str]]:
    table = session.table(name)
    refs = table.metadata.refs
    branches = [ref for ref, found in refs.items() if found.snapshot_ref_type == "branch"]
    columns = [field.name for field in table.schema.fields]
    return {"refs": list(refs), "branches": branches, "columns": columns}


def _tables(session: Session) -> Iterator[str]:
    from lake.core.table.catalogs.names import namespaces_of  # noqa: PLC0415 - slow

    for namespace in namespaces_of(session.catalog):
        # A namespace without tables is completed up to the name of a new table.
        yield from namespace.tables or [f"{namespace.name}."]


if __name__ == "__main__":
    import signal

    signal.alarm(_LONGEST_REFRESH)
    refresh(sys.argv[1], sys.argv[2:])
