"""What scripts rely on: options and defaults, JSON keys, statuses, exit codes, and names in tables.

`data/script_contract.json` is the recorded contract. New options and keys may be added to lake; whatever is recorded
must stay. A change of the record breaks scripts: record it again on purpose only (``python -m test_script_contract``
in ``tests``), and name the change in the release notes. The record has one line for each option, error, status, file
and key of a document, so that the change of one is a change of one line.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.cli.run_logs import compacted, failed, logged

from lake.cli.app import VERBS, load_verb, root_command
from lake.cli.render import Renderer, sentence
from lake.core.base import errors
from lake.core.base.outcome import Outcome, Status

RECORDED = Path(__file__).parent / "data" / "script_contract.json"
_ROWS = "id,day,name\n1,2026-01-01,a\n2,2026-01-02,b\n3,2026-01-02,c\n"
_CHANGES = "op,id,day,name\n+I,8,2026-01-02,x\n-D,1,2026-01-01,a\n"
_WIDER = "id,day,name,size\n4,2026-01-03,d,5\n"
# How many levels of a part have a line for each of their members.
_LEVELS = {"options": 2, "statuses": 1, "errors": 1, "documents": 3, "files": 1, "summaries": 2}
# What no sentence contains: Python's values, counts of zero, one of several, and names of fields.
_ZEROS = re.compile(r"\bTrue\b|\bFalse\b|\bNone\b|(?<![\d.])0 \w|[{}_]|(?<![\d.])1 \w+s\b")
# Parts of names that differ from run to run; the longest come first.
_VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"(?<![a-z.])[0-9a-f]{6,}(?![a-z])", "HEX"),
    (r"\d+", "N"),
)


def contract(folder: Path) -> dict[str, Any]:
    """Observe everything that the contract contains, by running commands in a folder."""
    lake = CommandLine(folder / "warehouse", engine="inline")
    documents, files = {}, set()
    with _own_home(folder.with_name(f"{folder.name}-home")):
        for name, document in _documents(lake, folder):
            documents[name] = document
            # Those of a staged run are there only until it is committed.
            files |= {_pattern(path.relative_to(folder)) for path in folder.rglob("*")}
    return {
        "options": {
            "": _options(root_command()),
            **{verb: _options(load_verb(verb)) for verb in VERBS},
        },
        "statuses": sorted(map(str, Status)),
        "errors": dict(sorted(_errors(errors.ReportedError))),
        "documents": documents,
        "files": sorted(files),
        "summaries": _summaries(folder / "warehouse"),
    }


@contextmanager
def _own_home(home: Path) -> Iterator[None]:
    """Work in a new folder that is also the user's home: what this user trusts is not part of the contract."""
    home.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patched.setenv(name, str(home))
        patched.chdir(home)
        yield


def _options(command: Any) -> dict[str, Any]:
    return {
        item.opts[0]: {
            "names": [*item.opts, *item.secondary_opts],
            "kind": item.param_type_name,
            "default": item.default if not callable(item.default) else "",
            "required": item.required,
            "several": item.multiple or item.nargs != 1,
            "flag": getattr(item, "is_flag", False),
        }
        for item in command.params
    }


def _errors(kind: type[errors.ReportedError]) -> Iterator[tuple[str, list[Any]]]:
    yield kind.__name__, [kind.exit_code, kind.kind, kind.status]
    for child in kind.__subclasses__():
        yield from _errors(child)


