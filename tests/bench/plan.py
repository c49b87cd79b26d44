"""Time planning and expiry against Iceberg Java, whole processes in turn, on tables as each writer leaves them.

    python tests/bench/plan.py [--files 200000] [--rounds 3] [--writers lake,pyiceberg,spark,flink]
                               [--commands scan,compact,expire] [--folder DIR]

Compared are `lake scan --plan` with Iceberg's scan planner, `lake compact --dry-run` with the planner of
rewrite_data_files, and `lake expire` of all snapshots but the newest with expire_snapshots. Both must find the same
number of files, or of groups of files. Prints seconds of the whole process of each, the ratio, and lake's peak
memory in MiB. The data files exist in metadata only (see foreign_files.py). With ``--folder``, tables made there
are used again. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of, medians, timed  # noqa: E402
from foreign_files import TABLE, WRITERS, make  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402

_OLDER = "2100-01-01T00:00:00Z"
_EXPIRE = ["--older-than", _OLDER, "--retain-last", "1", "--unsafe-retention"]
_CALL = (
    "CALL lake.system.expire_snapshots("
    f"table => '{TABLE}', older_than => TIMESTAMP '{_OLDER}', retain_last => 1)"
)


class Comparison(NamedTuple):
    """A command of each, and how many files or groups each says it found."""

    lake: list[str]
    java: list[str]
    found_by_lake: Callable[[Any], int]
    found_by_java: Callable[[Any], int]


COMPARISONS = {
    "scan": Comparison(
        ["scan", TABLE, "--plan"],
        ["plan", TABLE],
        lambda document: document["plan"]["files"],
        lambda result: result["files"],
    ),
    "compact": Comparison(
        ["compact", TABLE, "--dry-run"],
        ["plan-rewrite", TABLE],
        lambda document: document["plan"]["groups"],
        lambda result: result["groups"],
    ),
    # Flink's newest checkpoint needs its snapshot, which Java does not know.
    "expire": Comparison(
        ["expire", TABLE, *_EXPIRE, "--keep-checkpoints", "0s"],
        [_CALL],
        lambda document: document["result"]["data_files"],
        lambda result: result[0]["deleted_data_files_count"],
    ),
}


def compare(name: str, writer: str, kept: Path, used: Path, rounds: int) -> None:
    """Let the two take turns on copies of a table."""
    asked = COMPARISONS[name]
    commands = {
        "lake": lake_command(used, *asked.lake),
        "java": java_command(used, *asked.java),
    }
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    peaks = []
    for _ in range(rounds):
        found = {}
        for each, command in commands.items():
            copy_of(kept, used)
            took, peak, output = timed(command)
            seconds[each].append(round(took, 2))
            document = json.loads(output.splitlines()[-1])
            if each == "lake":
                peaks.append(peak)
                found[each] = asked.found_by_lake(document)
            else:
                found[each] = asked.found_by_java(document["result"])
        assert found["lake"] == found["java"], found
    ratios = [round(j / i, 2) for i, j in zip(seconds["lake"], seconds["java"], strict=True)]
    print(f"{name} {writer}: {found['lake']} found, {seconds}, {ratios}")
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}), flush=True)


def compile_modules() -> None:
    """Compile lake's modules, as pip does when it installs them."""
    for package in ("lake.cli", "lake.commands", "lake.core"):
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            compileall.compile_dir(folder, quiet=1)


def main() -> None:
    """Make the tables, unless they exist, and compare."""
    parser = parser_of(__doc__, java=False, files=200_000)
    parser.add_argument("--writers", default=",".join(WRITERS))
    parser.add_argument("--commands", default=",".join(COMPARISONS))
    chosen = parser.parse_args()
    compile_modules()
    folder = chosen.folder
    used = folder / "warehouse"
    for writer in chosen.writers.split(","):
        kept = folder / f"made-{writer}-{chosen.files}"
        if not kept.exists():
            # Locations in metadata are absolute: the table is made where it will be used.
            shutil.rmtree(used, ignore_errors=True)
            make(used, writer, chosen.files)
            used.rename(kept)
        for name in chosen.commands.split(","):
            compare(name, writer, kept, used, chosen.rounds)


if __name__ == "__main__":
    main()
