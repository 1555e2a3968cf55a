"""The client for asyncio: the same calls, each awaited.

>>> async with await nicstripe.aio.connect("nas") as nas:
...     await nas.put("disk.img")

A call runs on a thread of the client. When its task is cancelled, the call ends at once.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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

#: Calls of a client that run at the same time; further ones wait. That of transfers.
_AT_ONCE = 64


async def connect(host, **settings):
    """Connects to a daemon; see :class:`nicstripe.Client`."""
    return Client(await asyncio.to_thread(_Client, host, **settings))


class Client:
    """Client whose calls are awaited; see :class:`nicstripe.Client` for each."""

    def __init__(self, client):
        self.client = client
        self._threads = ThreadPoolExecutor(_AT_ONCE, "nicstripe-aio")

    if TYPE_CHECKING:

        def __getattr__(self, call: str) -> Callable[..., Awaitable[Any]]: ...

    async def __aenter__(self):
        return self

    async def __aexit__(self, *raised):
        await self.close()

    async def close(self):
        """Closes the session, and ends the threads."""
        await asyncio.wrap_future(self._threads.submit(self.client.close))
        self._threads.shutdown(wait=False)

    async def walk(self, name=None, **options):
        """Iterates over all that is below a directory."""
        client, interrupt = self.client.interruptible()
        entries = await self._run(functools.partial(client.walk, name, **options), interrupt)
        while (entry := await self._run(functools.partial(next, entries, None), interrupt)) is not None:
            yield entry

    async def _run(self, call, interrupt):
        """Awaits a call on a thread. If that is cancelled, the call is interrupted, and has ended."""
        running = self._threads.submit(call)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            interrupt()
            if not running.cancel():
                await asyncio.wait([asyncio.wrap_future(running)])
            raise


def _awaited(name):
    async def call(self, *args, **kwargs):
        client, interrupt = self.client.interruptible()
        return await self._run(functools.partial(getattr(client, name), *args, **kwargs), interrupt)

    call.__name__, call.__doc__ = name, getattr(_Client, name).__doc__
    return call


for _name in _CALLS:
    setattr(Client, _name, _awaited(_name))