def _documents(lake: CommandLine, folder: Path) -> Iterator[tuple[str, Any]]:
    (folder / "rows.csv").write_text(_ROWS)
    (folder / "changes.csv").write_text(_CHANGES)
    (folder / "more.csv").write_text(_WIDER)
    (folder / "one.csv").write_text("id,day,name\n1,2026-01-01,z\n")
    (folder / "bad.csv").write_text("id,day,name\nx,2026-01-01,a\n")
    history = logged(
        folder / "runs.jsonl", *[failed()] * 3, compacted(after_s=3.0, action="deletes")
    )
    rows, changes = folder / "rows.csv", folder / "changes.csv"
    existing = folder / "existing.parquet"
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), existing)
    by_day = ("--partition-by", "day")
    upsert = ("--upsert", "--key", "id,day")
    partial = ("--merge", "partial-update", "--sequence", "id")
    log = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id,day")
    deletion = ("delete", "db.t", "--where", "id > 1", "--branch", "audit", "--run-id", "five")
    followed = ("scan", "db.t", "--follow", "--state", folder / "state", "--output", folder / "new")
    for arguments in (
        ("ingest", "db.t", rows, "--create", *by_day, "--dry-run"),
        ("ingest", "db.t", rows, "--create", *by_day, "--run-id", "one"),
        ("ingest", "db.t", rows, "--run-id", "one"),
        ("ingest", "db.t", rows),
        ("ingest", "db.t", rows, "--run-id", "two", "--stage"),
        ("ingest", "db.t", rows, "--run-id", "two"),
        ("ingest", "db.t", rows, "--run-id", "three", "--stage"),
        ("ingest", "db.t", "--discard", "three"),
        ("ingest", "db.t", rows, *upsert, "--repair-duplicates", "--dry-run"),
        ("ingest", "db.t", rows, *upsert, "--repair-duplicates"),
        ("ingest", "db.t", rows, *upsert, "--deletes", "position"),
        ("ingest", "db.t", rows, *upsert, *partial, "--null-overwrites", "name", "--dry-run"),
        ("ingest", "db.t", changes, *log, "--dry-run"),
        ("ingest", "db.t", changes, *log, "--local-merge", "64MB"),
        ("ingest", "db.t", changes, *log),
        ("ingest", "db.t", rows, "--replace-partitions"),
        ("ingest", "db.t", folder / "one.csv", "--overwrite-where", "id = 1"),
        ("ingest", "db.t", rows, "--overwrite"),
        ("ingest", "db.t", folder / "more.csv", "--evolve"),
        ("ingest", "db.is_{name}", rows, "--route", "name"),
        ("ingest", "db.is_{name}", rows, "--route", "name", "--create", "--dry-run"),
        ("ingest", "db.is_{name}", rows, "--route", "name", "--create"),
        ("scan", "db.t"),
        ("scan", "db.t", "--plan"),
        ("scan", "db.t", "--output", folder / "out.parquet"),
        ("scan", "db.t", "--from-snapshot", "main", "--inclusive", "--plan"),
        ("scan", "db.t", "--from-snapshot", "main", "--inclusive", "--changes"),
        ("scan", "db.t", "--follow", "--start", "latest", "--plan"),
        (*followed, "--once"),
        (*followed, "--status"),
        ("snapshots", "db.t"),
        ("tables",),
        ("catalogs",),
        ("health",),
        ("health", "db.t", "--explain"),
        ("maintain", "--dry-run", "--plan", folder / "plan.json", "--log", folder / "runs.jsonl"),
        ("apply", folder / "plan.json", "--log", folder / "runs.jsonl"),
        ("maintain", "--log", folder / "runs.jsonl"),
        ("show", "db.t"),
        ("inspect", "db.t", "refs"),
        ("inspect", "db.t", "files"),
        ("check", "db.t"),
        ("check", "db.t", "--rows"),
        ("check", "db.t", "--deep"),
        ("partitions", "db.t", "--idle", "1h"),
        ("deletes", "db.t"),
        ("deletes", "db.t", "--exact"),
        ("deletes", "db.t", "--rewrite", "--dry-run"),
        ("deletes", "db.t", "--rewrite"),
        ("deletes", "db.t", "--convert", "--dry-run"),
        ("deletes", "db.t", "--convert"),
        ("check", "db.t", "--repair", "missing-files", "--repair", "duplicate-files"),
        ("check", "db.t", "--repair", "totals", "--repair", "dangling-deletes"),
        ("check", "db.t", "--repair", "refs", "--repair", "S001", "--yes"),
        ("check", "db.t", "--repair", "M001"),
        ("create", "db.new", "id long not null", "--dry-run"),
        ("create", "db.new", "id long not null", "name string"),
        ("create", "db.new", "id long", "--if-not-exists"),
        ("alter", "db.new", "--add-column", "x int", "--dry-run"),
        ("alter", "db.new", "--add-column", "x int", "--sort-by", "id"),
        ("add-files", "db.new", existing, "--dry-run"),
        ("add-files", "db.new", existing),
        ("rename", "db.new", "db.newer", "--dry-run"),
        ("rename", "db.new", "db.newer"),
        ("register", "db.more", folder / "none.metadata.json"),
        ("drop", "db.newer", "--purge"),
        ("drop", "db.newer", "--purge", "--yes"),
        ("ref", "db.t", "--branch-create", "audit"),
        ("ingest", "db.t", folder / "one.csv", "--branch", "audit"),
        ("cherry-pick", "db.t", "audit", "--dry-run"),
        ("cherry-pick", "db.t", "audit"),
        ("publish", "db.t", "--wap-id", "none"),
        (*deletion, "--dry-run", "--count"),
        (*deletion, "--max-rows", "0"),
        deletion,
        deletion,
        ("ref", "db.t", "--drop", "audit", "--dry-run"),
        ("ref", "db.t", "--drop", "audit"),
        ("tag", "db.t", "a"),
        ("rollback", "db.t", "a"),
        ("tag", "db.t", "--drop", "a"),
        ("expire-partitions", "db.t", "--older-than", "2000-01-01", "--by", "day"),
        ("manifests", "db.t", "--rewrite-all", "--dry-run"),
        (
            "manifests",
            "db.t",
            "--rewrite-all",
            "--dry-run",
            "--if",
            "manifests >= 1 or overlap > 2",
        ),
        ("manifests", "db.t", "--rewrite-all"),
        ("stats", "db.t", "--dry-run"),
        ("stats", "db.t"),
        ("stats", "db.t", "--partitions", "--dry-run"),
        ("stats", "db.t", "--partitions"),
        ("stats", "db.t", "--partitions"),
        ("clean", "db.t"),
        ("clean", "db.t", "--delete"),
        ("consumers", "db.t"),
        ("runs", "db.t", "--log", history),
        ("compact", "db.t", "--dry-run", "--rewrite-all"),
        ("compact", "db.t", "--when", "files >= 1000 and age >= 1d"),
        ("compact", "db.t", "--rewrite-all", "--verify"),
        ("compact", "db.t", "--strategy", "sort", "--by", "id", "--rewrite-all"),
        ("compact", "db.t"),
        ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--dry-run"),
        ("expire", "db.t", "--older-than", "0s", "--unsafe-retention"),
        ("expire", "db.t"),
        ("replay", "db.t"),
        ("replay", "db.t", "--status"),
        ("ingest", "db.t", rows, "--run-id", "four", "--stage"),
        ("replay", "db.t", "--all-staged", "--dry-run"),
        ("replay", "db.t", "--all-staged"),
        ("ingest", "db.t", folder / "bad.csv"),
        ("ingest", "db.t", folder / "none.csv"),
        ("scan", "db.none"),
        ("scan", "db.t", "--snapshot", "7"),
        ("expire", "db.t", "--older-than", "soon"),
        ("config", "--trust"),
        ("config",),
    ):
        result = lake("--json", *arguments)
        named = " ".join(str(item).rpartition("/")[2] for item in arguments)
        yield named, {"exit": result.exit_code, "document": _shape(result.json())}


