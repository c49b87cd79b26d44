"""The help text: usage, arguments, options in groups, and examples.

The examples are here, and not with the verbs, so that they can be read as one text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_Groups = tuple[tuple[str, tuple[str, ...]], ...]

# What people do with a table, and the verbs for it, the most used first. What is not named here is in a last group.
VERB_GROUPS: _Groups = (
    ("Load", ("ingest", "add-files", "replay", "demo")),
    ("Read", ("scan", "inspect")),
    (
        "Look",
        (
            *("tables", "health", "show", "snapshots", "check", "partitions", "deletes"),
            *("consumers", "runs", "catalogs", "config"),
        ),
    ),
    (
        "Change",
        (
            *("create", "alter", "delete", "rollback", "tag", "ref", "cherry-pick", "publish"),
            *("rename", "register", "drop"),
        ),
    ),
    (
        "Maintain",
        (
            *("maintain", "compact", "expire", "clean", "manifests", "stats", "apply"),
            "expire-partitions",
        ),
    ),
)
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "lake ingest db.events day.csv --create",
        "lake --warehouse ./warehouse snapshots db.events",
        "lake -q --catalog prod compact db.events",
    ),
    "ingest": (
        'lake ingest db.events day.csv --create --partition-by "day(ts)"',
        "lake ingest db.users changed.csv --upsert --key id --dry-run",
        "lake ingest db.events --watch /drop --stream events --state /srv/events --once",
    ),
    "scan": (
        "lake scan db.events --where \"country = 'NZ'\" --select id,ts --limit 100",
        "lake scan db.events --follow --state /srv/events --output /srv/in --once",
        "lake scan db.events --changes --key id --from-snapshot @2026-01-30",
    ),
    "snapshots": (
        "lake snapshots db.events --limit 5",
        "lake snapshots db.events --all",
        "lake --json snapshots db.events",
    ),
    "tables": (
        "lake tables",
        "lake tables 'prod.*'",
        "lake --json tables --all-catalogs",
    ),
    "catalogs": (
        "lake catalogs",
        "lake --catalog prod catalogs --timeout 60s",
        "lake --json catalogs --no-check",
    ),
    "health": (
        "lake health",
        "lake health 'prod.*' 'db.events*' --sort bytes --fail-on bad",
        "lake health db.events --explain --html health.html",
    ),
    "runs": (
        "lake runs",
        "lake runs 'prod.*' --since 7d --action compact,expire",
        "lake runs db.events --failed --limit 0",
    ),
    "maintain": (
        "lake maintain 'prod.*' --dry-run",
        "lake -q maintain --policy policy.toml --max-seconds 2h",
        "lake maintain --every 10m --status /run/lake/status.json",
    ),
    "apply": (
        "lake apply plan.json",
        "lake apply plan.json --replan",
        "lake -q apply plan.json --max-seconds 2h",
    ),
    "show": (
        "lake show db.events",
        "lake --json show db.events",
        "lake show db.events --branch audit",
    ),
    "inspect": (
        "lake inspect db.events history",
        "lake inspect db.events files --where 'record_count < 1000' --output small.parquet",
        "lake inspect db.events partitions --snapshot monthly",
    ),
    "check": (
        "lake check db.events",
        "lake check db.events --deep",
        "lake check db.events --repair missing-files",
    ),
    "partitions": (
        "lake partitions db.events",
        "lake partitions db.events --idle 15m --where \"day = '2026-01-31'\"",
        "lake partitions db.events --wait-for \"day = '2026-01-31'\" --idle 15m --timeout 2h",
    ),
    "delete": (
        "lake delete db.events --where \"country = 'NZ'\" --dry-run --count",
        "lake delete db.events --where \"ts < '2026-01-01'\" --max-rows 100000",
        "lake delete db.users --where 'id in (17, 23)' --run-id request-4711",
    ),
    "deletes": (
        "lake deletes db.events",
        "lake deletes db.events --rewrite --where \"day = '2026-01-31'\"",
        "lake deletes db.events --convert --max-files 1000",
    ),
    "tag": (
        "lake tag db.events before-migration --retain 30d",
        "lake tag db.events --auto daily --zone Europe/Berlin --delay 10m --keep 90",
        "lake tag db.events --drop before-migration",
    ),
    "ref": (
        "lake ref db.events",
        "lake ref db.events --branch-create audit --at @2026-01-31 --retain 30d",
        "lake ref db.events --fast-forward main --to audit --dry-run",
    ),
    "add-files": (
        "lake add-files db.events exports/2026-01/*.parquet --dry-run",
        "lake add-files db.events s3://landing/events/ --run-id landing-2026-01-31",
        "lake add-files db.events /data/events/country=DE /data/events/country=FR --branch staging",
    ),
    "rename": (
        "lake rename db.events db.events_2025 --dry-run",
        "lake rename db.events db.events_2025",
        "lake rename db.events archive.events",
    ),
    "register": (
        "lake register db.events warehouse/db/events/metadata/00012-8a1f.metadata.json --dry-run",
        "lake register db.events s3://lake/db/events/metadata/00012-8a1f.metadata.json",
        "lake register archive.events /mnt/old/db/events/metadata/v7.metadata.json",
    ),
    "drop": (
        "lake drop db.events --dry-run",
        "lake drop db.events",
        "lake drop db.events --purge --yes",
    ),
    "cherry-pick": (
        "lake cherry-pick db.events 5781947118336215154 --dry-run",
        "lake cherry-pick db.events audit",
        "lake cherry-pick db.events audit --branch staging",
    ),
    "publish": (
        "lake publish db.events --wap-id load-2026-01-31 --dry-run",
        "lake publish db.events --wap-id load-2026-01-31",
        "lake publish db.events --wap-id load-2026-01-31 --branch staging",
    ),
    "rollback": (
        "lake rollback db.events @2026-01-31T12:00 --dry-run",
        "lake rollback db.events --last",
        "lake rollback db.events 936898107632354179 --any",
    ),
    "alter": (
        "lake alter db.events --add-column 'country string' --widen amount=long --dry-run",
        "lake alter db.events --set write.target-file-size-bytes=268435456 --unset comment",
        "lake alter db.events --partition-by 'hour(ts), bucket(16, id)' --format-version 3",
    ),
    "create": (
        "lake create db.events 'id long not null' 'ts timestamptz' --partition-by 'day(ts)'",
        "lake create db.users --from users.parquet --key id --format-version 3",
        "lake create db.copy --from db.events --if-not-exists",
    ),
    "compact": (
        "lake compact db.events --dry-run",
        "lake compact db.events --target-size 256MB --where \"day = '2026-01-01'\"",
        'lake compact db.events --strategy sort --by "country, ts desc" --rewrite-all',
    ),
    "manifests": (
        "lake manifests db.events --dry-run",
        "lake manifests db.events --target-size 16MB",
        "lake manifests db.events --if 'manifests > 100 or overlap > 2'",
    ),
    "stats": (
        "lake stats db.events",
        "lake stats db.events --select user_id,country",
        "lake stats db.events --partitions --branch audit --dry-run",
    ),
    "expire": (
        "lake expire db.events --dry-run --verbose",
        "lake expire db.events --older-than 7d --retain-last 10",
        "lake expire db.events --snapshot @2026-01-31 --keep-files",
    ),
    "expire-partitions": (
        "lake expire-partitions db.events --older-than 90d --by day --dry-run",
        "lake expire-partitions db.logs --older-than 30d --by dt --format %Y%m%d",
        "lake expire-partitions db.users --older-than 180d --strategy update-time",
    ),
    "clean": (
        "lake clean db.events",
        "lake clean db.events --older-than 14d --quarantine",
        "lake clean db.events --restore 0b7c1f6e-3c1d-4d55-9a0e-3f8d8f1f2a10",
    ),
    "consumers": (
        "lake consumers db.events",
        "lake --json consumers db.events",
        "lake consumers db.events --drop billing",
    ),
    "replay": (
        "lake replay db.events",
        "lake replay db.events --checkpoint s3://state/checkpoints/5f3a/chk-42 --dry-run",
        "lake replay db.events --job 5f3a0e2c9b1d4f6a8c7e5d3b2a190817 --completed 42",
    ),
    "config": (
        "lake config",
        "lake --json config",
        "lake config --trust",
    ),
    "demo": (
        "lake demo",
        "lake demo --lake",
        "lake --warehouse lake-demo-warehouse health",
    ),
}


def write_usage(name: str, params: Sequence[Any], formatter: Any) -> None:
    """Write the line with the arguments, as ``lake scan TABLE [options]``."""
    words = [_argument(item) for item in params if item.param_type_name == "argument"]
    formatter.write_usage("lake", " ".join([*filter(None, [name]), *words, "[options]"]))


def write_arguments(params: Sequence[Any], formatter: Any) -> None:
    """Write the arguments and what they are."""
    rows = [
        (_argument(item), item.help or "") for item in params if item.param_type_name == "argument"
    ]
    if rows:
        with formatter.section("Arguments"):
            formatter.write_dl(rows)


def write_options(ctx: Any, params: Sequence[Any], formatter: Any) -> None:
    """Write the options by their groups; help itself, and what is in no group, comes last."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for item in params:
        if item.param_type_name == "option" and (record := item.get_help_record(ctx)):
            panels.setdefault(item.rich_help_panel or "", []).append(record)
    alone = panels.pop("")
    panels["Other" if panels else "Options"] = alone
    for title, records in panels.items():
        with formatter.section(title):
            formatter.write_dl(records)


def write_examples(name: str, formatter: Any) -> None:
    """Write the examples, each on a line of its own, so that it can be copied."""
    with formatter.section("Examples"):
        for example in EXAMPLES.get(name, ()):
            formatter.write(f"  {example}\n")


def _argument(item: Any) -> str:
    text = str(item.metavar or item.name.upper()).removesuffix("...")
    several = "…" if item.nargs != 1 else ""
    return f"{text}{several}" if item.required else f"[{text}{several}]"
