"""Odd environments of a process: variables, locales, folders and standard streams, several at a time, by seed."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hostile.guard import WrongError
from hostile.places import CONTROLS
from hostile.tables import NAME, broken_table

_SECRET = "hush-hush-7391"
_SECONDS = 120
_BYTES = os.fsdecode(b"\xff\xfe")
_COLOURS = "\x1b[31m\x1b[2J"
_LONG = "x" * 5000
_ANY = ("", " ", "0", "-1", "no such", _BYTES, _COLOURS, _LONG, "a\nb", "/dev/null", "/dev/full")
# FILE, FOLDER, CLOSED and FIFO are places in the kind's folder.
_PLACES = (*_ANY, ".", "..", "~", "relative", "/nowhere/at/all", "/proc/1", "FILE", "FOLDER")
_PLACES += ("CLOSED", "FIFO", "FILE/below", "LOOP")
_WHOLE = ("", "0", "1", "-1", "2", "abc", "1e9", "1000000000", "9" * 400, "\u0665", " 5 ")
_LOCALES = ("C", "POSIX", "C.UTF-8", "en_US.ISO-8859-1", "tr_TR.UTF-8", "xx_YY", "", _BYTES, _LONG)
_FLAGS = ("", "0", "1", "x", "true")
VARIABLES: Mapping[str, tuple[str | None, ...]] = {
    **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), (None, *_PLACES)),
    **dict.fromkeys(("TMPDIR", "TMP", "TEMP", "LAKE_CACHE_DIR"), (None, *_PLACES)),
    **dict.fromkeys(("PYICEBERG_HOME", "TZDIR", "PWD", "OLDPWD"), _PLACES),
    **dict.fromkeys(("SPARK_HOME", "SPARK_CONF_DIR", "JAVA_HOME", "SPARK_LOCAL_DIRS"), _PLACES),
    **dict.fromkeys(("AWS_CONFIG_FILE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"), _PLACES),
    **dict.fromkeys(("LANG", "LC_ALL", "LC_CTYPE", "LC_NUMERIC", "LC_TIME"), _LOCALES),
    **dict.fromkeys(("COLUMNS", "LINES", "PYICEBERG_MAX_WORKERS"), _WHOLE),
    **dict.fromkeys(("OMP_NUM_THREADS", "ARROW_IO_THREADS", "MIMALLOC_PURGE_DELAY"), _WHOLE),
    **dict.fromkeys(("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"), _FLAGS),
    **dict.fromkeys(("PYTHONDEVMODE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"), _FLAGS),
    **dict.fromkeys(("PYICEBERG_LEGACY_CURRENT_SNAPSHOT_ID", "SPARK_REMOTE"), (*_FLAGS, *_ANY)),
    "TERM": ("", "dumb", "xterm", "no such", _LONG, _BYTES),
    "TZ": (*_ANY, "UTC+99", ":bad", "/etc/passwd", "../../etc/passwd", "Pacific/Kiritimati", "<>5"),
    "PATH": (None, "", "/nowhere", _BYTES),
    "PYTHONOPTIMIZE": ("", "1", "2"),
    "PYTHONWARNINGS": ("error", "default", "ignore"),
    "PYTHONIOENCODING": ("ascii", "ascii:strict", "latin-1", "utf-8:surrogateescape"),
    "PYTHONUTF8": ("0", "1"),
    "PYTHONCOERCECLOCALE": ("0",),
    "PYTHONHASHSEED": ("0", "1", "4294967295"),
    "PYTHONINTMAXSTRDIGITS": ("0", "640"),
    "PYTHONTZPATH": ("", "/nowhere"),
    "ARROW_DEFAULT_MEMORY_POOL": ("system", "no such", ""),
    "LAKE_CATALOG": _ANY,
    "LAKE_WAREHOUSE": _PLACES,
    "PYICEBERG_DEFAULT_CATALOG": _ANY,
    "PYICEBERG_CATALOG": _ANY,
    "PYICEBERG_CATALOG__X": _ANY,
    "PYICEBERG_CATALOG__": _ANY,
    "PYICEBERG_": _ANY,
    "PYICEBERG_CATALOG__X__URI": (*_ANY, f"postgresql://me:{_SECRET}@127.0.0.1:1/x"),
    "PYICEBERG_CATALOG__X__TYPE": (*_ANY, "sql", "rest", "hadoop"),
    "PYICEBERG_CATALOG__X__PY_IO_IMPL": ("os.system", *_ANY),
    "PYICEBERG_CATALOG__X__S3__SECRET_ACCESS_KEY": (_SECRET, ""),
    f"PYICEBERG_CATALOG__{_COLOURS}__URI": _ANY,
    "AWS_REGION": _ANY,
    "AWS_PROFILE": _ANY,
    "AWS_ENDPOINT_URL": _ANY,
    "AWS_SECRET_ACCESS_KEY": (_SECRET, "", _BYTES),
    "MY_PASSWORD": (_SECRET, NAME, "", _BYTES, "e"),
    "http_proxy": (*_ANY, f"http://me:{_SECRET}@[::", "http://127.0.0.1:1"),
    f"ODD{_COLOURS}": ("x",),
    _BYTES: (_BYTES,),
    "LARGE": ("x" * 100_000,),
}
_CONFIGURATIONS = {
    "tags": b"catalog:\n  x: !!python/object/apply:os.system ['touch pwned']\n",
    "a bomb": b"a: &a [x,x]\nb: &b [*a,*a]\ncatalog:\n  x:\n    uri: *b\n",
    "no UTF-8": b"catalog:\n  x\xff:\n    uri: a\xfe\n",
    "NUL": b"catalog:\n  x:\n    uri: a\0b\n",
    "nothing": b"",
    "a list": b"- a\n- b\n",
    "a text": b"hello\n",
    "no catalogs": b"catalog: x\n",
    "deep": b"".join(b" " * depth + b"a:\n" for depth in range(600)),
    "UTF-16": "catalog:\n  x:\n    uri: y\n".encode("utf-16"),
    "a mark": b"\xef\xbb\xbfcatalog:\n  x:\n    uri: y\n",
    "tabs": b"catalog:\n\tx:\n\t\turi: y\n",
    "colours": b'catalog:\n  "\\e[31mx":\n    uri: y\n',
    "raw colours": b"catalog:\n  \x1b[31mx:\n    uri: y\n",
    "twice": f"catalog:\n  x:\n    uri: a\n  x:\n    credential: {_SECRET}\n".encode(),
    "a secret": f"catalog:\n  x:\n    type: no\n    credential: {_SECRET}\n".encode(),
    "no such default": b"default-catalog: no\n",
    "large": b"catalog:\n" + b"".join(b"  c%d:\n    uri: y\n" % number for number in range(300)),
}
_PLAN = "--json scan TABLE --plan"
LINES = (
    "--json scan TABLE",
    _PLAN,
    "--json ingest TABLE SOURCE --upsert --key id",
    "--json compact TABLE --rewrite-all --min-input-files 1",
    "--json expire TABLE --older-than 0s --unsafe-retention",
    "--json clean TABLE",
    "--json replay TABLE",
    "--json check TABLE --rows",
    "--json tables",
    "scan TABLE",
    "show TABLE",
    "ingest TABLE SOURCE",
    "tag TABLE x",
    "config",
    "--help",
    "ingest --help",
    "--version",
    "--catalog x tables",
    "--catalog x scan TABLE",
)
_WRITES = ("ingest ", "compact ", "expire ", "tag ")
_STREAMS = ("kept", "kept", "kept", "closed", "full", "left", "null")
_LIMITS = (None, None, None, None, (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_STACK, 2**18))
_CODES = {0, 2, 3, 6, 7, 9, 10}


class Environments:
    """Each command in a process of its own, whose environment is chosen by the number."""

    count = 10**9

    def __init__(self, folder: Path, name: str = "lake-v2") -> None:
        self._table = broken_table(folder, name)
        self._source = folder / "rows.csv"
        self._source.write_text("id,part,value\n1,odd,901\n99,odd,999\n")
        self._places = self._make_places(folder / "odd places")
        self._here = folder / "started here"

    def _make_places(self, folder: Path) -> dict[str, str]:
        places = {word: str(folder / word.lower()) for word in ("FILE", "FOLDER", "CLOSED", "FIFO")}
        places["LOOP"] = str(folder / "loop")
        folder.mkdir()
        Path(places["FILE"]).write_text("x")
        for word in ("FOLDER", "CLOSED"):
            Path(places[word]).mkdir()
        Path(places["CLOSED"]).chmod(0o000)
        os.mkfifo(places["FIFO"])
        os.symlink("loop", places["LOOP"])
        return places

    def attempt(self, number: int) -> str:
        """Run one command; raises WrongError."""
        chance = random.Random(f"environment {number}")
        line = chance.choice(LINES)
        variables = self._variables(chance)
        streams = {name: chance.choice(_STREAMS) for name in ("stdin", "stdout", "stderr")}
        limit = chance.choice(_LIMITS)
        shutil.rmtree(self._here, ignore_errors=True)
        self._here.mkdir()
        what = f"{line} with {_shown(variables)}, {streams} and {limit}"
        try:
            if chance.random() < 0.25:
                kind, content = chance.choice(list(_CONFIGURATIONS.items()))
                (self._here / ".pyiceberg.yaml").write_bytes(content)
                what += f" and {kind} in .pyiceberg.yaml"
            before = {path.name for path in self._here.iterdir()}
            code, out, errors = self._ended(what, line, variables, streams, limit)
            self._judge(what, line, code, out, errors)
            # Only these verbs make a catalog where a variable says that one is.
            after = {path.name for path in self._here.iterdir()} - before
            if after and "LAKE_WAREHOUSE" not in variables:
                raise WrongError(f"{what} left {after}")
            if code == 0 and line == _PLAN and streams["stdout"] == "kept":
                self._check_plan(what, out)
            return "right" if code == 0 else "typed"
        finally:
            self._table.restore()

    def _variables(self, chance: random.Random) -> dict[str, str | None]:
        names = chance.sample(list(VARIABLES), chance.choice((1, 1, 2, 3, 8)))
        return {name: self._placed(chance.choice(VARIABLES[name])) for name in names}

    def _placed(self, value: str | None) -> str | None:
        for word, place in self._places.items():
            if value and value.startswith(word):
                return value.replace(word, place)
        return value

    def _ended(
        self,
        what: str,
        line: str,
        variables: Mapping[str, str | None],
        streams: Mapping[str, str],
        limit: tuple[int, int] | None,
    ) -> tuple[int, str, str]:
        known = {"TABLE": self._table.name, "SOURCE": str(self._source)}
        words = [known.get(word, word) for word in line.split()]
        chosen = [] if "--catalog" in words else ["--warehouse", str(self._table.warehouse)]
        given = {"PATH": os.environ["PATH"], "HOME": str(self._here), **variables}
        with ExitStack() as stack:
            files: dict[str, Any] = {
                name: _stream(stack, kind, name) for name, kind in streams.items()
            }
            closed = [number for number, kind in enumerate(streams.values()) if kind == "closed"]
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "lake.cli", *chosen, *words],
                    check=False,
                    cwd=self._here,
                    env={name: value for name, value in given.items() if value is not None},
                    timeout=_SECONDS,
                    preexec_fn=_prepared(closed, limit),
                    **files,
                )
            except subprocess.TimeoutExpired as error:
                raise WrongError(f"{what} took more than {_SECONDS} s") from error
        # The encoding of the streams may be any that contains ASCII.
        return done.returncode, *(
            (data or b"").decode(errors="replace") for data in (done.stdout, done.stderr)
        )

    def _judge(self, what: str, line: str, code: int, out: str, errors: str) -> None:
        told = f"{what} ended with {code}: {out[:600]} {errors[-1500:]}"
        if code not in _CODES:
            raise WrongError(told)
        if "Traceback" in errors or "Traceback" in out or "defect" in out + errors:
            raise WrongError(told)
        if _SECRET in out + errors:
            raise WrongError(f"{told} shows a secret")
        if bad := CONTROLS & set(out + errors):
            raise WrongError(f"{told} printed {bad}")
        if self._table.canary_changed():
            raise WrongError(f"{told} changed the canary")
        may_write = code == 0 or "cannot write to standard output" in errors or not errors
        if self._table.has_moved and not (may_write and any(verb in line for verb in _WRITES)):
            raise WrongError(f"{told} changed the table")
        lost = self._table.truth.needed & self._table.changes()[1]
        if lost:
            raise WrongError(f"{told} deleted {lost}")

    def _check_plan(self, what: str, out: str) -> None:
        # A document is ASCII.
        found = json.loads(out)["plan"]
        if any(found[key] != count for key, count in self._table.truth.facts.items()):
            raise WrongError(f"{what} found {found}, not {self._table.truth.facts}")


def _shown(variables: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name!r}={value!r:.60}" for name, value in variables.items())


def _stream(stack: ExitStack, kind: str, name: str) -> Any:
    """Return what a standard stream is, for `subprocess`."""
    if kind == "full":
        return stack.enter_context(open("/dev/full", "r+b", buffering=0))
    if kind == "left" and name != "stdin":
        reader, writer = os.pipe()
        os.close(reader)
        return stack.enter_context(open(writer, "wb", buffering=0))
    if kind == "kept" and name != "stdin":
        return subprocess.PIPE
    return subprocess.DEVNULL


def _prepared(closed: list[int], limit: tuple[int, int] | None) -> Callable[[], None]:
    """Return what the new process does before it starts Python."""

    def prepare() -> None:
        if limit is not None:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
        for number in closed:
            os.close(number)

    return prepare


__all__ = ["LINES", "VARIABLES", "Environments"]