def _shape(value: Any) -> Any:
    """Return a document with its values replaced by their types; statuses and kinds stay."""
    if isinstance(value, Mapping):
        fixed = {"status", "kind", "command", "table", "branch"}
        return {key: item if key in fixed else _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        shapes = [_shape(item) for item in value]
        return [shape for number, shape in enumerate(shapes) if shape not in shapes[:number]]
    return type(value).__name__


def _pattern(path: Path) -> str:
    text = path.as_posix()
    for expression, name in _VARYING:
        text = re.sub(expression, name, text)
    return text


def _summaries(warehouse: Path) -> dict[str, list[str]]:
    """Return the keys of all snapshot summaries by operation, and of the table's properties."""
    keys: dict[str, set[str]] = {}
    for path in warehouse.rglob("*.metadata.json"):
        metadata = json.loads(path.read_text())
        keys.setdefault("properties", set()).update(metadata["properties"])
        for snapshot in metadata.get("snapshots", ()):
            summary = snapshot["summary"]
            keys.setdefault(summary["operation"], set()).update(summary)
    return {name: sorted(found) for name, found in sorted(keys.items())}


@pytest.fixture(scope="module")
def ended() -> list[Outcome]:
    """The outcomes of the commands of the contract."""
    return []


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, ended: list[Outcome]) -> dict[str, Any]:
    success = Renderer.success

    def noted(renderer: Renderer, outcome: Outcome, *rest: Any, **options: Any) -> None:
        ended.append(outcome)
        success(renderer, outcome, *rest, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Renderer, "success", noted)
        return contract(tmp_path_factory.mktemp("contract"))


