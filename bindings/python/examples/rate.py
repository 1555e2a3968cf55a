"""Rate of a file at a daemon by Python's files or by fsspec.

    python examples/rate.py HOST files|fsspec|objects put|get [MIB]

Prints MB/s of one file of MIB MiB (2048), `rate`, from the first byte until it is durable, or read. `files`
uses pieces of 1 MiB, `fsspec` blocks of 4 MiB, `objects` one object of 2 MiB after another. Beside it: the same by
the library, `cargo run --release --example rate -- HOST put|get`.
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
    if way == "objects":
        objects(client, what, size)
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


def objects(client, what, size):
    data, begun = os.urandom(OBJECT), time.monotonic()
    for number in range(size // OBJECT):
        if what == "put":
            client.write(f"objects/{number}", data, replace=True, parents=True)
        else:
            assert len(client.read(f"objects/{number}")) == OBJECT
    print(f"{size / (time.monotonic() - begun) / 1e6:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
