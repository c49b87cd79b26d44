"""All commands on tables that Flink wrote, of each version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.tables.flink_course import FlinkCourse
from support.tables.flink_fixtures import FlinkFixture


# The long tests have all of them.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["c3-upsert-v3"])
def test_all_commands_leave_the_rows_that_flink_wrote(
    flink_lent: Callable[[str], FlinkFixture], tmp_path: Path, name: str
) -> None:
    FlinkCourse(flink_lent(name), tmp_path).run()