@pytest.mark.parametrize("part", _LEVELS)
def test_scripts_find_what_they_relied_on(observed: dict[str, Any], part: str) -> None:
    recorded = json.loads(RECORDED.read_text())

    assert list(_missing(recorded[part], json.loads(json.dumps(observed[part], default=str)))) == []


def test_every_outcome_has_a_sentence_without_zeros(
    observed: dict[str, Any], ended: list[Outcome]
) -> None:
    done = [name for name, one in observed["documents"].items() if "error" not in one["document"]]
    assert len(ended) >= len(done)
    all_words = [sentence(outcome) for outcome in ended]

    assert [words for words in all_words if _ZEROS.search(words) or words[0].isupper()] == []


def _missing(recorded: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield what was recorded and is not there, or is different."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key, value in recorded.items():
            if key in now:
                yield from _missing(value, now[key], f"{where} / {key}")
            else:
                yield f"{where} / {key}"
    elif isinstance(recorded, list) and isinstance(now, list):
        yield from (f"{where}: {item}" for item in recorded if not _has(now, item))
    elif recorded != now:
        yield f"{where}: {recorded} is now {now}"


def _has(items: list[Any], wanted: Any) -> bool:
    return any(not list(_missing(wanted, item)) for item in items)


def test_the_record_has_one_line_for_each_option() -> None:
    text = RECORDED.read_text()
    lines = {line.strip().rstrip(",") for line in text.splitlines()}
    recorded = json.loads(text)

    assert written(recorded) == text
    for options in recorded["options"].values():
        assert {f"{_text(name)}: {_text(option)}" for name, option in options.items()} <= lines


def written(contract: Mapping[str, Any]) -> str:
    """Return the text of a contract as it is recorded."""
    parts = [f" {_text(name)}: {_lines(contract[name], _LEVELS[name], 1)}" for name in _LEVELS]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(value: Any, levels: int, depth: int) -> str:
    """Return a value as JSON, with a line for each member of its outer levels."""
    if not levels or not isinstance(value, list | Mapping):
        return _text(value)
    inner, indent = (levels - 1, depth + 1), " " * depth
    if isinstance(value, list):
        members, marks = [_lines(item, *inner) for item in value], "[]"
    else:
        members = [f"{_text(key)}: {_lines(item, *inner)}" for key, item in value.items()]
        marks = "{}"
    lines = ",\n".join(f"{indent} {member}" for member in members)
    return f"{marks[0]}\n{lines}\n{indent}{marks[1]}" if members else marks


def _text(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        (made := Path(scratch, "contract")).mkdir()
        found = contract(made)
    RECORDED.write_text(written(found))
    sys.stdout.write(f"recorded {len(found['documents'])} documents\n")
