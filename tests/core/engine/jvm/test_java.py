"""Finding a Java among made-up ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lake.core.base.errors import EngineError
from lake.core.base.settings import Settings
from lake.core.engine.jvm import java
from lake.core.engine.jvm.java import find_java
from lake.core.engine.selection import choose_engine


def make(folder: Path, version: str, *, release: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="Vendor"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = make(tmp_path / "bundled", "21.0.8")
    monkeypatch.setattr(java, "_bundled", lambda: home)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_comes_first(bundled: Path, tmp_path: Path) -> None:
    home, other = make(tmp_path / "a", "17.0.1"), make(tmp_path / "b", "21")

    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})

    assert (found.home, found.version) == (home, 17)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16", "nonsense"])
def test_a_java_that_is_too_old_is_passed_over(bundled: Path, tmp_path: Path, version: str) -> None:
    home = make(tmp_path / "old", version)

    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).home == bundled


def test_a_doubtfully_new_java_is_taken_only_if_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, bundled: Path, tmp_path: Path
) -> None:
    home = make(tmp_path / "new", "25.0.1")

    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).home == bundled
    monkeypatch.setattr(java, "_bundled", lambda: None)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).version == 25


def test_a_link_on_the_search_path_leads_to_the_runtime(bundled: Path, tmp_path: Path) -> None:
    home = make(tmp_path / "jvm", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_a_launcher_script_is_asked_where_its_java_is(bundled: Path, tmp_path: Path) -> None:
    home = make(tmp_path / "real", "21.0.1")
    shim = make(tmp_path / "shims", "0", release=False) / "bin" / "java"
    shim.write_text(f'#!/bin/sh\necho "    java.home = {home}" >&2\n')

    assert find_java({"PATH": str(shim.parent)}).home == home


def test_a_folder_without_a_command_is_not_a_java_home(bundled: Path, tmp_path: Path) -> None:
    home = make(tmp_path / "empty", "17")
    (home / "bin" / "java").unlink()

    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).home == bundled


def test_the_bundled_java_of_the_extra_is_found() -> None:
    found = find_java({"PATH": "/nonexistent"})

    assert found.version == 21
    assert found.executable.is_file()
    assert not found.has_class_archive


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(("kind", "size"), [("spark", 0), ("auto", 1 << 40)])
def test_spark_without_any_java_is_refused_with_the_way_out(kind: str, size: int) -> None:
    with pytest.raises(EngineError, match="Java 17") as caught:
        choose_engine(kind, size, Settings())

    assert "pip install 'lake-iceberg[java]'" in (caught.value.hint or "")


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(("kind", "size"), [("inline", 1 << 40), ("auto", 1 << 20)])
def test_small_plans_and_the_inline_engine_need_no_java(kind: str, size: int) -> None:
    assert choose_engine(kind, size, Settings()).name == "inline"


def test_a_master_or_an_address_asks_for_spark() -> None:
    assert choose_engine("auto", 0, Settings(master="local[1]")).name == "spark"
    assert choose_engine("auto", 0, Settings(remote="sc://nowhere")).name == "spark"
    assert choose_engine("auto", 1 << 30, Settings()).name == "spark"


def test_pyspark_is_loaded_only_by_a_start() -> None:
    code = (
        "import sys\n"
        "from lake.core.engine.selection import choose_engine\n"
        "from lake.core.base.settings import Settings\n"
        "choose_engine('inline', 0, Settings())\n"
        "choose_engine('spark', 0, Settings()).stop()\n"
        "print(sorted({'pyspark', 'py4j'} & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
