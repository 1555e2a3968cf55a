"""Backend of borgstore: what borgstore's documentation says of a backend and of a store on it."""

import array
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("borgstore", reason="borgstore is not installed")

from borgstore.backends import errors
from borgstore.backends.posixfs import PosixFS
from borgstore.store import Store

import nicstripe
from nicstripe.borgstore import Backend, _translated, get_nicstripe_backend

pytestmark = pytest.mark.timeout(120)

CONFIG = {"data": {"levels": [2]}, "config": {"levels": [0]}}
MIB = 1 << 20
BLAKE3_OF_HELLO = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f"


@pytest.fixture(params=["disk", "memory"])
def server(request, tmp_path):
    root = tmp_path if request.param == "disk" else None
    with nicstripe.serve(root) as server:
        yield server


@pytest.fixture
def client(server):
    with nicstripe.Client(server.host, port=server.port, home=server.home) as client:
        yield client


@pytest.fixture
def backend(client):
    backend = Backend(client, "repo")
    backend.create()
    with backend:
        yield backend


@pytest.fixture
def store(client):
    store = Store(backend=Backend(client, "repo"), config=CONFIG)
    store.create()
    with store:
        yield store


def of(server, path="repo"):
    return Backend(server.host, path, port=server.port, home=server.home)


def names(infos):
    return [info.name for info in infos]


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


# Life of a storage.


def test_a_new_storage_is_empty_and_ends_with_destroy(server):
    backend = of(server, "some/deep/repo")
    backend.create()
    with backend:
        assert list(backend.list("")) == []
        backend.store("data/a", b"1")
    backend.destroy()
    with pytest.raises(errors.BackendDoesNotExist):
        backend.open()


def test_the_root_of_the_daemon_is_a_storage(server):
    backend = of(server, "")
    backend.create()
    with backend:
        backend.mkdir("")
        backend.store("data/a", b"1")
        assert names(backend.list("")) == ["data"]
        assert backend.info("").directory
    backend.destroy()
    with backend:
        assert list(backend.list("")) == []


def test_an_empty_directory_becomes_a_storage(server, client):
    client.make_dir("repo")
    of(server).create()


def test_create_of_a_storage_with_content_is_refused(backend, client):
    backend.store("a", b"1")
    with pytest.raises(errors.BackendAlreadyExists):
        Backend(client, "repo").create()
    assert backend.load("a") == b"1"


def test_destroy_leaves_what_is_outside(backend, client):
    client.write("other", b"1")
    for name in ("data/00/11/0011", "data/00/12/0012", "a"):
        backend.store(name, b"1")
    backend.close()
    backend.destroy()
    assert names(client.list()) == ["other"]
    backend.create()
    backend.open()


@pytest.mark.parametrize("call", ["open", "destroy"])
def test_a_storage_that_does_not_exist(server, client, call):
    with pytest.raises(errors.BackendDoesNotExist):
        getattr(of(server), call)()
    client.write("repo", b"a file")
    with pytest.raises(errors.BackendDoesNotExist):
        getattr(of(server), call)()
    assert client.read("repo") == b"a file"


@pytest.mark.parametrize("call", ["create", "destroy", "open"])
def test_an_open_backend_must_not_be_open(backend, call):
    with pytest.raises(errors.BackendMustNotBeOpen):
        getattr(backend, call)()


