"""Policies of `lake maintain`: files, properties of tables, and what both say about one table."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    FixedClock,
    make_table,
    open_session,
    pyiceberg_catalog,
)
from support.tables.neglected_tables import BY_NAME, Warehouse, append
from support.tiers import examples

from lake.commands import actions
from lake.commands.groups import arguments_of
from lake.core.base.errors import InvalidRequestError
from lake.core.base.settings import Settings
from lake.core.maintain.health.measure import Asked
from lake.core.maintain.policies.conditions import QUANTITIES, parse_when
from lake.core.maintain.policies.policy import ACTIONS, Policy, policy_rules
from lake.core.maintain.policies.windows import parse_window
from lake.core.maintain.rounds.candidates import condition_values, look
from lake.core.transaction.session import Session

_NOON = 1_800_014_400_000  # 2027-01-15 12:00 UTC
_HOUR = 3_600_000


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two tables whose snapshots expire, made once."""

    def make(warehouse: Path) -> None:
        for name in ("db.a", "other.b"):
            make_table(warehouse, name, spec=BY_NAME, history__expire__max_snapshot_age_ms="1")
            append(warehouse, name, 3)

    return Warehouse(tmp_path_factory.mktemp("two-tables"), make)


@pytest.fixture
def lake(two_tables: Warehouse) -> CommandLine:
    """`lake` on two tables whose snapshots expire."""
    return two_tables.restored()


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a policy file."""

    def write(text: str, name: str = "policy.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


Write = Callable[..., Path]
DUE = 'expire.when = "snapshots > 1"\n'


def decided(
    lake: CommandLine, *words: object, action: str = "expire"
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the reasons of an action that is due, and of one that is left alone, by table."""
    plan = lake.ok("maintain", *words, "--dry-run")["plan"]
    due, alone = (
        {row["table"]: row["reason"] for row in plan[key] if row["action"] == action}
        for key in ("due", "left_alone")
    )
    return due, alone


def refused(lake: CommandLine, *words: object) -> tuple[int, str, str]:
    """Return the exit code, the message and the hint of a command that fails."""
    result = lake("--json", "maintain", *words)
    error = result.json()["error"]
    return result.exit_code, error["message"], error["hint"] or ""


def test_the_first_matching_rule_wins_for_each_key_and_the_last_file_before_others(
    lake: CommandLine, policy: Write
) -> None:
    first = policy(
        '["db.*"]\nexpire.when = "snapshots > 100"\n["*"]\nexpire.when = "snapshots > 2"\n'
        'expire.every = "1d"\n',
    )
    second = policy('["db.a"]\nexpire.enabled = false\n', "second.toml")
    third = policy('["d*"]\nexpire.enabled = true\n', "third.toml")

    assert decided(lake, "--policy", first) == (
        {"other.b": "snapshots > 2 is true"},
        {"db.a": "snapshots > 100 is not true"},
    )
    _, alone = decided(lake, "--policy", first, "--policy", second)
    assert alone == {"db.a": f'enabled of expire of ["db.a"] in {second} is false'}
    _, alone = decided(lake, "--policy", first, "--policy", second, "--policy", third)
    assert alone == {"db.a": "snapshots > 100 is not true"}


def test_a_rule_of_an_action_wins_over_one_of_the_table(lake: CommandLine, policy: Write) -> None:
    path = policy(f'["*"]\nenabled = false\nexpire.enabled = true\n{DUE}')

    due, _ = decided(lake, "--policy", path)

    assert set(due) == {"db.a", "other.b"}
    _, alone = decided(lake, "--policy", path, action="clean")
    assert set(alone.values()) == {f'enabled of ["*"] in {path} is false'}


def test_a_rule_may_name_a_namespace_as_the_command_line_may(
    lake: CommandLine, policy: Write
) -> None:
    due, alone = decided(lake, "--policy", policy(f'[other]\nenabled = false\n["*"]\n{DUE}'))

    assert (list(due), list(alone)) == (["db.a"], ["other.b"])


def alter(lake: CommandLine, name: str, **properties: str) -> None:
    """Set properties of maintenance; ``__`` in names stands for ``.`` and ``_`` for ``-``."""
    named = {
        "lake.maintain." + key.replace("__", ".").replace("_", "-"): value
        for key, value in properties.items()
    }
    with pyiceberg_catalog(lake.warehouse).load_table(name).transaction() as change:
        change.set_properties(named)


