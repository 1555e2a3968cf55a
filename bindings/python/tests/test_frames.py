"""pandas, pyarrow and zarr read and write through fsspec."""

import io
import json
import pickle
import subprocess
import sys
import threading

import pytest

import nicstripe

fsspec = pytest.importorskip("fsspec")

from nicstripe.fsspec import NicstripeFileSystem  # noqa: E402


@pytest.fixture
def options(server):
    return {"port": server.port, "home": str(server.home)}


def test_pandas_writes_and_reads_a_table(options):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame({"number": range(10_000), "text": [str(n) for n in range(10_000)]})
    for url, write, read in [
        ("nicstripe://127.0.0.1/d/table.parquet", table.to_parquet, pandas.read_parquet),
        ("nicstripe://127.0.0.1/d/table.csv", table.to_csv, pandas.read_csv),
    ]:
        write(url, storage_options=options, index=False)
        back = read(url, storage_options=options)
        assert back["number"].sum() == table["number"].sum() and list(back) == list(table)


def test_pyarrow_writes_and_reads_a_dataset_in_partitions(options):
    dataset = pytest.importorskip("pyarrow.dataset")
    import pyarrow

    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **options)
    table = pyarrow.table({"part": [n % 3 for n in range(9000)], "number": list(range(9000))})
    dataset.write_dataset(
        table, "lake", format="parquet", filesystem=fs, partitioning=["part"], partitioning_flavor="hive"
    )
    read = dataset.dataset("lake", filesystem=fs, partitioning="hive")
    one = read.to_table(filter=dataset.field("part") == 1)
    assert read.count_rows() == 9000 and sum(one["number"].to_pylist()) == sum(range(1, 9000, 3))


def test_zarr_writes_and_reads_an_array(options):
    zarr = pytest.importorskip("zarr")
    url = "nicstripe://127.0.0.1/array.zarr"
    array = zarr.create_array(url, shape=(100, 100), chunks=(50, 50), dtype="i4", storage_options=options)
    array[:] = 7
    array[50:, :] = 1
    again = zarr.open_array(url, mode="r", storage_options=options)
    assert int(again[:].sum()) == 100 * 50 * 8


def test_a_file_system_is_pickled_and_found_by_its_url(options, server):
    fs, path = fsspec.url_to_fs("nicstripe://127.0.0.1/dir/file", **options)
    fs.pipe_file(path, b"0123456789")
    copy = pickle.loads(pickle.dumps(fs))
    assert copy == fs and copy.cat_ranges([path] * 2, [0, -3], [2, None]) == [b"01", b"789"]
    with fsspec.open("nicstripe://127.0.0.1/dir/text", "w", **options) as file:
        file.write("text")
    assert fs.cat("dir/*") == {"dir/file": b"0123456789", "dir/text": b"text"}
    assert fs.find("") == ["dir/file", "dir/text"] and fs.du("dir") == 14
    read = "import fsspec, pickle, sys; fs = pickle.load(sys.stdin.buffer); print(fs.ls('dir', False))"
    other = subprocess.run(
        [sys.executable, "-c", read], input=pickle.dumps(fs), capture_output=True, timeout=60
    )
    assert other.stdout == b"['dir/file', 'dir/text']\n", other.stderr


FORK = """
import fsspec, json, multiprocessing, sys
fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **json.loads(sys.argv[1]))
fs.pipe_file("file", b"1")
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(fs.cat_file, ["file"] * 4, chunksize=1))
"""


def test_a_file_system_connects_again_in_a_forked_child(options):
    # In a process of its own: pandas, pyarrow and zarr have threads here, which forks do not survive.
    command = [sys.executable, "-c", FORK, json.dumps(options)]
    forked = subprocess.run(command, capture_output=True, timeout=60)
    assert forked.stdout == b"[b'1', b'1', b'1', b'1']\n", forked.stderr


def test_a_compressed_file_is_complete(options):
    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **options)
    for compression in ("gzip", "bz2", "xz", "infer"):
        with fs.open("file.gz", "wb", compression=compression) as file:
            file.write(b"content" * 1000)
        with fs.open("file.gz", "rb", compression=compression) as file:
            assert file.read() == b"content" * 1000
    with fs.open("text", "wt", compression="gzip", encoding="utf-8") as file:
        file.write("text")
    with fsspec.open("nicstripe://127.0.0.1/text", "rt", compression="gzip", **options) as file:
        assert file.read() == "text"
    assert fs.cat("text", start=0, end=2) == b"\x1f\x8b"


def test_a_transaction_is_committed_whole_or_not_at_all(options):
    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **options)
    with pytest.raises(KeyError):
        with fs.transaction:
            with fs.open("one", "wb") as file:
                file.write(b"1")
            raise KeyError
    assert fs.ls("") == []
    with fs.transaction:
        with fs.open("one", "wb") as file:
            file.write(b"1")
        assert not fs.exists("one")
    assert fs.cat("one") == b"1"


def test_a_directory_is_moved_and_never_into_itself(options):
    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **options)
    fs.pipe("d/e/file", b"1")
    for target in ("d/e/f", "d/new/d"):
        with pytest.raises(ValueError, match="into itself"):
            fs.mv("d", target, recursive=True)
    fs.mv("d/", "d", recursive=True)
    fs.mv("d", "moved/d", recursive=True)
    fs.mv("moved/d/e/file", "moved/d")
    assert fs.find("") == ["moved/d/file"]
    fs.rm("", recursive=True)
    assert fs.ls("") == []


def test_an_error_is_not_an_answer(options, server):
    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", patience=0.3, **options)
    fs.pipe("d/file", b"1")
    assert fs.cat_file("d/file", 5) == b"" and not fs.exists("d/file/x") and not fs.isdir("x")
    server.close()
    for call in (
        lambda: fs.exists("d"),
        lambda: fs.isfile("d"),
        lambda: fs.glob("*"),
        lambda: fs.find("", maxdepth=1),
        lambda: list(fs.walk("")),
    ):
        with pytest.raises(nicstripe.Error):
            call()


def test_a_url_names_host_and_port_and_instances_share_a_session(options):
    of_url = NicstripeFileSystem._get_kwargs_from_urls
    assert of_url("nicstripe://[fe80::1%eth1]:7/a") == {"host": "fe80::1%eth1", "port": 7}
    assert of_url("nicstripe://Nas/a/b") == {"host": "Nas"} and of_url("a/b") == {}
    assert NicstripeFileSystem("::1", 7).unstrip_protocol("/a") == "nicstripe://[::1]:7/a"
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fsspec.filesystem("nicstripe", host="127.0.0.1", **options).client))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8 and len(set(map(id, found))) == 1


def test_a_file_is_got_into_memory_and_not_over_a_directory(options, tmp_path):
    fs, memory = fsspec.filesystem("nicstripe", host="127.0.0.1", **options), io.BytesIO()
    fs.pipe("file", b"1")
    fs.get_file("file", memory)
    assert memory.getvalue() == b"1"
    with pytest.raises(IsADirectoryError):
        fs.get_file("file", str(tmp_path))


def test_a_part_that_was_not_written_whole_does_not_appear(options):
    fs = fsspec.filesystem("nicstripe", host="127.0.0.1", **options)
    with pytest.raises(nicstripe.Error):
        with fs.open("file", "wb") as file:
            file.write(b"1")
            raise nicstripe.Error
    with pytest.raises(nicstripe.Error):
        with fs.open("file", "w") as file:
            file.write("1")
            raise nicstripe.Error
    assert fs.ls("") == []
    with pytest.raises(NotImplementedError, match="ab"):
        fs.open("file", "ab")
