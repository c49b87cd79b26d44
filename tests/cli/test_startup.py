"""Help starts fast: it imports no library that reads data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lake.cli.app import VERBS

HEAVY = {"numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "requests", "sqlalchemy"}
# One process asks for all help texts in turn: a library that one of them imports is noticed at that one.
PROGRAM = """
import contextlib, io, json, sys
from lake.cli.main import main
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out:
        code = main([*words, "--help"])
    out.flush()
    text = out.buffer.getvalue().decode()
    print(json.dumps([words, code, text, sorted(name for name in sys.modules if "." not in name)]))
"""


def test_help_imports_no_library_for_data() -> None:
    calls = [[], *([verb] for verb in VERBS)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=True,
    )

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, *_ in found] == calls
    for words, code, text, modules in found:
        assert code == 0
        assert f"Usage: {' '.join(['lake', *words])}" in text
        assert HEAVY.isdisjoint(modules), words


THREADS = """
import os, sys
sys.argv = ["lake", "--version"]
from lake.cli.__main__ import run
run()
before = len(os.listdir("/proc/self/task"))
import numpy
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
def test_a_command_starts_no_threads_for_algebra() -> None:
    without = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=without
    )
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("verb", ["compact", "ingest", "snapshots"])
def test_a_configuration_that_pyiceberg_cannot_load_is_refused_by_a_fresh_process(
    tmp_path: Path, verb: str
) -> None:
    """PyIceberg reads its configuration when it is imported."""
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [canary,\n")

    result = subprocess.run(
        [sys.executable, "-m", "lake.cli", verb, "db.t", *(["x.csv"] if verb == "ingest" else [])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYICEBERG_HOME": str(tmp_path)},
    )

    assert result.returncode == 7, result.stderr
    assert re.search(r"\.pyiceberg\.yaml, line \d: invalid YAML", result.stderr)
    assert "canary" not in result.stdout + result.stderr