@pytest.mark.parametrize("key", ["enabled", "expire__enabled"])
def test_what_the_owner_of_a_table_forbids_no_file_allows(
    lake: CommandLine, policy: Write, key: str
) -> None:
    alter(lake, "db.a", **{key: "FALSE"})

    due, alone = decided(
        lake, "--policy", policy(f'["*"]\nenabled = true\nexpire.enabled = true\n{DUE}')
    )

    named = key.replace("__", ".")
    assert list(due) == ["other.b"]
    assert alone == {"db.a": f"property lake.maintain.{named} is false"}


def test_the_owner_decides_but_does_not_allow_what_a_file_forbids(
    lake: CommandLine, policy: Write
) -> None:
    path = policy(
        '["*"]\nexpire.enabled = false\nclean.window = "00:00-24:00"\nclean.every = "1s"\n'
    )
    now = datetime.now(UTC)
    closed = f"{now + timedelta(hours=2):%H:00}-{now + timedelta(hours=3):%H:00}"
    alter(lake, "db.a", enabled="true", expire__enabled="true", window=closed)

    _, alone = decided(lake, "--policy", path)
    assert set(alone.values()) == {f'enabled of expire of ["*"] in {path} is false'}
    due, alone = decided(lake, "--policy", path, action="clean")
    assert alone == {"db.a": f"the window {closed} is closed"}
    assert list(due) == ["other.b"]


# Properties that are not allowed: the kind of the error, and a part of its message.
_FORBIDDEN = (
    ("expire.unsafe-retention", "true", "refused", "only a policy file may set"),
    ("expire.older-than", "0s", "refused", "would set older-than of expire"),
    ("expire.retain-last", "1", "refused", "would set retain-last of expire"),
    ("clean.delete", "true", "refused", "would set delete of clean"),
    ("clean.max-share", "100%", "refused", "would set max-share of clean"),
    ("clean.older-than", "1s", "refused", "would set older-than of clean"),
    ("clean.equal-schemes", "a=b", "refused", "would set equal-schemes of clean"),
    ("compact.rewrite-all", "true", "refused", "would set rewrite-all of compact"),
    ("compact.option", "a=b", "refused", "would set option of compact"),
    ("compact.branch", "other", "invalid-request", "unknown name branch"),
    ("compact.on-commit", "rm", "invalid-request", "unknown name on-commit"),
    ("ingest.create", "true", "invalid-request", "unknown name ingest"),
    ("compact.target-size", "many", "invalid-request", "lake.maintain.compact.target-size"),
    ("compact.when", "rows >", "invalid-request", "lake.maintain.compact.when"),
    ("enabled", "no", "invalid-request", "lake.maintain.enabled is not true or false"),
    ("when", "rows > 1", "invalid-request", "unknown name when"),
    ("window", "22-6", "invalid-request", "lake.maintain.window is not a window"),
    ("every", "soon", "invalid-request", "lake.maintain.every is"),
    ("every", "x" * 5000, "invalid-request", "at most 4,096 characters"),
    ("", "x", "invalid-request", "unknown name"),
)


