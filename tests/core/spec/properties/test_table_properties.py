"""What lake does with each table property of Iceberg, and which values it takes."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lake.core.base.errors import InvalidRequestError
from lake.core.spec.properties import table_properties as tp
from lake.core.spec.properties.table_properties import Use, Verdict
from lake.core.spec.properties.values import Setting

ALL = (*tp.HONOURED, *tp.OF_DELETE_FILES)
# Iceberg's TableProperties does not have these.
NAME = Path(tp.__file__).name
OF_OTHERS = {
    "lake.abandoned-metadata",
    "write.py-location-provider.impl",
    "lake.ignore-summary-totals",
    "flink.max-continuous-empty-commits",
}


@pytest.mark.java
def test_the_table_lists_every_property_of_iceberg_java_and_no_other(java_jars: list[str]) -> None:
    command = ["javap", "-constants", "-cp", java_jars[0], "org.apache.iceberg.TableProperties"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    constants = re.findall(r'String (\w+) = "([^"]*)";', listed)
    # WRITE_DISTRIBUTION_MODE_HASH and its like are values.
    names = {
        value
        for constant, value in constants
        if not re.search(r"_DEFAULT(_SINCE_\w+)?$|^WRITE_DISTRIBUTION_MODE_", constant)
    }

    assert len(names) > 100
    assert tp.verdicts().keys() - OF_OTHERS == names


def test_each_property_stands_once_in_the_table() -> None:
    names = [item.name for item in (*ALL, *tp.UNUSED)]

    assert len(names) == len(set(names)) == len(tp.verdicts())


def test_each_property_that_is_not_honoured_has_a_reason() -> None:
    assert [item.name for item in tp.UNUSED if not item.reason] == []
    assert {item.verdict for item in tp.UNUSED} == set(Verdict) - {Verdict.HONOURED}


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_a_missing_property_has_its_default(setting: Any) -> None:
    assert setting.of({}, "a" if setting.is_per_column else "") == setting.default


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        (
            tp.DATA_FILE_BYTES,
            {"1": 1, " 64 ": 64},
            ["abc", "0", "-1", "64MB", "1.5", "", str(2**63)],
        ),
        (tp.COMMIT_RETRIES, {"0": 0, "7": 7}, ["-1", "x", str(2**31)]),
        (tp.MAX_SNAPSHOT_AGE_MS, {str(2**62): 2**62}, ["0", "-5", "5d"]),
        (tp.PREVIOUS_METADATA, {"1": 1}, ["0", "-1"]),
        (tp.GC_ENABLED, {"true": True, "FALSE": False}, ["yes", "1", ""]),
        (tp.MERGE_MODE, {"Copy-On-Write": "copy-on-write"}, ["cow", ""]),
        (tp.DISTRIBUTION, {"HASH": "hash"}, ["bogus", "random"]),
        (tp.METRICS_DEFAULT, {"Truncate(4)": "truncate(4)"}, ["truncate(0)", "truncate", "all"]),
        (tp.ORC_BLOOM_FPP, {"0.1": 0.1}, ["0", "1", "nan", "inf", "-0.1", "x"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_values_are_read_or_refused_by_name(
    setting: Any, good: dict[str, object], bad: list[str]
) -> None:
    assert {text: setting.of({setting.name: text}) for text in good} == good
    for text in bad:
        with pytest.raises(InvalidRequestError) as caught:
            setting.of({setting.name: text})
        assert setting.name in caught.value.message
        assert repr(text) in caught.value.message
        assert setting.allowed in caught.value.message


def test_a_message_shows_the_beginning_of_an_immense_value() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tp.COMMIT_RETRIES.of({tp.COMMIT_RETRIES.name: "9" * 100_000})

    assert "9" * 100 in caught.value.message
    assert len(caught.value.message) < 300


def test_properties_of_columns_are_checked_for_each_column() -> None:
    prefix = tp.METRICS_OF_COLUMN.name
    tp.METRICS_OF_COLUMN.check({f"{prefix}a": "full", f"{prefix}b.c": "counts"})

    assert tp.METRICS_OF_COLUMN.columns({f"{prefix}b.c": "counts", "x": "y"}) == ["b.c"]
    with pytest.raises(InvalidRequestError, match=r"metrics\.column\.b\.c is 'most'"):
        tp.METRICS_OF_COLUMN.check({f"{prefix}a": "full", f"{prefix}b.c": "most"})


@pytest.mark.parametrize("name", tp.RESERVED)
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} is reserved"):
        tp.check_new({name: "1"}, [])


def test_values_of_properties_with_a_warning_are_checked_too() -> None:
    tp.check_new({"write.wap.enabled": "true", "owner": "anything at all"}, [])
    with pytest.raises(InvalidRequestError, match=r"write\.wap\.enabled is 'perhaps'"):
        tp.check_new({"write.wap.enabled": "perhaps"}, [])


def test_a_warning_names_the_property_where_it_would_matter() -> None:
    properties = {"write.wap.enabled": "TRUE", "write.delete.granularity": "file", "owner": "me"}

    (warning,) = tp.warnings(properties, [Use.LOAD, Use.DELETE])
    assert "write.wap.enabled" in warning
    assert tp.warnings(properties, [Use.DELETE]) == []


# What PyIceberg reads, in the process that commits or on a catalog's server.
_READ_BY_PYICEBERG = {"PREVIOUS_METADATA"}


def test_every_property_that_is_honoured_is_read_somewhere() -> None:
    core = Path(tp.__file__).parents[2]
    modules = {path: path.read_text() for path in core.rglob("*.py") if path.name != NAME}
    assert len(modules) < len(list(core.rglob("*.py")))
    constants = {name: item for name, item in vars(tp).items() if isinstance(item, Setting)}
    groups = {"COMMIT_RETRY": tp.COMMIT_RETRY, "STATUS_CHECK": tp.STATUS_CHECK}
    sites = "\n".join(modules.values())

    def is_read(name: str) -> bool:
        names = [name, *(group for group, items in groups.items() if constants[name] in items)]
        return any(re.search(rf"\b{one}\b", sites) for one in names)

    unread = {name for name in constants if not is_read(name)}
    assert unread == _READ_BY_PYICEBERG
