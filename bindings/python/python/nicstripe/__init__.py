"""Moves large files between two machines over every cable that joins them.

>>> with nicstripe.Client("nas") as nas:
...     nas.put("disk.img")
...     with nas.open("disk.img", "rb") as file:
...         header = file.read(512)

The other machine runs ``nicstripe serve``; the two trust each other's keys (``nicstripe trust add``).
"""

from ._errors import (
    CallerError,
    DefectError,
    Error,
    IncompleteError,
    MachineError,
    NetworkError,
    PeerError,
)
from ._nicstripe import (
    Client,
    Entries,
    ObjectReader,
    ObjectWriter,
    Report,
    Server,
    Stat,
    Transfer,
    __version__,
    serve,
)

__all__ = [
    "CallerError",
    "Client",
    "DefectError",
    "Entries",
    "Error",
    "IncompleteError",
    "MachineError",
    "NetworkError",
    "ObjectReader",
    "ObjectWriter",
    "PeerError",
    "Report",
    "Server",
    "Stat",
    "Transfer",
    "__version__",
    "serve",
]
