"""`lake ingest --watch` on a bucket: objects are loaded once, and moved or deleted after their commit."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from support.cli.service_line import Service
from support.faults.faulty_proxy import Proxy, refused
from support.servers.s3_server import S3


def _put(s3: S3, path: str, *ids: int) -> None:
    with s3.files().open_output_stream(path) as file:
        file.write(("id,name\n" + "".join(f"{one},a\n" for one in ids)).encode())


@pytest.mark.parametrize("glob", [False, True])
@pytest.mark.parametrize("done", ["keep", "move", "delete"])
def test_objects_are_loaded_once(on_s3: Service, s3: S3, done: str, *, glob: bool) -> None:
    bucket = s3.bucket()
    folder = f"s3://{bucket}/drop"
    lake = on_s3.line("inline")
    words: tuple[Any, ...] = ("ingest", "db.t", "--create", "--stream", "s", "--once")
    words = (*words, "--watch", f"{folder}/**/*.csv" if glob else folder, "--settle", "0s")
    words = (*words, "--state", on_s3.folder / "state", "--done")
    words = (*words, f"move:{folder}/done" if done == "move" else done)
    _put(s3, f"{bucket}/drop/a b.csv", 1)
    _put(s3, f"{bucket}/drop/day/b.csv", 2, 3)
    _put(s3, f"{bucket}/drop/day/_c.csv", 9)
    lake.ok(*words)
    _put(s3, f"{bucket}/drop/day/d.csv", 4)
    lake.ok(*words)

    assert lake.ok(*words)["status"] == "nothing-to-do"
    rows = on_s3.catalog().load_table("db.t").scan().to_arrow()
    assert sorted(rows.column("id").to_pylist()) == [1, 2, 3, 4]
    left = {file.removeprefix(f"{bucket}/drop/") for file in _files(s3, f"{bucket}/drop")}
    names = {"a b.csv", "day/b.csv", "day/d.csv"}
    kept = {"keep": names, "delete": set(), "move": {f"done/{name}" for name in names}}
    assert left == {"day/_c.csv", *kept[done]}


def test_a_moved_object_that_could_not_be_deleted_is_not_copied_once_more(
    on_s3: Service, s3: S3, proxy: Proxy
) -> None:
    bucket = s3.bucket()
    service = replace(on_s3, properties={**on_s3.properties, "s3.endpoint": proxy.uri})
    words = ("ingest", "db.t", "--create", "--stream", "s", "--once", "--settle", "0s")
    words = (*words, "--watch", f"s3://{bucket}/drop", "--state", str(on_s3.folder / "state"))
    words = (*words, "--done", f"move:s3://{bucket}/done")
    _put(s3, f"{bucket}/drop/a.csv", 1)
    lake = service.line("inline")
    for method in ("POST", "DELETE"):
        # The object with which the folder is tried is deleted before.
        proxy.fail(method, "", lambda _, forward: forward(), *[refused(403)] * 3)
    failed = lake("--json", *words)
    proxy.heal()
    assert (failed.exit_code, sorted(_files(s3, bucket))) == (
        7,
        [f"{bucket}/done/a.csv", f"{bucket}/drop/a.csv"],
    )
    copies = proxy.times("PUT", "done/a")
    lake.ok(*words)

    assert _files(s3, bucket) == [f"{bucket}/done/a.csv"]
    assert proxy.times("PUT", "done/a") == copies == 1
    # Another object of this name, with the same contents, is one more. A store reports its time in whole seconds.
    time.sleep(1)
    _put(s3, f"{bucket}/drop/a.csv", 1)
    lake.ok(*words, "--on-rewrite", "again")
    assert sorted(_files(s3, bucket)) == [f"{bucket}/done/a-epoch-2.csv", f"{bucket}/done/a.csv"]
    assert service.rows() == [(1, "a"), (1, "a")]


def _files(s3: S3, folder: str) -> list[str]:
    import pyarrow.fs as pafs

    selector: Any = pafs.FileSelector(folder, recursive=True)
    infos = s3.files().get_file_info(selector)
    return [info.path for info in infos if info.type == pafs.FileType.File]
