"""Odd texts on the command line: names of tables, refs, columns and runs, filters, formats and times."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hostile.commands import Commands
from hostile.guard import WrongError
from hostile.places import CONTROLS
from hostile.tables import NAME, broken_table

_ODD = {
    "nothing": "",
    "a space": " ",
    "a dot": ".",
    "dots": "..",
    "dots up": "../../canary/a.parquet",
    "a slash": "/",
    "an absolute path": "/etc/passwd",
    "packed dots": "%2e%2e%2f%2e%2e",
    "back slashes": "..\\..\\x",
    "a dash": "-",
    "an option": "--yes",
    "an option with a value": "--older-than=0s",
    "NUL": "a\0b",
    "colours": "\x1b[31m\x1b[2Jx",
    "lines": "a\nb\r\nc",
    "a bell": "\x07\x08",
    "right to left": "\u202egnp",
    "no UTF-8": "\udc80x",
    "a surrogate": "\ud800",
    "quotes": "'\"`",
    "SQL": "x'; DROP TABLE iceberg_tables; --",
    "wildcards": "%_*?[a-",
    "markup": "[red]x[/][link=http://x]y",
    "braces": "{0}{x}%s%(x)s${HOME}",
    "a number": "5",
    "a great number": "9" * 5000,
    "a negative number": "-1",
    "NaN": "nan",
    "1e400": "1e400",
    "a digit of another script": "\u0663",
    "300 letters": "x" * 300,
    "100,000 letters": "x" * 100_000,
    "many dots": ".".join("x" * 2000),
    "brackets": "(" * 5000,
    "a time": "@9999-12-31T23:59:59",
    "a time before": "@0001-01-01",
    "a time beyond": "@99999-01-01",
    "a URL": "http://127.0.0.1:1/x",
    "a fragment": "x#y?z",
    "JSON": '{"a":[1]}',
}
# ODD is replaced by each of the texts; only one of a pair of texts is a table that exists.
_LINES = (
    *("scan ODD --plan", "scan TABLE --plan --where ODD", "scan TABLE --plan --snapshot ODD"),
    *("scan TABLE --plan --select ODD", "tables ODD", "show ODD", "inspect ODD files"),
    *("inspect TABLE ODD", "inspect TABLE files --where ODD", "inspect TABLE files --snapshot ODD"),
    *("inspect TABLE files --select ODD", "check ODD", "check TABLE --repair ODD"),
    *(
        "check TABLE --branch ODD",
        "snapshots ODD",
        "partitions ODD",
        "partitions TABLE --where ODD",
        "partitions TABLE --idle ODD",
    ),
    *("deletes ODD", "deletes TABLE --where ODD", "deletes TABLE --convert --max-files ODD"),
    *("ref ODD", "ref TABLE --tag ODD", "ref TABLE --branch-create ODD", "ref TABLE --drop ODD"),
    *("ref TABLE --fast-forward ODD --to main", "ref TABLE --fast-forward main --to ODD"),
    *("ref TABLE --tag x --at ODD", "ref TABLE --tag x --retain ODD", "tag ODD", "tag TABLE ODD"),
    *("tag TABLE x --at ODD", "tag TABLE x --retain ODD", "tag TABLE --drop ODD"),
    *(
        "tag TABLE --auto ODD",
        "tag TABLE --auto daily --zone ODD",
        "tag TABLE --auto daily --keep ODD",
    ),
    *("tag TABLE --auto daily --format ODD", "tag TABLE --auto daily --delay ODD"),
    *("rollback TABLE ODD", "rollback TABLE kept --branch ODD", "cherry-pick ODD main"),
    *("cherry-pick TABLE ODD", "cherry-pick TABLE main --branch ODD", "publish TABLE --wap-id ODD"),
    *(
        "publish ODD --wap-id x",
        "create ODD 'id long'",
        "create db.ODD 'id long'",
        "create ODD.x 'id long'",
    ),
    *("create db.new ODD", "create db.new 'ODD long'", "create db.new 'id ODD'"),
    *("create db.new 'id long' --partition-by ODD", "create db.new 'id long' --sort-by ODD"),
    *("create db.new 'id long' --key ODD", "create db.new 'id long' --property ODD"),
    *("create db.new 'id long' --property a=ODD", "create db.new --from ODD"),
    *(
        "create db.new 'id long' --format-version ODD",
        "create db.new 'id long' --partition-by bucket(ODD,id)",
    ),
    *(
        "alter ODD --add-column 'x long'",
        "alter TABLE --add-column ODD",
        "alter TABLE --add-column 'ODD long'",
    ),
    *("alter TABLE --set ODD", "alter TABLE --set a=ODD", "alter TABLE --set ODD=a"),
    *(
        "alter TABLE --drop-column ODD",
        "alter TABLE --rename-column ODD",
        "alter TABLE --rename-column id=ODD",
    ),
    *(
        "alter TABLE --partition-by ODD",
        "alter TABLE --sort-by ODD",
        "alter TABLE --format-version ODD",
    ),
    *("rename ODD db.new", "rename TABLE ODD", "rename TABLE db.ODD", "rename TABLE ODD.new"),
    *(
        "register ODD PLACE",
        "register db.new ODD",
        "register db.ODD PLACE",
        "register db.new ODD.metadata.json",
    ),
    *("register db.new /tmp/ODD/00001-x.metadata.json", "drop ODD", "drop ODD --purge --yes"),
    *(
        "drop db.ODD --purge --yes",
        "drop ODD.t --purge --yes",
        "add-files ODD SOURCE",
        "add-files TABLE ODD",
    ),
    *(
        "expire-partitions TABLE --older-than ODD --by part",
        "expire-partitions TABLE --older-than 1d --by ODD",
    ),
    *("expire-partitions TABLE --older-than 1d --by part --format ODD",),
    *("expire-partitions TABLE --older-than 1d --by part --format %YODD",),
    *("expire-partitions TABLE --older-than 1d --by part --max ODD", "expire ODD --older-than 1d"),
    *("expire-partitions TABLE --older-than 1d --strategy ODD", "expire TABLE --older-than ODD"),
    *(
        "expire TABLE --older-than 1d --retain-last ODD",
        "expire TABLE --snapshot-id ODD",
        "clean ODD",
    ),
    *("clean TABLE --restore ODD", "clean TABLE --purge ODD", "clean TABLE --purge-older-than ODD"),
    *("clean TABLE --older-than ODD", "clean TABLE --location ODD", "clean TABLE --exclude ODD"),
    *(
        "clean TABLE --equal-schemes ODD",
        "clean TABLE --equal-authorities ODD",
        "clean TABLE --max-share ODD",
    ),
    *("consumers ODD", "consumers TABLE --drop ODD", "stats ODD", "stats TABLE --select ODD"),
    *(
        "delete TABLE --where ODD --dry-run",
        "delete TABLE --where false --deletes ODD",
        "delete TABLE --where false --max-rows ODD",
        "delete TABLE --where false --branch ODD",
        "manifests ODD",
        "manifests TABLE --rewrite-all --sort-by ODD",
        "manifests TABLE --if ODD",
        "manifests TABLE --spec-id ODD",
        "alter TABLE --widen id=ODD",
    ),
    *("compact ODD", "compact TABLE --where ODD", "compact TABLE --target-size ODD", "replay ODD"),
    *("runs --log ODD", "runs ODD --log SOURCE", "runs --since ODD --log SOURCE"),
    *("runs --action ODD --log SOURCE", "runs --limit ODD --log SOURCE"),
)
_QUOTE = "'"


class Texts:
    """Each text in each place: the command fails with a typed error, or does what is right."""

    def __init__(self, folder: Path, name: str = "lake-v2") -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._outside = folder / "here"
        self._warehouse = self._table.warehouse
        self._before = self._look()
        self.count = len(_ODD) * len(_LINES)

    def _look(self) -> set[str]:
        """Return what is in the warehouse and beside it, except in the table."""
        found = set()
        for parent, folders, names in os.walk(self._warehouse.parent):
            if Path(parent) == self._table.root:
                folders.clear()
                continue
            found.update(os.path.join(parent, item) for item in (*folders, *names))
        return found

    def attempt(self, number: int) -> str:
        line = _LINES[number // len(_ODD)]
        what, text = list(_ODD.items())[number % len(_ODD)]
        arguments = [self._filled(part, text) for part in _split(line)]
        try:
            result = self._commands.line("--json", *arguments)
            self._judge(f"{what} in {line}", line, result.exit_code, result.stdout + result.stderr)
            return "right" if result.exit_code == 0 else "typed"
        finally:
            self._table.restore()
            for path in sorted(self._look() - self._before):
                shutil.rmtree(path, ignore_errors=True)
                if os.path.lexists(path):
                    os.unlink(path)

    def _filled(self, part: str, text: str) -> str:
        known = {
            "TABLE": NAME,
            "PLACE": self._table.pointer,
            "SOURCE": str(self._table.folder / "added.parquet"),
        }
        return known.get(part, part.replace("ODD", text))

    def _judge(self, what: str, line: str, code: int, output: str) -> None:
        if code not in {0, 2, 3, 4, 6, 7, 9}:
            raise WrongError(f"{what} ended with {code}: {output[-3000:]}")
        if bad := CONTROLS & set(output):
            raise WrongError(f"{what} printed {bad}: {output[:800]!r}")
        if self._table.canary_changed():
            raise WrongError(f"{what} changed the canary: {output[:800]}")
        gone = self._table.changes()[1]
        if gone:
            raise WrongError(f"{what} deleted {gone}: {output[:800]}")
        more = {path for path in self._look() - self._before if "catalog.db" not in path}
        outside = {path for path in more if not path.startswith(f"{self._warehouse}/")}
        if outside or (code and more):
            raise WrongError(f"{what} ended with {code} and made {more}: {output[:800]}")
        if code and self._table.has_moved:
            raise WrongError(f"{what} failed and changed the catalog: {output[:800]}")


def _split(line: str) -> Iterator[str]:
    """Yield the parts of a line; a text in quotes is one part."""
    for index, piece in enumerate(line.split(_QUOTE)):
        yield from [piece] if index % 2 else piece.split()