def test_a_property_that_is_not_allowed_is_a_failure_and_nothing_is_done_to_the_table(
    lake: CommandLine, policy: Write
) -> None:
    tables = {f"odd.t{number:02}": case for number, case in enumerate(_FORBIDDEN)}
    for name, (key, value, _, _) in tables.items():
        make_table(lake.warehouse, name, **{f"lake__maintain__{key}": value})
    locations = {name: lake.table(name).metadata_location for name in tables}

    result = lake("--json", "maintain", "--policy", policy(f'["*"]\n{DUE}'))

    assert result.exit_code == 6
    document = result.json()["result"]
    failed = {row["table"]: row for row in document["failed"]}
    assert failed.keys() == tables.keys()
    for name, (_, _, kind, message) in tables.items():
        error = failed[name]["error"]
        assert (failed[name]["action"], error["kind"]) == (None, kind), name
        assert message in error["message"]
    assert {item["table"] for item in document["actions"]} == {"db.a", "other.b"}
    assert {name: lake.table(name).metadata_location for name in tables} == locations


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('["*"]\nwindo = "x"', "the unknown name windo", "did you mean window?"),
        ('["*"]\ncompcat.when = "x"', "the unknown name compcat", "did you mean compact?"),
        ('["*"]\ncompact.traget-size = "1MB"', "the unknown name traget-size", "target-size?"),
        ('["*"]\nexpire.xyz = 1', "the unknown name xyz", "known are: enabled, when, window"),
        ('["*"]\ncompact.dry-run = true', "the unknown name dry-run", ""),
        ('["*"]\ncompact.max-bytes = "1GB"', "the unknown name max-bytes", ""),
        ("[prod.audit]\nenabled = false", "the unknown name audit", 'needs quotes: "prod.audit"'),
        ("enabled = false", '["enabled"] in', "a policy has a table for each pattern"),
        ('["*"]\ncompact = 1', "compact of", ""),
        ('["*"]\nenabled = "perhaps"', "is not true or false: 'perhaps'", ""),
        ('["*"]\nenabled = 0', "is not true or false: 0", ""),
        ('["*"]\nexpire.when = 3', "is not a text", ""),
        (
            '["*"]\nexpire.when = "snapshot > 3"',
            "the condition of when of expire",
            "did you mean snapshots?",
        ),
        ('["*"]\nwindow = "25:00-26:00"', "is not a window", "22:00-06:00"),
        ('["*"]\nwindow = "01:00-01:00"', "it has no length", "leave it out"),
        ('["*"]\nwindow = "01:00-02:00 Europe/Berln"', "unknown time zone", "Europe/Berlin"),
        ('["*"]\nwindow = "01:00-02:00 ../etc/passwd"', "is not a window", ""),
        ('["*"]\nevery = 60', "is not a text", ""),
        ('["*"]\nevery = "often"', "every of", ""),
        ('["*"]\ncompact.target-size = "many"', "target-size of compact", ""),
        ('["*"]\ncompact.target-size = ["1MB"]', "target-size of compact", ""),
        ('["*"]\ncompact.max-files = 1.5', "max-files of compact", ""),
        ('["*"]\ncompact.max-files = true', "max-files of compact", ""),
        ('["*"]\ncompact.delete-ratio = "half"', "delete-ratio of compact", ""),
        ('["*"]\ncompact.rewrite-all = "yes"', "rewrite-all of compact", ""),
        ('["*"]\ncompact.by = true', "by of compact", ""),
        ('["*"]\ncompact.by = ["id"]', "by of compact", ""),
        ('["*"]\ncompact.idle = "1 fortnight"', "idle of compact", ""),
        ('["*"]\nclean.exclude = [["a"]]', "exclude of clean", ""),
        ('["*"]\nclean.exclude = 2020-01-01', "exclude of clean", ""),
        ('["*"]\ncompact.where = {a = 1}', "where of compact", ""),
        ('["*"]\ncompact.where = "a ="', "where of compact", "amount >= 10.5"),
        ('["*"]\nexpire.older-than = "long ago"', "older-than of expire", "7d, 12h"),
        ('["*"]\nclean.max-share = "200%"', "max-share of clean", "50%"),
    ],
)
def test_a_mistake_in_a_file_ends_the_run_before_it_begins(
    lake: CommandLine, policy: Write, text: str, message: str, hint: str
) -> None:
    code, said, hinted = refused(lake, "--policy", policy(text))

    assert code == 2
    assert message in said
    assert (said + hinted).count("equality_delete_files") <= 1
    assert hint in hinted
    assert len(said) < 1000


