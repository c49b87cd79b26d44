"""Help starts fast: it imports no library that reads data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lake.cli.app import VERBS

HEAVY = ("numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "requests", "sqlalchemy")
PROGRAM = """
import sys
from lake.cli.main import main
code = main(sys.argv[1:])
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
raise SystemExit(code)
"""


@pytest.mark.parametrize("arguments", [(), *((verb,) for verb in VERBS)], ids=" ".join)
def test_help_imports_no_library_for_data(arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Usage: lake" in result.stdout
    assert set(result.stderr.split()).isdisjoint(HEAVY)


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
