"""A sum over Parquet by dask.distributed, at a nicstripe daemon or an S3 server.

    python examples/dask_sum.py write|sum URL [MIB [ADDRESS]]

`write` writes tables of 64 MiB of random numbers below URL, MIB (2048) in all. `sum` reads them by the workers of the
scheduler at ADDRESS (`dask scheduler`, `dask worker`), adds up a column and prints the rate in MB/s. Options of the
file system are JSON in the variable STORAGE_OPTIONS.
"""

import json
import os
import sys
import time

import dask
import fsspec
import numpy
import pandas
from distributed import Client

TABLE = 64 << 20
COLUMNS = 4


def main(what, url, mib=2048, address=None):
    options = json.loads(os.environ.get("STORAGE_OPTIONS", "{}"))
    names = [f"{url}/table-{number}.parquet" for number in range((int(mib) << 20) // TABLE)]
    rows = TABLE // 8 // COLUMNS
    if what == "write":
        random = numpy.random.default_rng(7)
        for name in names:
            table = pandas.DataFrame({f"column{c}": random.random(rows) for c in range(COLUMNS)})
            table.to_parquet(name, storage_options=options, compression="none")
        return
    with Client(address) as client:
        client.run(connected, names[0], options)
        begun = time.monotonic()
        sums = [dask.delayed(total)(name, options) for name in names]
        sums = dask.compute(*sums)
        taken = time.monotonic() - begun
    size = sum(part[1] for part in sums)
    print(f"{size / taken / 1e6:.1f} MB/s, sum {sum(part[0] for part in sums):.3f}, {taken:.2f} s")


def connected(name, options):
    """Imports and connects on a worker, so that neither is timed."""
    fsspec.open(name, **options).fs.exists("x")


def total(name, options):
    """Adds up all columns of a table. Returns the sum and the size of the file."""
    with fsspec.open(name, **options) as file:
        table = pandas.read_parquet(file)
        return float(table.to_numpy().sum()), file.seek(0, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