def test_hostile_files_end_with_an_error(lake: CommandLine, policy: Write, tmp_path: Path) -> None:
    large = policy("#" * (1 << 20) + "\n", "large.toml")
    deep = policy("a = " + "[" * 100_000, "deep.toml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes('["ä"]\n'.encode("latin-1"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, message in (
        (large, "larger than 1 MB"),
        (deep, "cannot be read"),
        (latin, "cannot be read: it is not text in UTF-8"),
        (pipe, "is not a regular file"),
        (Path("/dev/null"), "is not a regular file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "missing.toml", "cannot be read: No such file"),
        (policy("maintain = 1", "lake.toml"), "maintain in"),
    ):
        code, said, _ = refused(lake, "--policy", path)
        assert (code, message in said) == (7, True), said
    _, _, hint = refused(lake, "--policy", tmp_path / "missing.toml")
    assert hint == "lake maintain --init FILE writes a first policy"
    (tmp_path / "lake.toml").unlink()
    open_to_all = policy("", "open.toml")
    open_to_all.chmod(0o666)
    code, said, hint = refused(lake, "--policy", open_to_all)
    assert (code, "every user" in said, "chmod o-w" in hint) == (3, True, True)


def test_rules_of_the_project_file_count_in_a_folder_that_is_trusted(
    lake: CommandLine, policy: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    policy(f'[maintain."db.*"]\nenabled = false\n[maintain."*"]\n{DUE}', "lake.toml")
    location = lake.table("other.b").metadata_location

    code, message, hint = refused(lake)
    assert (code, "does not trust" in message, "--trust" in hint) == (3, True, True)
    assert lake.table("other.b").metadata_location == location
    assert lake.ok("tables")["status"] == "done"

    lake.ok("config", "--trust")
    due, alone = decided(lake)
    assert (list(due), list(alone)) == (["other.b"], ["db.a"])
    # A file that is given wins over it.
    due, _ = decided(lake, "--policy", policy('["db.a"]\nenabled = true\n'))
    assert set(due) == {"db.a", "other.b"}


def test_options_of_a_policy_reach_the_verb(
    lake: CommandLine, policy: Write, tmp_path: Path
) -> None:
    make_table(lake.warehouse, "db.c")
    append(lake.warehouse, "db.c", 6)
    path = policy(
        '["db.c"]\ncompact.when = "files >= 6"\ncompact.max-files = 4\ncompact.min-input-files = 2\n'
        'expire.when = "snapshots > 2"\nexpire.older-than = "0s"\nexpire.retain-last = 2\n'
        "expire.unsafe-retention = true\n"
        'stats.when = "rows > 0"\nstats.select = ["id"]\n'
        'clean.exclude = ["*.tmp", "x*"]\n'
    )

    document = lake("--json", "maintain", "db.c", "--policy", path).json()

    found = lake.table("db.c")
    statuses = {row["action"]: row["status"] for row in document["result"]["actions"]}
    assert statuses["compact"] == statuses["stats"] == "done", document
    assert len(found.inspect.data_files()) == 6 - 4 + 1
    assert len(found.snapshots()) == 2
    assert [blob.fields for blob in found.metadata.statistics[0].blob_metadata] == [[1]]


def test_the_owner_of_a_table_sets_the_properties_by_lake_alter(
    lake: CommandLine, policy: Write
) -> None:
    lake.ok("alter", "db.a", "--set", "lake.maintain.enabled=false")

    result = lake.ok("maintain", "db.a", "--policy", policy(f'["*"]\n{DUE}'))["result"]

    assert result["actions"] == []
    lake.ok("alter", "db.a", "--unset", "lake.maintain.enabled")
    assert "lake.maintain.enabled" not in lake.table("db.a").properties


def test_properties_reach_the_verb(lake: CommandLine) -> None:
    make_table(lake.warehouse, "db.c")
    append(lake.warehouse, "db.c", 6)
    alter(
        lake,
        "db.c",
        compact__when="files >= 6",
        compact__max_files="4",
        compact__min_input_files="2",
        compact__partial_progress="False",
        compact__copy_row_groups="never",
    )

    lake("maintain", "db.c", "--only", "compact")

    assert len(lake.table("db.c").inspect.data_files()) == 6 - 4 + 1


def test_a_policy_that_switches_both_ways_of_an_action_off_leaves_the_table_alone(
    lake: CommandLine, policy: Write
) -> None:
    path = policy('["db.a"]\nclean.quarantine = false\n["*"]\nclean.every = "1s"\n')

    due, alone = decided(lake, "--policy", path, action="clean")

    assert list(due) == ["other.b"]
    assert alone == {"db.a": "its policy chooses neither quarantine nor delete"}


def with_clock(lake: CommandLine, clock: FixedClock) -> CommandLine:
    """Return `lake` with another clock."""

    def opened(settings: Settings) -> Session:
        session = open_session(lake.warehouse, clock)
        session.settings = settings
        return session

    return CommandLine(lake.warehouse, open_session=opened)


def test_an_action_is_repeated_after_the_time_that_a_policy_says(
    lake: CommandLine, policy: Write
) -> None:
    clock = FixedClock(_NOON)
    timed = with_clock(lake, clock)
    path = policy('["db.a"]\nstats.when = "rows > 0"\nstats.every = "2h"\n')
    words = ("maintain", "db.a", "--only", "stats", "--policy", path)

    def done() -> list[str]:
        rows = timed.ok(*words)["result"]["actions"]
        return [row["action"] for row in rows]

    assert done() == ["stats"]
    clock.now += 2 * _HOUR - 60_000
    assert done() == []
    _, alone = decided(timed, *words[1:], action="stats")
    assert "due every 2h 00m" in alone["db.a"]
    clock.now += 60_000
    assert done() == ["stats"]


def test_an_action_begins_in_its_window_only(lake: CommandLine, policy: Write) -> None:
    clock = FixedClock(_NOON)
    timed = with_clock(lake, clock)
    path = policy(f'["*"]\nwindow = "22:00-06:00 Asia/Kolkata"\n{DUE}')
    # Noon in UTC is 17:30 there.
    for hours, is_open in ((0, False), (4, False), (5, True), (12, True), (13, False)):
        clock.now = _NOON + hours * _HOUR
        due, alone = decided(timed, "--policy", path)
        assert set(due) == ({"db.a", "other.b"} if is_open else set()), hours
        if not is_open:
            assert set(alone.values()) == {"the window 22:00-06:00 Asia/Kolkata is closed"}


def test_the_retention_of_a_policy_decides_whether_snapshots_expire(
    lake: CommandLine, policy: Write
) -> None:
    make_table(lake.warehouse, "db.c", history__expire__max_snapshot_age_ms=str(400 * 24 * _HOUR))
    append(lake.warehouse, "db.c", 24)
    timed = with_clock(lake, FixedClock(_NOON))
    shorter = policy('["*"]\nexpire.older-than = "2d"\nexpire.retain-last = 3\n')
    longer = policy('["*"]\nexpire.older-than = "400d"\n', "longer.toml")
    words = ("maintain", "db.c", "--only", "expire", "--policy")

    assert timed.ok(*words, longer, "--dry-run")["plan"]["due"] == []
    [due] = timed.ok(*words, shorter, "--dry-run")["plan"]["due"]

    assert (due["reason"], due["forecast"]["before"], due["forecast"]["after"]) == (
        "21 expired",
        24,
        3,
    )
    verb = timed.ok("expire", "db.c", "--older-than", "2d", "--retain-last", "3", "--dry-run")
    assert verb["plan"]["snapshots"] == 24 - 3
    # By its own retention it would lose all but one.
    _, alone = decided(timed, "db.a", "--policy", longer)
    assert alone == {"db.a": "nothing to do"}


def test_the_file_size_of_a_policy_decides_what_a_compaction_would_rewrite(
    lake: CommandLine, policy: Write
) -> None:
    make_table(lake.warehouse, "db.c")
    append(lake.warehouse, "db.c", 6)

    def forecast(text: str) -> dict[str, Any] | None:
        path = policy(f'["*"]\ncompact.when = "files > 1"\n{text}')
        plan = lake.ok("maintain", "db.c", "--policy", path, "--dry-run")["plan"]
        [found] = [row["forecast"] for row in plan["due"] if row["action"] == "compact"]
        return found

    found = forecast("")
    assert found is not None
    assert (found["before"], found["after"]) == (6, 1)
    assert forecast('compact.target-size = "100B"\ncompact.min-size = "1B"\n') is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expire.retain-last = 0", "--retain-last must be at least 1"),
        ('expire.older-than = "1h"', "--older-than is less than 24 hours ago"),
        ('compact.target-size = "1B"', "sizes must rise"),
        ('compact.strategy = "zorder"', "--strategy zorder requires columns"),
    ],
)
def test_a_dry_run_shows_values_with_which_an_action_would_fail(
    lake: CommandLine, policy: Write, text: str, message: str
) -> None:
    path = policy(f'["db.a"]\n{text}\n')

    result = lake("--json", "maintain", "--policy", path, "--dry-run")

    assert result.exit_code == 6
    [failure] = result.json()["plan"]["failed"]
    assert failure["table"] == "db.a"
    assert message in failure["error"]["message"]


