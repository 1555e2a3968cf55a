"""Compares the rates of the borgstore backend with those of the client beneath it.

    python borg_rate.py HOST [MIB] [--port PORT] [--home DIR]

Both store and load the same 2 MiB objects over one client, in turns. Prints the medians of 3 rounds in
MB/s, and the backend's rate in percent of the client's.
"""

import argparse
import os
import secrets
import statistics
import time

import nicstripe
from nicstripe.borgstore import Backend

OBJECT = 2 << 20
ROUNDS = 3


def rate(call, names):
    start = time.perf_counter()
    for name in names:
        call(name)
    return len(names) * OBJECT / (time.perf_counter() - start) / 1e6


def measure(client, path, mib):
    names = [f"packs/{number:04x}" for number in range(max(1, mib * (1 << 20) // OBJECT))]
    value = os.urandom(OBJECT)
    backend = Backend(client, f"{path}/backend")
    calls = {
        "Backend.store": lambda name: backend.store(name, value),
        "Client.write": lambda name: client.write(f"{path}/{name}", value, replace=True, parents=True),
        "Backend.load": lambda name: backend.load(name),
        "Client.read": lambda name: client.read(f"{path}/{name}"),
    }
    rates = {name: [] for name in calls}
    backend.create()
    with backend:
        for _ in range(ROUNDS):
            for name, call in calls.items():
                rates[name].append(rate(call, names))
    return {name: statistics.median(found) for name, found in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("mib", nargs="?", type=int, default=256)
    parser.add_argument("--port", type=int)
    parser.add_argument("--home")
    arguments = parser.parse_args()
    path = f"borg-rate-{secrets.token_hex(4)}"
    with nicstripe.Client(arguments.host, port=arguments.port, home=arguments.home) as client:
        try:
            rates = measure(client, path, arguments.mib)
        finally:
            Backend(client, path).destroy()
    for ours, beneath in (("Backend.store", "Client.write"), ("Backend.load", "Client.read")):
        percent = 100 * rates[ours] / rates[beneath]
        print(f"{ours:13} {rates[ours]:6.0f} MB/s  {beneath:12} {rates[beneath]:6.0f} MB/s  {percent:3.0f} %")


if __name__ == "__main__":
    main()