CALLS = {
    "close": lambda backend: backend.close(),
    "mkdir": lambda backend: backend.mkdir("a"),
    "rmdir": lambda backend: backend.rmdir("a"),
    "info": lambda backend: backend.info("a"),
    "load": lambda backend: backend.load("a"),
    "store": lambda backend: backend.store("a", b""),
    "delete": lambda backend: backend.delete("a"),
    "move": lambda backend: backend.move("a", "b"),
    "gather": lambda backend: backend.gather([]),
    "defrag": lambda backend: backend.defrag([], target="a"),
    "hash": lambda backend: backend.hash("a"),
    "list": lambda backend: list(backend.list("")),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_backend_must_be_open(client, call):
    with pytest.raises(errors.BackendMustBeOpen):
        CALLS[call](Backend(client, "repo"))


def test_a_given_client_stays_open_and_an_own_one_does_not(server, client):
    backend = of(server)
    backend.create()
    with backend:
        own = backend._client
    with pytest.raises(nicstripe.Error):
        own.stat("repo")
    with Backend(client, "repo"):
        pass
    assert client.stat("repo").is_dir


def test_settings_of_an_open_client_are_refused(client):
    with pytest.raises(TypeError):
        Backend(client, "repo", port=1)


def test_a_daemon_that_cannot_be_reached_is_a_connection_error(server):
    backend = of(server)
    server.close()
    for call in (backend.create, backend.open, backend.destroy):
        with pytest.raises(errors.BackendConnectionError):
            call()


ERRORS = {
    "no_space": errors.QuotaExceeded,
    "not_found": errors.ObjectNotFound,
    "not_a_directory": errors.ObjectNotFound,
    "not_a_file": errors.ObjectNotFound,
    "not_permitted": errors.PermissionDenied,
    "timed_out": errors.BackendConnectionError,
    "ended": errors.BackendConnectionError,
    "untrusted": errors.PermissionDenied,
    "io": errors.BackendError,
}


@pytest.mark.parametrize("word", ERRORS)
def test_errors_of_a_client_are_those_of_borgstore(word):
    fields = {"word": word, "number": 0, "actor": "peer", "code": word, "exit_code": 1}
    error = nicstripe._errors.make("text", retryable=False, resumable=False, **fields)
    with pytest.raises(errors.BackendError, match="data/a: .*text") as raised, _translated("data/a"):
        raise error
    assert type(raised.value) is ERRORS[word] and raised.value.__cause__ is error


# Names.

BAD = ["/a", "a/", "../a", "a/../b", "a b", "a\\b", "UP", "é", "x.tmp", "x.hid", "a" * 101]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_by_all_calls(backend, name):
    backend.store("good", b"1")
    calls = [
        lambda: backend.mkdir(name),
        lambda: backend.rmdir(name),
        lambda: backend.info(name),
        lambda: backend.load(name),
        lambda: backend.store(name, b""),
        lambda: backend.delete(name),
        lambda: backend.move("good", name),
        lambda: backend.move(name, "good"),
        lambda: backend.gather([(name, 0, 1)]),
        lambda: backend.defrag([("good", 0, 1)], target=name),
        lambda: backend.hash(name),
        lambda: list(backend.list(name)),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
    assert backend.load("good") == b"1"


def test_names_that_the_daemon_refuses_are_value_errors(backend):
    for name in ("./a", "a\0b"):
        with pytest.raises(ValueError):
            backend.store(name, b"")


def test_listings_have_only_good_names(backend, client):
    for name in ("UP", "x.tmp", "quota.hid", "a b", b"\xff", "good"):
        client.write(name if isinstance(name, bytes) else f"repo/{name}", b"1")
    client.write(b"repo/\xfe", b"1")
    assert names(backend.list("")) == ["good"]


# Values.

SIZES = [0, 1, 2 * MIB, 5 * MIB]


@pytest.mark.parametrize("size", SIZES)
def test_a_value_is_loaded_as_it_was_stored(backend, size):
    value = random.Random(size).randbytes(size)
    backend.store("data/ab", value)
    loaded = backend.load("data/ab")
    assert isinstance(loaded, bytes) and loaded == value
    assert backend.info("data/ab").size == size
    assert backend.hash("data/ab") == hashlib.sha256(value).hexdigest()


def test_memoryviews_are_stored_and_not_kept(backend):
    buffer = bytearray(random.Random(1).randbytes(3 * MIB))
    part = bytes(buffer[7 : 2 * MIB])
    view = memoryview(buffer)[7 : 2 * MIB]
    backend.store("a", view)
    view.release()
    buffer.extend(b"resizable again")
    assert backend.load("a") == part


def test_a_memoryview_of_integers_is_stored_as_its_bytes(backend):
    numbers = array.array("I", range(1000))
    backend.store("a", memoryview(numbers))
    assert backend.load("a") == numbers.tobytes()


def test_a_memoryview_with_gaps_is_refused(backend):
    with pytest.raises(ValueError):
        backend.store("a", memoryview(b"abcdef")[::2])
    assert not backend.info("a").exists


RANGES = [
    (offset, size)
    for offset in (0, 1, 9, 10, 11, 1000, -1, -9, -10)
    for size in (None, 0, 1, 9, 10, 11, 1000)
]


def test_ranges_are_those_of_a_local_file(backend, tmp_path):
    local = PosixFS(tmp_path / "local")
    local.create()
    with local:
        for store in (local, backend):
            store.store("a", b"0123456789")
        for offset, size in RANGES:
            expected = local.load("a", offset=offset, size=size)
            assert backend.load("a", offset=offset, size=size) == expected, (offset, size)


def test_an_offset_before_the_start_means_the_start(backend):
    backend.store("a", b"0123")
    assert backend.load("a", offset=-9) == b"0123"
    assert backend.load("a", offset=-9, size=2) == b"01"


def test_an_item_that_does_not_exist_is_not_found(backend):
    backend.store("data/file", b"1")
    for name in ("none", "none/below", "data/file/below"):
        for call in (
            backend.load,
            backend.delete,
            backend.hash,
            lambda name: backend.load(name, offset=-1),
            lambda name: backend.move(name, "other"),
            lambda name: backend.hash(name, "blake3"),
            lambda name: backend.gather([(name, 0, 1)]),
            lambda name: list(backend.list(name)),
        ):
            with pytest.raises(errors.ObjectNotFound):
                call(name)
        info = backend.info(name)
        assert (info.name, info.exists, info.size) == (name.split("/")[-1], False, 0)


def test_a_directory_is_no_item(backend):
    backend.store("data/a", b"1")
    for call in (backend.load, backend.hash):
        with pytest.raises(errors.ObjectNotFound):
            call("data")
    with pytest.raises(errors.BackendError):
        backend.store("data", b"")
    assert backend.load("data/a") == b"1"


# Directories and listings.


def test_directories_are_made_with_parents_and_removed_if_empty(backend):
    backend.mkdir("data/00/11")
    backend.mkdir("data/00/11")
    assert backend.info("data/00").directory
    with pytest.raises(errors.BackendError):
        backend.rmdir("data")
    backend.rmdir("data/00/11")
    assert not backend.info("data/00/11").exists
    with pytest.raises(errors.ObjectNotFound):
        backend.rmdir("data/00/11")


def test_rmdir_removes_no_item(backend):
    backend.store("a", b"1")
    with pytest.raises(errors.BackendError):
        backend.rmdir("a")
    assert backend.load("a") == b"1"


def test_a_listing_is_sorted_and_of_one_directory(backend):
    before = time.time()
    for name in ("b", "a10", "a1", "a.del", "a-", "dir/below"):
        backend.store(name, b"123")
    infos = list(backend.list(""))
    assert names(infos) == sorted(["b", "a10", "a1", "a.del", "a-", "dir"])
    assert [info.name for info in infos if info.directory] == ["dir"]
    assert all(info.exists for info in infos)
    assert all(info.size == 3 and abs(info.mtime - before) < 60 for info in infos if not info.directory)
    assert {info.atime for info in infos} == {0}


def test_three_hundred_items_are_listed(backend):
    for number in range(300):
        backend.store(f"data/{key(number)}", b"%d" % number)
    assert names(backend.list("data")) == sorted(map(key, range(300)))


def test_unfinished_files_are_never_listed(backend, client):
    backend.mkdir("data")
    writer = client.open_writer("repo/data/ab", replace=True)
    writer.write(bytes(3 * MIB))
    try:
        assert list(backend.list("data")) == []
        assert not backend.info("data/ab").exists
    finally:
        writer.discard()


# Changes.


def test_an_item_is_overwritten_and_deleted(backend):
    backend.store("a", b"long content")
    backend.store("a", b"new")
    assert backend.load("a") == b"new"
    backend.delete("a")
    assert not backend.info("a").exists


def test_move_overwrites_and_makes_directories(backend):
    backend.store("a", b"1")
    backend.store("b", b"2")
    backend.move("a", "b")
    assert backend.load("b") == b"1" and not backend.info("a").exists
    backend.move("b", "new/deep/c")
    assert backend.load("new/deep/c") == b"1"
    backend.move("new/deep/c", "new/deep/c")
    assert backend.load("new/deep/c") == b"1"


def test_readers_see_the_old_content_or_the_new(server, backend):
    contents = [bytes([number]) * MIB for number in (1, 2)]
    backend.store("a", contents[0])
    ended, problems, reads = threading.Event(), [], [0]

    def read():
        with of(server) as reader:
            while not ended.is_set():
                whole, tail = reader.load("a"), reader.load("a", offset=-MIB)
                reads[0] += 1
                if whole not in contents or tail not in contents:
                    problems.append(len(whole))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(40):
            backend.store("a", contents[number % 2])
    finally:
        ended.set()
        thread.join(60)
    assert not thread.is_alive() and reads[0] > 0 and problems == []


KILLED = """
import sys
from nicstripe.borgstore import Backend
host, port, home = sys.argv[1:]
with Backend(host, "repo", port=int(port), home=home, bandwidth_bps=40_000_000) as backend:
    print("open", flush=True)
    backend.store("data/ab", bytes(30_000_000))
"""


def test_a_store_that_is_killed_changes_nothing(server, backend, client):
    backend.store("data/ab", b"old")
    arguments = [sys.executable, "-c", KILLED, server.host, str(server.port), str(server.home)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"open\n"
        time.sleep(1)
        assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    assert backend.load("data/ab") == b"old"
    assert names(backend.list("data")) == ["ab"]
    backend.store("data/ab", b"new")
    assert backend.load("data/ab") == b"new"


def test_two_clients_see_each_other_at_once(server, backend):
    with of(server) as other:
        backend.store("a", b"1")
        assert other.load("a") == b"1"
        other.move("a", "b")
        assert names(backend.list("")) == ["b"]
        other.delete("b")
        with pytest.raises(errors.ObjectNotFound):
            backend.load("b")


# gather, defrag, hash, quota.


def test_gather_is_the_ranges_in_their_order(backend):
    values = {f"data/{number}": random.Random(number).randbytes(100_000) for number in range(5)}
    for name, value in values.items():
        backend.store(name, value)
    rng = random.Random(0)
    sources, expected = [], b""
    for _ in range(60):
        name, offset = rng.choice(list(values)), rng.randrange(90_000)
        size = rng.randrange(10_000)
        sources.append((name, offset, size))
        expected += values[name][offset : offset + size]
    assert backend.gather(iter(sources)) == expected
    assert backend.gather([("data/0", -10, 4)]) == values["data/0"][-10:-6]
    assert backend.gather([]) == b""


@pytest.mark.parametrize("source", [("a", 0, 5), ("a", 4, 1), ("a", 9, 1), ("a", -2, 3)])
def test_a_short_read_of_gather_is_a_range_error(backend, source):
    backend.store("a", b"0123")
    for sources in ([source], [("a", 0, 1), source, ("a", 1, 1)]):
        with pytest.raises(errors.ReadRangeError):
            backend.gather(sources)


@pytest.mark.parametrize("source", ["a", ("a", 0), ("a", "0", 1), ("a", 0, -1), (1, 0, 1)])
def test_bad_sources_are_refused(backend, source):
    for call in (backend.gather, lambda sources: backend.defrag(sources, target="t")):
        with pytest.raises(ValueError):
            call([source])


PARTS = {
    "whole items": [("a", 0, 4), ("b", 0, 3), ("a", 0, 4)],
    "parts": [("a", 1, 2), ("b", -2, 2)],
    "a whole and a part": [("a", 0, 4), ("b", 0, 2)],
    "one item twice, once in part": [("a", 0, 2), ("a", 0, 4)],
    "nothing": [],
}


@pytest.mark.parametrize("sources", PARTS.values(), ids=PARTS)
def test_defrag_makes_the_item_that_gather_returns(backend, sources):
    backend.store("a", b"0123")
    backend.store("b", b"456")
    expected = backend.gather(sources)
    assert backend.defrag(sources, target="new/t") == "new/t"
    assert backend.load("new/t") == expected
    assert (backend.load("a"), backend.load("b")) == (b"0123", b"456")


def test_defrag_of_whole_items_moves_no_data(backend, monkeypatch):
    backend.store("a", b"0123")
    monkeypatch.setattr(Backend, "load", None)
    monkeypatch.setattr(Backend, "store", None)
    assert backend.defrag([("a", 0, 4), ("a", 0, 4)], target="t") == "t"
    assert backend.info("t").size == 8


def test_defrag_of_whole_items_to_a_blake3_moves_no_data(backend, monkeypatch):
    backend.store("data/a", b"hel")
    backend.store("data/b", b"lo")
    monkeypatch.setattr(Backend, "load", None)
    monkeypatch.setattr(Backend, "store", None)
    sources = [("data/a", 0, 3), ("data/b", 0, 2)]
    made = backend.defrag(sources, algorithm="blake3", namespace="data", levels=1)
    assert made == f"data/{BLAKE3_OF_HELLO[:2]}/{BLAKE3_OF_HELLO}"
    assert backend.hash(made, "blake3") == BLAKE3_OF_HELLO and backend.info(made).size == 5
    assert backend.defrag(sources, algorithm="blake3") == BLAKE3_OF_HELLO
    assert names(backend.list("")) == ["data", BLAKE3_OF_HELLO]
    assert names(backend._client.list("repo/data")) == ["a", "b", BLAKE3_OF_HELLO[:2]]


def test_defrag_may_replace_its_source(backend):
    backend.store("a", b"0123")
    backend.defrag([("a", 0, 4), ("a", 0, 4)], target="a")
    assert backend.load("a") == b"01230123"


def test_defrag_names_its_item_after_the_content(backend):
    backend.store("data/a", b"hello world")
    name = hashlib.sha256(b"hello").hexdigest()
    sources = [("data/a", 0, 5)]
    made = backend.defrag(sources, algorithm="sha256", namespace="data", levels=2)
    assert made == f"data/{name[:2]}/{name[2:4]}/{name}"
    assert backend.load(made) == b"hello"
    with pytest.raises(ValueError):
        backend.defrag(sources)


def test_a_short_defrag_makes_no_item(backend):
    backend.store("a", b"0123")
    with pytest.raises(errors.ReadRangeError):
        backend.defrag([("a", 0, 5)], target="t")
    with pytest.raises(errors.ObjectNotFound):
        backend.defrag([("none", 0, 0), ("none", 0, 1)], target="t")
    assert not backend.info("t").exists


def test_hashes_are_of_the_content(backend):
    backend.store("a", b"hello")
    for algorithm in ("sha256", "md5", "blake2b"):
        assert backend.hash("a", algorithm) == hashlib.new(algorithm, b"hello").hexdigest()
    assert backend.hash("a", "blake3") == BLAKE3_OF_HELLO
    with pytest.raises(ValueError):
        backend.hash("a", "no-such-hash")


def test_a_hash_is_of_the_bytes_on_disk_now(tmp_path):
    with nicstripe.serve(tmp_path) as server:
        backend = of(server)
        backend.create()
        with backend:
            backend.store("a", b"jello")
            path, times = tmp_path / "repo/a", os.stat(tmp_path / "repo/a")
            path.write_bytes(b"hello")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            assert backend.hash("a") == hashlib.sha256(b"hello").hexdigest()
            try:
                assert backend.hash("a", "blake3") == BLAKE3_OF_HELLO
            except ValueError as error:
                # The daemon found damage, and this machine has no package blake3.
                assert "blake3" in str(error)


def test_no_quota_is_told(backend):
    assert backend.quota() == {"limit": -1, "usage": -1}


# Rights.


@pytest.fixture(params=["read_only", "append_only"])
def restricted(request, tmp_path):
    with nicstripe.serve(tmp_path) as server:
        backend = of(server)
        backend.create()
        with backend:
            backend.store("data/old", b"old")
            backend.mkdir("empty")
    with nicstripe.serve(tmp_path, **{request.param: True}) as server, of(server) as backend:
        yield request.param, backend


def test_a_restricted_peer_reads(restricted):
    _, backend = restricted
    assert backend.load("data/old", offset=-1) == b"d"
    assert names(backend.list("data")) == ["old"]
    assert backend.gather([("data/old", 0, 1), ("data/old", 2, 1)]) == b"od"
    assert backend.hash("data/old") == hashlib.sha256(b"old").hexdigest()


def test_a_restricted_peer_changes_nothing_that_exists(restricted):
    _, backend = restricted
    for call in (
        lambda: backend.store("data/old", b"new"),
        lambda: backend.delete("data/old"),
        lambda: backend.move("data/old", "data/old.del"),
        lambda: backend.defrag([("data/old", 0, 3)], target="data/old"),
        lambda: backend.defrag([("data/old", 0, 1)], target="data/old"),
        lambda: backend.rmdir("empty"),
    ):
        with pytest.raises(errors.PermissionDenied):
            call()
    backend.close()
    with pytest.raises(errors.PermissionDenied):
        backend.destroy()
    backend.open()
    assert backend.load("data/old") == b"old"


def test_only_an_appending_peer_adds(restricted):
    right, backend = restricted
    calls = [
        lambda: backend.store("data/new", b"new"),
        lambda: backend.store("more/new", b"new"),
        lambda: backend.mkdir("dir"),
        lambda: backend.defrag([("data/old", 0, 3)], target="data/whole"),
        lambda: backend.defrag([("data/old", 0, 1)], target="data/part"),
    ]
    for call in calls:
        if right == "append_only":
            call()
        else:
            with pytest.raises(errors.PermissionDenied):
                call()
    assert names(backend.list("data")) == (
        ["new", "old", "part", "whole"] if right == "append_only" else ["old"]
    )


def test_an_appending_peer_deletes_its_locks(restricted):
    right, backend = restricted
    if right == "append_only":
        backend.store(f"locks/{key(1)}", b"lock")
        backend.delete(f"locks/{key(1)}")
        assert list(backend.list("locks")) == []


# The Store on it.


def test_a_store_nests_names(store, client):
    name = key(1)
    store.store(f"data/{name}", b"1")
    store.store("config/manifest", b"2")
    assert client.read(f"repo/data/{name[:2]}/{name[2:4]}/{name}") == b"1"
    assert client.read("repo/config/manifest") == b"2"
    assert names(store.list("data")) == [name]
    assert store.load(f"data/{name}", offset=-1, size=1) == b"1"


def test_a_store_softly_deletes_and_undeletes(store):
    name = f"data/{key(1)}"
    store.store(name, b"1")
    store.move(name, delete=True)
    assert names(store.list("data")) == [] and names(store.list("data", deleted=True)) == [key(1)]
    assert store.load(name, deleted=True) == b"1"
    with pytest.raises(errors.ObjectNotFound):
        store.load(name)
    store.move(name, undelete=True)
    assert store.load(name) == b"1"


def test_a_store_changes_its_levels(client, store):
    items = {key(number): b"%d" % number for number in range(30)}
    for name, value in items.items():
        store.store(f"data/{name}", value)
    store.set_levels({"data": [2, 1], "config": [0]})
    for name, value in items.items():
        assert store.load(f"data/{name}") == value
        store.move(f"data/{name}", change_level=True)
    store.set_levels({"data": [1], "config": [0]})
    assert sorted(names(store.list("data"))) == sorted(items)
    assert all(store.load(f"data/{name}") == value for name, value in items.items())


def test_a_store_makes_its_directories_in_advance(client):
    store = Store(backend=Backend(client, "repo"), config={"a": {"levels": [1]}, "b": {"levels": [0]}})
    store.create()
    store.create_levels()
    assert len(client.list("repo/a")) == 256 and names(client.list("repo")) == ["a", "b"]


def test_a_store_gathers_and_defragments(store):
    for number in range(3):
        store.store(f"data/{key(number)}", bytes([number]) * 10)
    sources = [(key(number), 2, 3) for number in range(3)]
    expected = b"".join(bytes([number]) * 3 for number in range(3))
    assert store.gather(sources, namespace="data") == expected
    made = store.defrag(sources, algorithm="sha256", namespace="data")
    assert made == hashlib.sha256(expected).hexdigest()
    assert store.load(f"data/{made}") == expected and store.hash(f"data/{made}") == made


@pytest.mark.parametrize("mode", ["writethrough", "mirror"])
@pytest.mark.parametrize("place", ["primary", "cache"])
def test_a_store_caches(client, tmp_path, mode, place):
    remote, local = Backend(client, "repo"), PosixFS(tmp_path / "local")
    primary, cache = (remote, local) if place == "primary" else (local, remote)
    config = {"data": {"levels": [1], "cache": mode, "size": 50, "max_age": 3600}}
    store = Store(backend=primary, config=config, cache_backend=cache)
    store.create()
    with store:
        for number in range(10):
            store.store(f"data/{key(number)}", bytes(10))
        assert store.load(f"data/{key(9)}", offset=-3, size=2) == bytes(2)
        assert store.load(f"data/{key(0)}") == bytes(10)
        assert len(list(store.list("data"))) == 10
        assert store.stats["cache_errors"] == 0
    with store:
        assert store.load(f"data/{key(9)}") == bytes(10)
    store.destroy()


def test_threads_share_a_store(store):
    problems = []

    def work(thread):
        for number in range(20):
            name = f"data/{key((thread, number))}"
            store.store(name, name.encode())
            if store.load(name) != name.encode():
                problems.append(name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == [] and len(list(store.list("data"))) == 80


# URLs.

URLS = {
    "nicstripe://nas/backups/laptop": ("nas", "backups/laptop", {}),
    "nicstripe://Nas.local:7000/a%20b/c/": ("Nas.local", "a b/c", {"port": 7000}),
    "nicstripe://[fe80::1]:7000/a": ("fe80::1", "a", {"port": 7000}),
    "nicstripe://nas": ("nas", "", {}),
    "nicstripe://nas/": ("nas", "", {}),
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_names_host_port_and_path(url):
    backend = get_nicstripe_backend(url)
    assert (backend._source, backend._base, backend._settings) == URLS[url]


@pytest.mark.parametrize("url", ["file:///a", "nicstripe:/a", "nicstripe://u@nas/a", "nicstripe://nas/a?b"])
def test_other_urls_are_not_ours(url):
    assert get_nicstripe_backend(url) is None


def test_a_backend_of_a_url_works(server):
    backend = get_nicstripe_backend(f"nicstripe://{server.host}:{server.port}/repo", home=server.home)
    backend.create()
    with backend:
        backend.store("a", b"1")
        assert backend.load("a") == b"1"


# The second way: borgstore's own server, started by `nicstripe exec`.


def command():
    """Returns the command `nicstripe`, or None."""
    repo = Path(__file__).parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", repo / "target"))
    path = Path(os.environ.get("NICSTRIPE_BINARY", target / "debug/nicstripe"))
    return path if path.is_file() else None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, process):
    for _ in range(200):
        assert process.poll() is None, "serve has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens at port {port}")


def trust(nicstripe, home, other, *rights):
    shown = subprocess.run(
        [nicstripe, "key"], env=other, check=True, capture_output=True, text=True, timeout=30
    )
    add = [nicstripe, "trust", "add", shown.stdout.strip(), *rights]
    subprocess.run(add, env=home, check=True, timeout=30)


#: PATH of commands that a daemon runs.
FIXED_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize("way", ["in the PATH of the daemon", "elsewhere"])
def test_the_rest_server_of_borgstore_runs_by_exec(tmp_path, monkeypatch, way):
    pytest.importorskip("requests", reason="the client of borgstore's server needs requests")
    nicstripe = command()
    if nicstripe is None:
        pytest.skip("the command nicstripe is not built: set NICSTRIPE_BINARY")
    program = shutil.which("borgstore-server-rest", path=FIXED_PATH)
    if way == "elsewhere":
        program = Path(sys.executable).with_name("borgstore-server-rest")
    if program is None or not Path(program).is_file():
        pytest.skip(f"borgstore-server-rest is not {way}")
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("NICSTRIPE_")}
    client = environment | {"NICSTRIPE_HOME": str(tmp_path / "client")}
    daemon = environment | {"NICSTRIPE_HOME": str(tmp_path / "daemon")}
    rule = "borgstore-server-rest" if way != "elsewhere" else program
    trust(nicstripe, daemon, client, "--exec", f"{rule} --stdio --backend FILE:{tmp_path}/repo")
    trust(nicstripe, client, daemon)
    port, served = free_port(), tmp_path / "served"
    served.mkdir()
    rsh = f"{nicstripe} exec -P {port}"
    if way == "elsewhere":
        script = tmp_path / "rsh"
        script.write_text(f'#!/bin/sh\npeer=$1; shift 2\nexec {rsh} "$peer" -- {program} "$@"\n')
        script.chmod(0o755)
        rsh = str(script)
    monkeypatch.setenv("BORGSTORE_RSH", rsh)
    monkeypatch.setenv("NICSTRIPE_HOME", client["NICSTRIPE_HOME"])
    serve = [nicstripe, "serve", "--interface", "lo", "--port", str(port), "--quiet", served]
    with subprocess.Popen(serve, env=daemon) as process:
        try:
            wait_for(port, process)
            store = Store(f"rest://127.0.0.1/{tmp_path}/repo", config=CONFIG)
            store.create()
            with store:
                value = random.Random(0).randbytes(5 * MIB)
                store.store(f"data/{key(1)}", value)
                assert store.load(f"data/{key(1)}") == value
                assert names(store.list("data")) == [key(1)]
                parts = [(key(1), 5, 3), (key(1), -3, 3)]
                assert store.gather(parts, namespace="data") == value[5:8] + value[-3:]
                assert store.hash(f"data/{key(1)}") == hashlib.sha256(value).hexdigest()
            assert len(list((tmp_path / "repo/data").rglob(key(1)))) == 1
            store.destroy()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