def test_a_name_with_signs_of_patterns_is_one_table(lake: CommandLine, policy: Write) -> None:
    for name in ("db.t[1]", "db.t1"):
        make_table(lake.warehouse, name, history__expire__max_snapshot_age_ms="1")
        append(lake.warehouse, name, 3)

    document = lake.ok(
        *("maintain", "db.t[[]1]", "--only", "expire", "--policy", policy(f'["*"]\n{DUE}'))
    )

    assert [row["table"] for row in document["result"]["actions"]] == ["db.t[1]"]
    assert len(lake.table("db.t[1]").snapshots()) == 1
    assert len(lake.table("db.t1").snapshots()) == 3


def test_every_name_of_a_condition_is_measured(lake: CommandLine) -> None:
    table = open_session(lake.warehouse).table("db.a")
    policy = Policy().of("db.a", {}, actions.choices())

    looked, _ = look(table, "db", policy, _NOON, most_entries=None, asked=Asked())
    values = condition_values(looked.row, _NOON)

    assert values.keys() == QUANTITIES.keys()
    assert None not in values.values()
    assert (values["files"], values["snapshots"], values["delete_ratio"]) == (3, 3, 0.0)
    for name in QUANTITIES:
        limits = {"bytes": "1B", "last_commit": "1s", "oldest_snapshot": "1s"}
        unit = "1B" if name.endswith("bytes") else limits.get(name, "1")
        assert parse_when(f"{name} > {unit}", "x").holds(values) in {True, False}


