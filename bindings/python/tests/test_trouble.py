"""What a program meets when something is wrong: an exception that is documented, and nothing else."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import nicstripe


def test_a_call_of_a_closed_client_raises(client):
    client.write("file", b"1")
    file = client.open("file")
    client.close()
    client.close()
    for call in (client.list, lambda: client.write("x", b""), client.links, lambda: client.within(1)):
        with pytest.raises(nicstripe.CallerError) as raised:
            call()
        assert raised.value.word == "closed"
    with pytest.raises(nicstripe.CallerError):
        file.read()


def test_threads_share_a_client(client):
    def work(number):
        for turn in range(20):
            client.write(f"{number}/{turn}", bytes([number]) * 1000, parents=True)
            assert client.read(f"{number}/{turn}") == bytes([number]) * 1000

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(stat.is_file for stat in client.walk()) == 160


def test_two_threads_on_one_raw_file_get_an_exception_and_no_mixture(connect, server):
    client = connect(bandwidth_bps=80_000_000)
    outcomes, data = [], os.urandom(1 << 20)
    client.write("file", data, replace=True)
    file = client.open("file", buffering=0)

    def read():
        try:
            outcomes.append(file.readall())
        except RuntimeError as error:
            assert "in use by another thread" in str(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # One of them has all, or each has read a part while the other one was between two reads.
    assert outcomes and all(part in data for part in outcomes)


def test_memory_cannot_be_freed_while_it_is_written(connect):
    client, data = connect(bandwidth_bps=8_000_000), bytearray(1 << 20)
    writing = threading.Thread(target=client.write, args=["file", data])
    writing.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            data.append(0)
            data.pop()
        except BufferError:
            break
    else:
        pytest.fail("the buffer was never held")
    writing.join(60)
    assert client.stat("file").size == len(data)


def test_other_threads_run_while_a_call_waits(connect, server):
    client = connect()
    server.close()
    waiting = threading.Thread(target=lambda: pytest.raises(OSError, client.within(0.5).list))
    waiting.start()
    turns = 0
    while waiting.is_alive():
        time.sleep(0.01)
        turns += 1
    assert turns > 3


def in_child(call):
    """Runs a call in a forked child. Returns what it says and its exit code."""
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: queue.put(call()))
    child.start()
    said = queue.get()
    child.join(20)
    assert child.exitcode == 0
    return said


def word_of(call):
    try:
        return str(call())
    except nicstripe.Error as error:
        return error.word


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(client, server):
    client.write("file", bytes(3 << 20))
    reader, writer = client.open("file"), client.open("new", "wb")
    transfer = client.start_get("file", "/dev/null")
    reader.read(10)
    writer.write(bytes(2 << 20))
    calls = [
        client.list,
        lambda: client.write("x", b""),
        lambda: client.within(1),
        lambda: reader.read(3 << 20),
        lambda: writer.raw.write(b"1"),
        lambda: next(transfer),
        lambda: writer.raw.close(),
        transfer.finish,
        transfer.cancel,
    ]
    for call in calls:
        assert in_child(lambda call=call: word_of(call)) == "forked"
    for close in (client.close, server.close, reader.close, writer.discard):
        assert in_child(lambda close=close: word_of(close)) == "None"
    # A child may connect by itself.
    again = lambda: nicstripe.Client(server.host, port=server.port, home=server.home).list()  # noqa: E731
    assert "file" in in_child(lambda: word_of(again))
    assert reader.read(1) == b"\0" and writer.write(b"1") == 1
    writer.close()
    assert client.stat("new").size == (2 << 20) + 1
    transfer.cancel()


def test_a_child_that_drops_a_client_in_the_midst_of_work_exits(client):
    data, end = bytes(1 << 20), threading.Event()

    def work():
        while not end.is_set():
            client.write("file", data, replace=True)

    working = threading.Thread(target=work)
    working.start()
    try:
        for _ in range(20):
            assert in_child(lambda: word_of(client.list)) == "forked"
    finally:
        end.set()
        working.join(60)


FORKING = """
import os, sys, nicstripe
with nicstripe.Client(sys.argv[1], port=int(sys.argv[2]), home=sys.argv[3]) as client:
    client.write("file", bytes(3 << 20))
    file, writer, copy = client.open("file"), client.open("new", "wb"), client.start_get("file", "/dev/null")
    file.read(1), writer.write(bytes(2 << 20))
    for child in range(10):
        if os.fork() == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    writer.close()
    print(client.stat("new").size)
