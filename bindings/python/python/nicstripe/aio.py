"""The client for asyncio: the same calls, each awaited.

>>> async with await nicstripe.aio.connect("nas") as nas:
...     await nas.put("disk.img")

A call runs on a thread of the loop's executor. When its task is cancelled, the call ends at once.
"""

import asyncio
import functools

from ._nicstripe import Client as _Client

_CALLS = (
    "bench",
    "concat",
    "copy",
    "exec",
    "get",
    "links",
    "list",
    "make_dir",
    "put",
    "read",
    "read_into",
    "remove",
    "remove_many",
    "rename",
    "root",
    "stat",
    "verify",
    "write",
)


async def connect(host, **settings):
    """Connects to a daemon; see :class:`nicstripe.Client`."""
    return Client(await asyncio.to_thread(_Client, host, **settings))


class Client:
    """Client whose calls are awaited; see :class:`nicstripe.Client` for each."""

    def __init__(self, client):
        self.client = client

    async def __aenter__(self):
        return self

    async def __aexit__(self, *raised):
        await self.close()

    async def close(self):
        """Closes the session."""
        await asyncio.to_thread(self.client.close)

    async def walk(self, name=None, **options):
        """Iterates over all that is below a directory."""
        entries = self.client.walk(name, **options)
        while (entry := await asyncio.to_thread(next, entries, None)) is not None:
            yield entry


async def _call(self, *args, _name, **kwargs):
    client, interrupt = self.client.interruptible()
    running = asyncio.get_running_loop().run_in_executor(
        None, functools.partial(getattr(client, _name), *args, **kwargs)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        interrupt()
        # It ends at once: nothing of it goes on behind the caller's back.
        await asyncio.wait([running])
        running.exception()
        raise


def _awaited(name):
    async def call(self, *args, **kwargs):
        return await _call(self, *args, _name=name, **kwargs)

    call.__name__, call.__doc__ = name, getattr(_Client, name).__doc__
    return call


for _name in _CALLS:
    setattr(Client, _name, _awaited(_name))