@pytest.mark.parametrize("action", ACTIONS)
def test_an_option_of_a_property_is_an_option_of_its_verb(action: str) -> None:
    choices = actions.choices()

    assert set(choices.of_properties[action]) <= set(choices.of_files[action])
    assert not {"branch", "dry-run", "wait", "on-commit", "when", "if"} & set(
        choices.of_files[action]
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_verb_gets_the_options_of_a_file_and_its_defaults(action: str) -> None:
    verb = actions.verb_of(action)

    plain = arguments_of(verb, {})

    assert plain.keys() | {"context", "table"} == inspect.signature(verb).parameters.keys()
    other = arguments_of(verb, {"branch": ("other", "here")}) if action != "clean" else plain
    assert other.keys() == plain.keys()
    assert (other != plain) == (action != "clean")
    with pytest.raises(InvalidRequestError, match="not an option"):
        arguments_of(verb, {"nothing": ("x", "here")})


# Windows.

MINUTES = st.integers(0, 24 * 60 - 1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Etc/GMT+5"]


def written(begin: int, end: int, zone: str) -> str:
    return f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02} {zone}"


@settings(max_examples=examples(300))
@given(MINUTES, st.integers(0, 24 * 60), st.sampled_from(ZONES), st.integers(0, 2**32 * 1000))
def test_a_window_is_open_in_the_minutes_that_it_contains(
    begin: int, end: int, zone: str, now_ms: int
) -> None:
    if begin == end:
        with pytest.raises(InvalidRequestError):
            parse_window(written(begin, end, zone), "x")
        return
    # The minutes of the day from the first one to before the last one, over midnight.
    count = (end - begin) % (24 * 60) or 24 * 60
    contained = {(begin + number) % (24 * 60) for number in range(count)}
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms)).astimezone(
        ZoneInfo(zone)
    )

    window = parse_window(written(begin, end, zone), "x")

    assert window.is_open(now_ms) == (local.hour * 60 + local.minute in contained)
    assert str(window) == written(begin, end, zone)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_window_follows_the_clocks_of_its_zone() -> None:
    window = parse_window("02:00-03:00 Europe/Berlin", "x")
    night = parse_window("22:00-06:00 Europe/Berlin", "x")

    # In the night in which the clocks go forward, there is no such hour; when they go back, there are two.
    hours = {
        day: [window.is_open(at(f"{day}T{hour:02}:30:00+00:00")) for hour in range(4)]
        for day in ("2026-03-28", "2026-03-29", "2026-10-25", "2026-10-26")
    }
    assert hours == {
        "2026-03-28": [False, True, False, False],
        "2026-03-29": [False, False, False, False],
        "2026-10-25": [True, True, False, False],
        "2026-10-26": [False, True, False, False],
    }
    for text, is_open in (
        ("2026-07-01T20:00:00+00:00", True),
        ("2026-07-01T19:59:59.999+00:00", False),
        ("2026-12-01T20:59:59+00:00", False),
        ("2026-12-01T21:00:00+00:00", True),
        ("2026-12-02T04:59:59+00:00", True),
        ("2026-12-02T05:00:00+00:00", False),
    ):
        assert night.is_open(at(text)) == is_open, text
    assert all(
        parse_window("00:00-24:00", "x").is_open(at(f"2026-07-01T{hour:02}:59:59+00:00"))
        for hour in range(24)
    )


