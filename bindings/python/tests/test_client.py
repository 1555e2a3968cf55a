"""The calls of a client."""

import array
import asyncio
import io
import os
import pickle
import subprocess
import threading

import pytest

import nicstripe
import nicstripe.aio


def test_a_file_goes_there_and_back_with_progress(client, tmp_path, root):
    source, data = tmp_path / "source", os.urandom(3 << 20)
    source.write_bytes(data)
    seen = []
    report = client.put(source, "dir/file", parents=True, progress=seen.append)
    assert report.size == len(data) and (root / "dir/file").read_bytes() == data
    assert seen[-1]["bytes"] == seen[-1]["size_bytes"] == len(data)
    assert report.as_dict()["links"][0]["interface"] == "lo"
    assert report.as_dict()["blake3"] == report.digest and report.elapsed > 0
    back = client.get("dir/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data and back.digest == report.digest


def test_a_tree_goes_there_and_back(client, tmp_path, root):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/one").write_bytes(b"1")
    (tree / "skipped.tmp").write_bytes(b"2")
    client.put(tree, "copy", exclude=["*.tmp"])
    assert sorted(path.name for path in (root / "copy").rglob("*")) == ["one", "sub"]
    client.put([tree / "sub", tree / "skipped.tmp"], "both")
    assert (root / "both/skipped.tmp").exists() and (root / "both/sub/one").exists()
    client.get("copy", tmp_path / "back")
    assert (tmp_path / "back/sub/one").read_bytes() == b"1"
    with pytest.raises(TypeError, match="delete"):
        client.put(tree / "skipped.tmp", "x", delete=True)


def test_entries_that_fail_make_the_copy_of_a_tree_raise(client, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/same").write_bytes(b"new")
    client.write("copy/same", b"old, longer", parents=True)
    with pytest.raises(nicstripe.IncompleteError) as raised:
        client.put([tmp_path / "tree/same"], "copy")
    assert raised.value.report.as_dict()["tree"]["failed"] == 1


def test_events_are_iterated_and_end_with_the_copy(client, tmp_path):
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    with client.start_put(tmp_path / "file") as transfer:
        events = [event["event"] for event in transfer]
        assert events[:2] == ["connected", "started"]
        assert transfer.finish().size == 1 << 20
    with client.start_put(tmp_path / "file", "left"):
        pass
    with pytest.raises(nicstripe.CallerError) as raised:
        transfer.finish()
    assert raised.value.word == "closed"


def test_a_copy_is_cancelled_by_another_thread(connect, tmp_path):
    (tmp_path / "file").write_bytes(bytes(8 << 20))
    transfer = connect(bandwidth_bps=8_000_000).start_put(tmp_path / "file")
    next(transfer)
    threading.Timer(0.1, transfer.cancel).start()
    with pytest.raises(nicstripe.Error) as raised:
        transfer.finish()
    assert raised.value.word == "cancelled" and raised.value.resumable


def test_an_open_file_is_a_python_file(client):
    data = os.urandom(3_000_001)
    with client.open("file", "wb") as file:
        for at in range(0, len(data), 100_000):
            file.write(memoryview(data)[at : at + 100_000])
    assert file.report.size == len(data)
    with client.open("file") as file:
        assert file.read(10) == data[:10] and file.tell() == 10
        assert file.seek(-5, io.SEEK_END) == len(data) - 5 and file.read() == data[-5:]
        into = bytearray(1_000_000)
        file.seek(7)
        assert file.readinto(into) == len(into) and into == data[7:1_000_007]
    with client.open("file", buffering=0) as file:
        assert file.readall() == data and file.read() == b"" and file.size == len(data)
    with client.open("text", "w", encoding="utf-8") as file:
        file.write("one\nzwei ü\n")
    with client.open("text", "r", encoding="utf-8") as file:
        assert file.readlines() == ["one\n", "zwei ü\n"]


def test_a_file_that_is_not_closed_does_not_appear(client):
    with pytest.raises(KeyError):
        with client.open("failed", "wb") as file:
            file.write(bytes(2 << 20))
            raise KeyError
    with pytest.raises(KeyError):
        with client.open("failed", "w") as file:
            file.write("text")
            raise KeyError
    dropped = client.open("failed", "wb")
    dropped.write(b"x")
    with pytest.warns(ResourceWarning, match="not closed"):
        del dropped
    with pytest.raises(KeyError):
        with client.open("failed", "wb", buffering=0) as raw:
            raw.write(b"x")
            raise KeyError
    assert client.list() == []


def test_an_exclusive_file_exists_only_once(client):
    with client.open("file", "xb") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError):
        client.open("file", "xb")
    first, second = (client.open("other", "xb") for _ in range(2))
    first.close()
    with pytest.raises(OSError):
        second.close()


def test_any_buffer_is_written_and_read_into(client):
    numbers = array.array("d", range(1000))
    client.write("numbers", numbers)
    assert client.read("numbers") == numbers.tobytes()
    read = array.array("d", bytes(8000))
    assert client.read_into("numbers", read) == 8000 and read == numbers
    assert client.read_into("numbers", bytearray(10), 7995) == 5
    client.write("numbers", memoryview(b"0123456789")[2:5], replace=True)
    assert client.read("numbers", 1) == b"34" and client.read("numbers", 1, 2) == b"3"
    with pytest.raises(ValueError, match="contiguous"):
        client.write("x", memoryview(b"0123")[::2])
    with pytest.raises(ValueError, match="writable"):
        client.read_into("numbers", b"123")
    with pytest.raises(TypeError):
        client.write("x", "text")


def test_names_are_listed_renamed_copied_joined_and_removed(client):
    client.write("d/one", b"1", parents=True)
    client.copy("d/one", "d/two")
    assert client.concat(["d/one", "d/two"], "d/both").size == 2
    assert [stat.name for stat in client.list("d")] == ["both", "one", "two"]
    names = [(stat.name, stat.kind) for stat in client.walk()]
    assert names == [("d", "dir"), ("d/both", "file"), ("d/one", "file"), ("d/two", "file")]
    assert [stat.name for stat in client.walk("d", after="one")] == ["two"]
    client.rename("d/one", "e/one", parents=True)
    stat = client.stat("e/one")
    assert stat.is_file and stat.size == 1 and stat.modified > 1.7e9 and stat.etag
    assert client.verify("e/one").digest == client.list("e", digests=True)[0].digest
    assert len(client.remove_many(["d/both", "d/none", "e/one", "e"])) == 1
    client.remove("d/two")
    client.make_dir("d/f/g")
    assert [stat.name for stat in client.walk()] == ["d", "d/f", "d/f/g"]


def test_a_condition_is_checked_by_the_daemon(client):
    tag = client.write("file", b"1").etag
    client.write("file", b"2", only_if=tag)
    for call in (
        lambda: client.write("file", b"3", only_if=tag),
        lambda: client.read("file", only_if=tag),
        lambda: client.remove("file", only_if=tag),
        lambda: client.rename("file", "x", only_if=tag),
        lambda: client.open("file", only_if=tag),
    ):
        with pytest.raises(nicstripe.Error) as raised:
            call()
        assert raised.value.code == "precondition"
    with pytest.raises(ValueError, match="entity tag"):
        client.remove("file", only_if="no tag")


def test_a_name_that_is_not_utf_8_is_surrogate_escaped(client, root):
    name = b"caf\xe9".decode(errors="surrogateescape")
    client.write(name, b"1")
    assert os.listdir(os.fsencode(root)) == [b"caf\xe9"]
    assert client.list()[0].name == name and client.stat(b"caf\xe9").name == name
    with client.open(b"caf\xe9") as file:
        assert file.read() == b"1"


def test_links_and_bench_are_dicts(client):
    links = client.links()["links"]
    assert links[0]["state"] == "up" and links[0]["streams"] == 1
    report = client.bench(0.2, repeats=1, budget=1.0)
    assert report["runs"] and report["links"]


def test_a_command_is_run_as_subprocess_does(client, binary, tmp_path):
    with pytest.raises(nicstripe.PeerError) as raised:
        client.exec(["ls"])
    assert raised.value.word == "unsupported"
    there, here = tmp_path / "there", tmp_path / "here"
    of = lambda home: {**os.environ, "NICSTRIPE_HOME": str(home)}  # noqa: E731
    run = lambda home, *args: subprocess.run(  # noqa: E731
        [binary, *args], env=of(home), check=True, capture_output=True, text=True
    ).stdout
    keys = {home: run(home, "key").splitlines()[0] for home in (there, here)}
    run(there, "trust", "add", keys[here], "--name", "here", "--exec", "cat", "--exec", "sh -c *")
    run(here, "trust", "add", keys[there], "--name", "there")
    (tmp_path / "empty").mkdir()
    serve = [binary, "serve", "--root", str(tmp_path / "empty"), "--port", "0", "--interface", "lo"]
    daemon = subprocess.Popen(serve, env=of(there), stderr=subprocess.PIPE, text=True)
    try:
        listening = next(line for line in daemon.stderr if line.startswith("listening"))
        port = int(listening.split("port ")[1])
        with nicstripe.Client("127.0.0.1", port=port, home=here) as client:
            assert client.exec(["cat"], input=b"bytes").stdout == b"bytes"
            failed = client.exec(["sh", "-c", "echo out; echo err >&2; exit 3"], text=True)
            assert (failed.returncode, failed.stdout, failed.stderr) == (3, "out\n", "err\n")
            assert client.exec(["sh", "-c", "kill -9 $$"]).returncode in (137, -9)
            with pytest.raises(subprocess.CalledProcessError):
                client.exec(["sh", "-c", "exit 1"], check=True)
            with pytest.raises(TimeoutError):
                client.exec(["sh", "-c", "sleep 60"], timeout=0.3)
            with pytest.raises(PermissionError):
                client.exec(["id"])
    finally:
        daemon.terminate()
        daemon.wait(20)


def test_asyncio_awaits_the_same_calls(server):
    async def run():
        settings = {"port": server.port, "home": server.home}
        async with await nicstripe.aio.connect(server.host, **settings) as client:
            names = [f"{number}" for number in range(20)]
            await asyncio.gather(*(client.write(name, name.encode()) for name in names))
            assert await asyncio.gather(*map(client.read, names)) == [n.encode() for n in names]
            assert len([stat async for stat in client.walk()]) == 20
            await asyncio.to_thread(server.close)
            begun = asyncio.get_running_loop().time()
            for waiting in (client.stat("1"), client.put("/bin/sh", progress=print), anext(client.walk())):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.3)
            assert asyncio.get_running_loop().time() - begun < 5

    asyncio.run(run())


def test_exceptions_are_pickled_with_their_fields(client):
    with pytest.raises(FileNotFoundError) as raised:
        client.stat("none")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is type(raised.value) and vars(copy) == vars(raised.value)
    assert str(copy) == str(raised.value) and isinstance(copy, nicstripe.CallerError)
