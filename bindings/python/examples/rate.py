"""Rate of a file, or of objects one after another, at a daemon.

    python examples/rate.py HOST files|fsspec|objects|borgstore put|get [MIB]

Prints MB/s of MIB MiB (2048), from the first byte until it is durable, or read. `files` moves a file in pieces of
1 MiB, `fsspec` in blocks of 4 MiB; `objects` and `borgstore` move one object of 2 MiB after another. Beside it: the
same by the library, `cargo run --release --example rate -- HOST put|get|put-objects|get-objects`.
"""

import os
import sys
import time

import fsspec

import nicstripe

OBJECT = 2 << 20


def main(host, way, what, mib=2048):
    size = int(mib) << 20
    settings = {"port": int(os.environ.get("NICSTRIPE_PORT", 7747))}
    client = nicstripe.Client(host, **settings)
    piece = (4 if way == "fsspec" else 1) << 20
    if way in ("objects", "borgstore"):
        objects(client, way, what, size)
        return
    if way == "files":
        file = lambda mode: client.open("rate", mode)  # noqa: E731
    else:
        fs = fsspec.filesystem("nicstripe", host=host, **settings)
        file = lambda mode: fs.open("rate", mode, block_size=piece)  # noqa: E731
        fs.exists("rate")  # Connects.
    data, begun = os.urandom(piece), time.monotonic()
    moved = 0
    if what == "put":
        with file("wb") as target:
            while moved < size:
                moved += target.write(data)
    else:
        with file("rb") as source:
            while part := source.read(piece):
                moved += len(part)
    print(f"{moved / (time.monotonic() - begun) / 1e6:.1f}")


def objects(client, way, what, size):
    put = lambda name, data: client.write(f"objects/{name}", data, replace=True, parents=True)  # noqa: E731
    get = lambda name: client.read(f"objects/{name}")  # noqa: E731
    if way == "borgstore":
        from nicstripe.borgstore import Backend

        client.make_dir("objects")
        backend = Backend(client, "objects")
        backend.open()
        put, get = backend.store, backend.load
    data, begun = os.urandom(OBJECT), time.monotonic()
    for number in range(size // OBJECT):
        if what == "put":
            put(str(number), data)
        else:
            assert len(get(str(number))) == OBJECT
    print(f"{size / (time.monotonic() - begun) / 1e6:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