# The policy of a table, and a model of it.

CHOICES = actions.choices()
NAMES_OF_TABLES = ("db.a", "db.b", "x.a", "x.y.a")
PATTERNS = st.sampled_from(["*", "db.*", "db", "x", "x.*", "x.y", "*.a", "db.a", "d[ab].b"])
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "enabled": st.booleans(),
    "window": st.sampled_from(["01:00-02:00", "03:00-04:00", "05:00-06:00"]),
    "every": st.sampled_from(["1h", "2h", "3h"]),
}
SETTINGS = st.fixed_dictionaries({}, optional=dict(VALUES))
RULES = st.lists(
    st.tuples(
        PATTERNS,
        SETTINGS,
        st.fixed_dictionaries({}, optional={"max-files": st.integers(1, 9), **VALUES}),
    ),
    max_size=4,
    unique_by=lambda rule: rule[0],
)


@settings(max_examples=examples(300))
@given(
    st.lists(RULES, max_size=3),
    SETTINGS,
    st.fixed_dictionaries({}, optional={"max-files": st.integers(1, 9), **VALUES}),
    st.sampled_from(NAMES_OF_TABLES),
)
def test_the_policy_of_a_table_is_that_of_a_model(
    files: list[list[tuple[str, dict[str, Any], dict[str, Any]]]],
    of_owner: dict[str, Any],
    of_owner_compact: dict[str, Any],
    name: str,
) -> None:
    documents = [
        {pattern: {**table, "compact": compact} for pattern, table, compact in rules}
        for rules in files
    ]
    properties = {f"lake.maintain.{key}": str(value) for key, value in of_owner.items()} | {
        f"lake.maintain.compact.{key}": str(value) for key, value in of_owner_compact.items()
    }
    rules = [
        rule
        for number, document in reversed(list(enumerate(documents)))
        for rule in policy_rules(document, str(number), CHOICES)
    ]

    found = Policy(rules).of(name, properties, CHOICES).actions["compact"]

    def chosen(key: str) -> Any:
        """The value of a key: of the owner, else of the last file and its first rule; the action before the table."""
        for group in ([(of_owner, of_owner_compact)], matching(files, name)):
            for part in (1, 0):
                for pair in group:
                    if key in pair[part]:
                        return pair[part][key]
        return None

    files_enabled = next(
        (
            pair[part]["enabled"]
            for part in (1, 0)
            for pair in matching(files, name)
            if "enabled" in pair[part]
        ),
        True,
    )
    is_enabled = all(
        (of_owner.get("enabled", True), of_owner_compact.get("enabled", True), files_enabled)
    )
    assert (found.forbidden_by == "") == is_enabled
    assert (found.window and str(found.window)) == chosen("window")
    assert found.every_ms == (None if chosen("every") is None else int(chosen("every")[0]) * _HOUR)
    value = found.options.get("max-files")
    assert (value and int(value.value)) == chosen("max-files")


def matching(
    files: list[list[tuple[str, dict[str, Any], dict[str, Any]]]], name: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the settings of the rules that select a table, those of the last file first."""
    return [
        (table, compact)
        for rules in reversed(files)
        for pattern, table, compact in rules
        if fnmatchcase(name, pattern) or pattern == name.rpartition(".")[0]
    ]