"""


def test_a_child_that_ends_as_a_program_does_leaves_the_parents_session_alone(server):
    arguments = [sys.executable, "-c", FORKING, server.host, str(server.port), server.home]
    ran = subprocess.run(arguments, capture_output=True, timeout=60)
    assert ran.stdout == b"%d\n" % (2 << 20), ran.stderr


@pytest.fixture
def lost(connect, server):
    """A client whose daemon is gone, so that all of its calls wait."""
    client = connect()
    client.write("file", bytes(4 << 20))
    reader, writer = client.open("file"), client.open("new", "wb")
    server.close()
    return client, reader, writer


WAITS = {
    "list": lambda client, *_: client.list(),
    "walk": lambda client, *_: next(client.walk()),
    "stat": lambda client, *_: client.stat("file"),
    "read": lambda client, *_: client.read("file"),
    "read_into": lambda client, *_: client.read_into("file", bytearray(5)),
    "write": lambda client, *_: client.write("x", b"1"),
    "open": lambda client, *_: client.open("file"),
    "reader": lambda _, reader, __: reader.read(),
    "put": lambda client, *_: client.put("/bin/sh", "sh"),
    "put with progress": lambda client, *_: client.put("/bin/sh", "sh", progress=lambda _: None),
    "events": lambda client, *_: [event for event in client.start_put("/bin/sh", "sh")],
    "get": lambda client, *_: client.start_get("file", "/nowhere").finish(),
    "exec": lambda client, *_: client.exec(["ls"]),
    "links": lambda client, *_: client.links(),
    "bench": lambda client, *_: client.bench(),
    "remove": lambda client, *_: client.remove("file"),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_ends_every_wait(lost, wait):
    interrupting = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    begun = time.monotonic()
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            WAITS[wait](*lost)
    finally:
        interrupting.cancel()
    assert time.monotonic() - begun < 5
    client, _, writer = lost
    writer.discard()
    with pytest.raises(TimeoutError):
        client.within(0.1).list()


def test_a_signal_ends_a_wait_for_the_cables(connect):
    client = connect(bandwidth_bps=1_000_000)
    writer = client.open("new", "wb")
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            writer.write(bytes(1 << 20))
    writer.discard()
    assert client.list() == []


def test_a_signal_ends_connecting_to_a_server_that_is_silent(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            nicstripe.Client("127.0.0.1", port=port, home=tmp_path, patience=60)


def test_what_a_signal_handler_raises_is_what_the_call_raises(lost):
    def handler(*_):
        raise LookupError("by the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(LookupError, match="by the handler"):
            lost[0].list()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_exception_of_the_progress_callback_ends_the_copy(client, tmp_path):
    (tmp_path / "file").write_bytes(bytes(1 << 20))

    def fail(_):
        raise LookupError("by the callback")

    with pytest.raises(LookupError):
        client.put(tmp_path / "file", progress=fail)


def test_a_daemon_that_goes_away_is_a_network_error(connect, server):
    client = connect(patience=0.5)
    client.write("file", bytes(40 << 20))
    reader, writer = client.open("file"), client.open("new", "wb")
    reader.read(10)
    server.close()
    for call in (reader.read, client.list, lambda: [writer.write(bytes(1 << 20)) for _ in range(99)]):
        with pytest.raises(nicstripe.Error) as raised:
            call()
        assert raised.value.retryable, raised.value
        assert raised.value.actor in ("network", "peer"), raised.value


def test_a_stranger_and_garbage_are_refused(server, tmp_path):
    with nicstripe.serve() as other:
        with pytest.raises(nicstripe.MachineError) as raised:
            nicstripe.Client(server.host, port=server.port, home=other.home)
        assert raised.value.word == "untrusted_peer" and isinstance(raised.value, PermissionError)
    with socket.create_server(("127.0.0.1", 0)) as garbage:

        def answer():
            for _ in range(9):
                peer, _address = garbage.accept()
                with peer:
                    peer.sendall(os.urandom(1000))

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(nicstripe.Error) as raised:
            nicstripe.Client("127.0.0.1", port=garbage.getsockname()[1], home=tmp_path, patience=0.5)
        assert raised.value.number > 0


def test_rights_of_the_daemon_are_permission_errors(root):
    with nicstripe.serve(root, append_only=True) as server:
        with nicstripe.Client(server.host, port=server.port, home=server.home) as client:
            client.write("file", b"1")
            for call in (
                lambda: client.write("file", b"2", replace=True),
                lambda: client.remove("file"),
                lambda: client.rename("file", "x"),
            ):
                with pytest.raises(PermissionError):
                    call()
    with nicstripe.serve(root, read_only=True) as server:
        with nicstripe.Client(server.host, port=server.port, home=server.home) as client:
            with pytest.raises(PermissionError):
                client.write("new", b"")
            assert client.read("file") == b"1"


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda client: client.stat("../x"), ValueError),
        (lambda client: client.stat("a\0b"), ValueError),
        (lambda client: client.stat(""), ValueError),
        (lambda client: client.stat(1), TypeError),
        (lambda client: client.stat("none"), FileNotFoundError),
        (lambda client: client.list("file"), NotADirectoryError),
        (lambda client: client.write("file", b""), FileExistsError),
        (lambda client: client.write("file", b"", no_option=1), TypeError),
        (lambda client: client.read("file", 5, 2), ValueError),
        (lambda client: client.read("file", -1), OverflowError),
        (lambda client: client.read("file", 99), ValueError),
        (lambda client: client.open("file", "a"), ValueError),
        (lambda client: client.open("file", "rb+"), ValueError),
        (lambda client: client.open("file", "rb", encoding="utf-8"), ValueError),
        (lambda client: client.open("file").seek(-1), ValueError),
        (lambda client: client.read("d"), IsADirectoryError),
        (lambda client: client.within(-1), ValueError),
        (lambda client: client.bench(float("nan")), ValueError),
        (lambda client: client.put("/nowhere/file"), FileNotFoundError),
        (lambda client: nicstripe.Client("x", home="/", no_setting=1), TypeError),
        (lambda client: nicstripe.Client("x", links=["a=b=c"]), nicstripe.CallerError),
        (lambda client: nicstripe.serve("/nowhere"), OSError),
    ],
)
def test_a_mistake_is_an_exception_of_its_kind(client, call, kind):
    client.write("file", b"1")
    client.make_dir("d")
    with pytest.raises(kind):
        call(client)


def test_a_home_that_cannot_be_used_is_the_machines_error(tmp_path):
    (tmp_path / "peers").write_text("nonsense\n")
    with pytest.raises(nicstripe.MachineError) as raised:
        nicstripe.Client("host", home=tmp_path)
    assert raised.value.word == "home" and "peers" in str(raised.value)


def test_a_write_that_was_interrupted_completes_no_file(connect):
    client = connect(bandwidth_bps=1_000_000)
    for buffering in (0, 1 << 20):
        file = client.within(0.2).open("file", "wb", buffering)
        with pytest.raises(TimeoutError):
            while True:
                file.write(bytes(3 << 20))
        with pytest.raises(nicstripe.CallerError) as raised:
            file.close()
        assert raised.value.word == "closed"
    assert client.list() == []


def test_a_signal_between_two_writes_neither_repeats_nor_drops_bytes(client):
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop

    blocks = [number.to_bytes(4) * 16_384 for number in range(2000)]
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for turn in range(60):
            file = client.open("file", "wb", 1 << 18)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + turn * 0.0007)
                for block in blocks:
                    file.write(block)
            except Stop:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                try:
                    file.close()
                except nicstripe.Error:
                    continue
            written = client.read("file")
            assert written == b"".join(blocks)[: len(written)], turn
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_read_that_failed_is_repeated_at_the_same_place(connect):
    data = os.urandom(1 << 20)
    connect().write("file", data)
    file = connect(bandwidth_bps=4_000_000).within(0.3).open("file", buffering=0)
    with pytest.raises(TimeoutError):
        file.readinto(bytearray(1 << 20))
    assert file.tell() == 0 and file.read(1000) == data[:1000]


def test_limits_hold_with_a_progress_callback_and_within_each_other(connect, tmp_path):
    (tmp_path / "file").write_bytes(bytes(8 << 20))
    client, begun = connect(bandwidth_bps=4_000_000), time.monotonic()
    with pytest.raises(TimeoutError):
        client.within(0.3).put(tmp_path / "file", progress=lambda _: None)
    with pytest.raises(TimeoutError):
        client.within(0.3).within(30).put(tmp_path / "file", "other")
    interruptible, end = client.interruptible()
    inner, _ = interruptible.interruptible()
    threading.Timer(0.2, end).start()
    with pytest.raises(nicstripe.CallerError) as raised:
        inner.put(tmp_path / "file", "third", progress=lambda _: None)
    assert raised.value.word == "cancelled" and time.monotonic() - begun < 10


def test_a_copy_is_repeated_while_a_forked_child_lives(connect, tmp_path):
    data = os.urandom(1 << 20)
    connect().write("file", data)
    copy = connect(bandwidth_bps=4_000_000).start_get("file", tmp_path / "copy")
    next(event for event in copy if event["event"] == "progress")
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        copy.cancel()
        with pytest.raises(nicstripe.Error):
            copy.finish()
        connect().get("file", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_that_is_replaced_while_it_is_read_is_no_mixture(client):
    client.write("file", bytes(3_000_000))
    file = client.open("file")
    client.write("file", b"1" * 3_000_000, replace=True)
    with pytest.raises(nicstripe.Error) as raised:
        file.read()
    assert raised.value.code == "source_changed" and raised.value.retryable


def test_no_thread_is_left_behind(server):
    def threads():
        names = []
        for task in pathlib.Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                names.append((task / "comm").read_text().strip())
        # Those of the daemon in this process, which it keeps for 10 s.
        return sum(name != "tokio-rt-worker" for name in names)

    before = threads()
    for _ in range(3):
        with nicstripe.Client(server.host, port=server.port, home=server.home) as client:
            client.write("file", b"1", replace=True)
        nicstripe.Client(server.host, port=server.port, home=server.home)  # Dropped at once.
    deadline = time.monotonic() + 20
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threads() <= before
